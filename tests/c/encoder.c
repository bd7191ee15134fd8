/* Runs the encoder from its header alone: program WEIGHTS INPUT. INPUT holds B, S and D (int64), then x, keep and the
 * expected result. Prints the largest difference between the result and what is expected. */

#include "model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void *read_or_die(FILE *f, size_t size, size_t count)
{
    void *data = malloc(count ? size * count : 1);
    if (!data || fread(data, size, count, f) != count) {
        printf("the input is too short\n");
        exit(1);
    }
    return data;
}

int main(int argc, char **argv)
{
    attnc_model *model = 0;
    attnc_session *session = 0;
    FILE *f;
    int64_t *dims, count, i;
    float *x, *expected, *result, far = 0;
    uint8_t *keep;

    if (argc != 3 || !(f = fopen(argv[2], "rb"))) {
        printf("usage: program WEIGHTS INPUT\n");
        return 1;
    }
    dims = read_or_die(f, sizeof *dims, 3);
    count = dims[0] * dims[1] * dims[2];
    x = read_or_die(f, sizeof *x, (size_t)count);
    keep = read_or_die(f, 1, (size_t)(dims[0] * dims[1]));
    expected = read_or_die(f, sizeof *expected, (size_t)count);
    fclose(f);
    result = malloc(sizeof *result * (size_t)count);
    if (!result || attnc_model_open(argv[1], 2, &model) != ATTNC_OK) {
        printf("open: %s\n", attnc_model_error(model));
        return 1;
    }
    if (attnc_session_open(model, &session) != ATTNC_OK
        || encoder_forward(session, dims[0], dims[1], x, keep, result) != ATTNC_OK) {
        printf("forward: %s\n", session ? attnc_session_error(session) : attnc_model_error(model));
        return 1;
    }
    for (i = 0; i < count; i++) {
        float d = (float)fabs((double)result[i] - (double)expected[i]);
        if (!(d <= far)) {
            far = d;
        }
    }
    printf("%g\n", (double)far);
    attnc_session_close(session);
    attnc_model_close(model);
    free(dims);
    free(x);
    free(keep);
    free(expected);
    free(result);
    return 0;
}
