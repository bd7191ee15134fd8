/* Text from the header alone, token by token: program WEIGHTS COUNT SEED TOKEN.. prints COUNT tokens that come after those. */

#include "model.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    attnc_model *model = 0;
    attnc_session *session = 0;
    const float temperature = 0.8f, top_p = 0.95f, penalty = 1.1f;
    const int32_t top_k = 40;
    int32_t prompt[64], token = 0;
    int64_t length = argc - 4, left, seed;
    int32_t status;
    int i;

    if (argc < 5 || argc > 68) {
        printf("usage: program WEIGHTS COUNT SEED TOKEN..\n");
        return 1;
    }
    left = atoi(argv[2]);
    seed = atoi(argv[3]);
    for (i = 4; i < argc; i++) {
        prompt[i - 4] = atoi(argv[i]);
    }
    if (attnc_model_open(argv[1], 1, &model) != ATTNC_OK || attnc_session_open(model, &session) != ATTNC_OK) {
        printf("open: %s\n", attnc_model_error(model));
        return 1;
    }
    /* The prompt first, then each token that came: the session keeps what was read. */
    status = gpt2_next(session, length, prompt, &temperature, &top_k, &top_p, &penalty, &seed, &token);
    while (status == ATTNC_OK && left-- > 0) {
        int32_t read = token;
        printf("%d\n", (int)token);
        fflush(stdout);
        if (left > 0) {
            status = gpt2_next(session, 1, &read, &temperature, &top_k, &top_p, &penalty, &seed, &token);
        }
    }
    if (status != ATTNC_OK) {
        printf("next: %s\n", attnc_session_error(session));
    }
    attnc_session_close(session);
    attnc_model_close(model);
    return status != ATTNC_OK;
}
