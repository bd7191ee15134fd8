/*
 * Two sessions of a model on a GPU, each on a thread of its own, with states that must not mix. Then everything is closed, and the
 * stand-in driver counts what is left.
 */
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
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

typedef struct {
    attnc_session *session;
    float step;
    int failed;
} job;

static int calls(job *own)
{
    float x[4], sum[4], y[8], want, limit = 100;
    int32_t tokens[3] = {4, 0, 2}, count;
    float rows[12];
    int i, n;
    for (n = 1; n <= 20; n++) {
        for (i = 0; i < 4; i++) {
            x[i] = own->step * (float)(i + 1);
        }
        CHECK(small_add(own->session, x, sum) == ATTNC_OK);
        for (i = 0; i < 4; i++) {
            want = (float)n * x[i];
            CHECK(fabsf(sum[i] - want) <= 1e-4f * fabsf(want));
        }
    }
    CHECK(small_lookup(own->session, 3, tokens, rows) == ATTNC_OK);
    for (i = 0; i < 12; i++) {
        CHECK(rows[i] == (float)(tokens[i / 4] * 4 + i % 4));
    }
    /* Two rows, and none. */
    for (i = 0; i < 8; i++) {
        y[i] = 0;
    }
    CHECK(small_affine(own->session, 2, rows, y) == ATTNC_OK);
    for (i = 0; i < 8; i++) {
        want = expf(rows[i] / 2) + 1;
        CHECK(fabsf(y[i] - want) <= 1e-5f * want);
    }
    CHECK(small_affine(own->session, 0, rows, y) == ATTNC_OK);
    /* The plan reads what a kernel computed. */
    x[0] = 3;
    CHECK(small_double(own->session, x, &limit, sum, &count) == ATTNC_OK);
    CHECK(count == 6 && sum[0] == 192 && sum[1] == 64 * x[1]);
    /* An error, and the next call. */
    tokens[1] = 5;
    CHECK(small_lookup(own->session, 3, tokens, rows) == ATTNC_OUT_OF_RANGE);
    CHECK(strstr(attnc_session_error(own->session), "out of range") != 0);
    tokens[1] = 1;
    CHECK(small_lookup(own->session, 3, tokens, rows) == ATTNC_OK);
    CHECK(attnc_session_reset(own->session) == ATTNC_OK);
    CHECK(small_add(own->session, x, sum) == ATTNC_OK && sum[1] == x[1]);
    return 0;
}

static void *thread(void *own)
{
    ((job *)own)->failed = calls(own);
    return 0;
}

int main(int argc, char **argv)
{
    attnc_model *model = 0;
    job jobs[2] = {{0, 1.0f, 1}, {0, -0.25f, 1}};
    pthread_t threads[2];
    void *driver;
    uint64_t (*live)(void);
    int i;
    CHECK(argc == 3);
    driver = dlopen(argv[2], RTLD_NOW);
    CHECK(driver);
    *(void **)&live = dlsym(driver, "attnc_standin_live");
    CHECK(live && live() == 0);
    if (attnc_model_open_on("cuda", argv[1], 0, &model) != ATTNC_OK) {
        printf("%s\n", attnc_model_error(model));
        return 1;
    }
    CHECK(strncmp(attnc_model_variant(model), "sm_", 3) == 0);
    for (i = 0; i < 2; i++) {
        CHECK(attnc_session_open(model, &jobs[i].session) == ATTNC_OK);
        CHECK(attnc_session_stream(jobs[i].session) != 0);
    }
    CHECK(attnc_session_stream(jobs[0].session) != attnc_session_stream(jobs[1].session));
    for (i = 0; i < 2; i++) {
        CHECK(pthread_create(&threads[i], 0, thread, &jobs[i]) == 0);
    }
    for (i = 0; i < 2; i++) {
        pthread_join(threads[i], 0);
        if (jobs[i].failed) {
            printf("%s\n", attnc_session_error(jobs[i].session));
        }
        CHECK(!jobs[i].failed);
    }
    /* Launches are timed on the GPU: a millisecond each, in the stand-in. */
    {
        float x[4] = {1, 2, 3, 4}, sum[4];
        CHECK(attnc_session_profile(jobs[0].session, 1) == ATTNC_OK);
        CHECK(small_add(jobs[0].session, x, sum) == ATTNC_OK);
        CHECK(attnc_launch_count(jobs[0].session) > 0);
        CHECK(attnc_launch_nanoseconds(jobs[0].session, 0) == 1000000);
    }
    CHECK(live() > 0);
    /* In any order. */
    attnc_session_close(jobs[1].session);
    attnc_model_close(model);
    attnc_session_close(jobs[0].session);
    CHECK(live() == 0);
    puts("ok");
    return 0;
}
