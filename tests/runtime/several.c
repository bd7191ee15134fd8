/* Two models that differ in nothing but what they compute, in one file of C or C++. Prints "ok". */

#include "plus.h"
#include "minus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int holds, const char *what)
{
    if (!holds) {
        printf("failed: %s\n", what);
        exit(1);
    }
}

int main(void)
{
    attnc_model *plus = 0, *minus = 0;
    attnc_session *plus_session = 0, *minus_session = 0;
    float x[4] = {1, 2, 3, 4}, y[4] = {10, 20, 30, 40}, z[4];

    check(strcmp(plus_library()->model_name(), "Plus") == 0, "the name of plus");
    check(strcmp(minus_library()->model_name(), "Minus") == 0, "the name of minus");
    check(plus_model_open(0, 1, &plus) == ATTNC_OK, "open plus");
    check(minus_model_open(0, 1, &minus) == ATTNC_OK, "open minus");
    check(attnc_session_open(plus, &plus_session) == ATTNC_OK, "a session of plus");
    check(attnc_session_open(minus, &minus_session) == ATTNC_OK, "a session of minus");
    check(plus_combine(plus_session, 1, x, y, z) == ATTNC_OK && z[0] == 11 && z[3] == 44, "plus");
    check(minus_combine(minus_session, 1, y, x, z) == ATTNC_OK && z[0] == 9 && z[3] == 36, "minus");
    /* A session of the other model is not taken. */
    check(plus_combine(minus_session, 1, x, y, z) == ATTNC_WRONG_CALL, "plus with a session of minus");
    check(strstr(attnc_session_error(minus_session), "another model") != 0, "its text");
    check(z[0] == 9, "nothing is written then");
    check(plus_combine(0, 1, x, y, z) == ATTNC_WRONG_CALL, "no session");
    check(strcmp(attnc_status_text(ATTNC_WRONG_CALL), "wrong call") == 0, "a status");
    attnc_session_close(minus_session);
    attnc_session_close(plus_session);
    attnc_model_close(plus);
    attnc_model_close(minus);
    printf("ok\n");
    return 0;
}
