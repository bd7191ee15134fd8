/* Uses the toy model while the system refuses memory: program WEIGHTS FILE. Prints "ok".
 *
 * First every allocation in turn is refused, by itself and with all that follow: each function ends with ATTNC_OK or
 * ATTNC_NO_MEMORY. Then a weights file is written to FILE and opened whose header does not fit the memory that the process may have. */

#define _GNU_SOURCE
#include "toy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

void *__libc_malloc(size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

/* Allocations until one is refused; none while it is negative. */
static long left = -1;
/* Is only that one refused? */
static int single;
static long refusals;

static int is_refused(void)
{
    if (left != 0) {
        left -= left > 0;
        return 0;
    }
    refusals++;
    if (single) {
        left = -1;
    }
    return 1;
}

void *malloc(size_t size)
{
    return is_refused() ? 0 : __libc_malloc(size);
}

void *realloc(void *pointer, size_t size)
{
    return is_refused() ? 0 : __libc_realloc(pointer, size);
}

int posix_memalign(void **out, size_t align, size_t size)
{
    if (is_refused()) {
        return ENOMEM;
    }
    *out = __libc_memalign(align, size);
    return *out ? 0 : ENOMEM;
}

static const char *stage = "";

static void check(int status, int others, const char *what)
{
    if (status != ATTNC_OK && status != ATTNC_NO_MEMORY && status != others) {
        left = -1;
        printf("failed: %s: status %d\n", what, status);
        exit(1);
    }
    stage = what;
}

static void use(const char *weights)
{
    attnc_model *model = 0;
    attnc_session *session = 0;
    attnc_taps *taps = 0;
    DLTensor in, out, *in_list[1], *out_list[1];
    DLManagedTensor *owned[1] = {0};
    const char *patterns[1] = {"h.*.partial"};
    float x[12] = {1, 2, 3, 4}, y[12];
    int64_t shape[2] = {3, 4}, strides[2] = {1, 3};
    int32_t tokens[1] = {7};
    int status;

    check(attnc_model_open("none", 1, &model), ATTNC_WRONG_FILE, "open nothing");
    attnc_model_close(model);
    model = 0;
    status = attnc_model_open(weights, 3, &model);
    check(status, ATTNC_OK, "open");
    if (status != ATTNC_OK && model && !strstr(attnc_model_error(model), "out of memory")) {
        check(-1, 0, "the text of an error");
    }
    if (status == ATTNC_OK) {
        check(attnc_session_open(model, &session), ATTNC_OK, "session");
    }
    if (session) {
        memset(&in, 0, sizeof in);
        in.data = x;
        in.device.device_type = kDLCPU;
        in.ndim = 2;
        in.dtype.code = kDLFloat;
        in.dtype.bits = 32;
        in.dtype.lanes = 1;
        in.shape = shape;
        in.strides = strides;
        out = in;
        out.data = y;
        in_list[0] = &in;
        out_list[0] = &out;
        check(toy_scale_dlpack(session, &in, &out), ATTNC_OK, "a call");
        check(toy_scale(session, 1, 3, x, y), ATTNC_OK, "a call of pointers");
        check(toy_scale(session, 1, -1, x, y), ATTNC_WRONG_TENSOR, "a wrong call");
        check(toy_gather(session, 1, tokens, y), ATTNC_OUT_OF_RANGE, "an index out of range");
        check(attnc_call_taps(session, TOY_SCALE, 1, in_list, 1, out_list, 1, patterns, &taps), ATTNC_OK, "taps");
        check(attnc_call_owned(session, TOY_SCALE, 1, in_list, 1, owned), ATTNC_OK, "owned results");
        attnc_session_profile(session, 1);
        check(toy_scale(session, 1, 3, x, y), ATTNC_OK, "a timed call");
    }
    attnc_taps_close(taps);
    if (owned[0]) {
        owned[0]->deleter(owned[0]);
    }
    attnc_session_close(session);
    attnc_model_close(model);
}

int main(int argc, char **argv)
{
    struct rlimit limit;
    attnc_model *model = 0;
    long n, pages = 0, most = 0;
    FILE *f;
    char *header;
    uint64_t length = (uint64_t)90 << 20;
    int status;

    if (argc != 3) {
        return 1;
    }
    for (single = 0; single < 2; single++) {
        for (n = 0; n < 100000; n++) {
            long before = refusals;
            left = n;
            use(argv[1]);
            left = -1;
            if (refusals == before) {
                break;
            }
        }
        most = n;
        if (most < 50) {
            printf("only %ld allocations, after %s\n", most, stage);
            return 1;
        }
    }
    header = __libc_malloc(length);
    f = fopen(argv[2], "wb");
    if (!header || !f) {
        return 1;
    }
    memset(header, 'x', length);
    memcpy(header, "{\"__metadata__\":{\"a\":\"", 22);
    memcpy(header + length - 3, "\"}}", 3);
    if (fwrite(&length, sizeof length, 1, f) != 1 || fwrite(header, 1, length, f) != length || fclose(f) != 0) {
        return 1;
    }
    free(header);
    f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld", &pages) != 1) {
        return 1;
    }
    fclose(f);
    limit.rlim_cur = (rlim_t)pages * 4096 + ((rlim_t)130 << 20);
    limit.rlim_max = RLIM_INFINITY;
    setrlimit(RLIMIT_AS, &limit);
    status = attnc_model_open(argv[2], 1, &model);
    if (status != ATTNC_NO_MEMORY || !strstr(attnc_model_error(model), "out of memory")) {
        printf("a large header: %d %s\n", status, attnc_model_error(model));
        return 1;
    }
    attnc_model_close(model);
    printf("ok\n");
    return 0;
}
