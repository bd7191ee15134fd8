/*
 * Launches are to be timed on a GPU that has one event, not the two that this takes: an error, after which calls work without timing. Then
 * everything is closed, and the stand-in driver counts what is left.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "small.h"

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            printf("line %d: %s\n", __LINE__, #condition);                     \
            return 1;                                                          \
        }                                                                      \
    } while (0)

int main(int argc, char **argv)
{
    attnc_model *model = 0;
    attnc_session *session = 0;
    void *driver;
    uint64_t (*live)(void), before;
    float x[4] = {1, 2, 3, 4}, sum[4];
    int n;
    CHECK(argc == 3);
    driver = dlopen(argv[2], RTLD_NOW);
    CHECK(driver);
    *(void **)&live = dlsym(driver, "attnc_standin_live");
    CHECK(live);
    CHECK(attnc_model_open_on("cuda", argv[1], 0, &model) == ATTNC_OK);
    CHECK(attnc_session_open(model, &session) == ATTNC_OK);
    CHECK(small_add(session, x, sum) == ATTNC_OK);
    before = live();
    for (n = 0; n < 2; n++) {
        CHECK(attnc_session_profile(session, 1) == ATTNC_OK);
        CHECK(small_add(session, x, sum) != ATTNC_OK);
        CHECK(strstr(attnc_session_error(session), "an event of the GPU") != 0);
        CHECK(live() == before);
        /* A call that sets states and fails loses them. */
        CHECK(attnc_session_reset(session) == ATTNC_OK);
    }
    CHECK(attnc_session_profile(session, 0) == ATTNC_OK);
    CHECK(small_add(session, x, sum) == ATTNC_OK);
    CHECK(sum[0] == 1 && sum[3] == 4);
    attnc_session_close(session);
    attnc_model_close(model);
    CHECK(live() == 0);
    puts("ok");
    return 0;
}
