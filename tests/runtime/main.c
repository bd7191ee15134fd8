/* Calls the toy model from C (and C++) with its header alone: program WEIGHTS. Prints "ok". */

#include "toy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The text is asked for only where something failed. */
#define CHECK(holds, what, text)                             \
    do {                                                     \
        if (!(holds)) {                                      \
            printf("failed: %s: %s\n", what, text);          \
            exit(1);                                         \
        }                                                    \
    } while (0)

static DLTensor tensor(void *data, int32_t ndim, int64_t *shape, uint8_t code, uint8_t bits)
{
    DLTensor t;
    memset(&t, 0, sizeof t);
    t.data = data;
    t.device.device_type = kDLCPU;
    t.ndim = ndim;
    t.dtype.code = code;
    t.dtype.bits = bits;
    t.dtype.lanes = 1;
    t.shape = shape;
    return t;
}

int main(int argc, char **argv)
{
    attnc_model *model = 0;
    attnc_session *session = 0;
    attnc_taps *taps = 0;
    float x[8], y[8], wide[16];
    int32_t tokens[2], bad_tokens[1], number;
    int64_t shape[2], strides[2], found[4];
    int32_t ndim = 0;
    int i;
    char text[64];
    DLTensor in, out;
    const DLTensor *tap;
    DLTensor *in_list[1], *out_list[1];
    DLManagedTensor *owned[1];
    const char *patterns[1];

    CHECK(argc == 2, "usage", "program WEIGHTS");
    CHECK(attnc_model_open(0, 0, &model) == ATTNC_WRONG_WEIGHTS, "no weights", "");
    CHECK(strstr(attnc_model_error(model), "needs a weights file") != 0, "no weights", attnc_model_error(model));
    CHECK(attnc_session_open(model, &session) == ATTNC_WRONG_CALL, "a model that did not open", "");
    attnc_model_close(model);

    CHECK(attnc_model_open(argv[1], 0, &model) == ATTNC_OK, "open", attnc_model_error(model));
    CHECK(attnc_converted_weight_count(model) == 0 && attnc_converted_weight(model, 0) == 0, "converted", "nothing is");
    CHECK(attnc_session_open(model, &session) == ATTNC_OK, "session", attnc_model_error(model));
    /* The session keeps the model. */
    attnc_model_close(model);

    for (i = 0; i < 8; i++) {
        x[i] = (float)i;
    }
    CHECK(toy_scale(session, 1, 2, x, y) == ATTNC_OK, "scale", attnc_session_error(session));
    for (i = 0; i < 8; i++) {
        CHECK(y[i] == x[i] * (float)(i % 4) + 600 + 3 * (float)(i % 4), "scale", "a wrong number");
    }
    /* The result over the argument. */
    CHECK(toy_scale(session, 2, 1, x, x) == ATTNC_OK, "in place", attnc_session_error(session));
    CHECK(memcmp(x, y, sizeof x) == 0, "in place", "a wrong number");
    CHECK(toy_scale(session, 1, -1, x, y) == ATTNC_WRONG_TENSOR, "a negative dimension", "");
    CHECK(toy_scale(session, INT64_MAX, 2, x, y) == ATTNC_WRONG_TENSOR, "a dimension too large", "");
    CHECK(toy_scale(session, 1, 2, 0, y) == ATTNC_WRONG_CALL, "a null pointer", "");
    CHECK(toy_scale(session, 0, 2, 0, 0) == ATTNC_OK, "nothing at all", attnc_session_error(session));

    tokens[0] = 1;
    tokens[1] = 4;
    CHECK(toy_gather(session, 2, tokens, y) == ATTNC_OK, "gather", attnc_session_error(session));
    CHECK(y[0] == 404 && y[7] == 419, "gather", "a wrong number");
    bad_tokens[0] = 5;
    CHECK(toy_gather(session, 1, bad_tokens, y) == ATTNC_OUT_OF_RANGE, "a bad index", "");
    CHECK(attnc_session_copy_error(session, text, sizeof text) > sizeof text, "a long text", text);
    CHECK(strlen(text) == sizeof text - 1 && strncmp(text, "gather: index out of range", 26) == 0, "its beginning", text);
    CHECK(toy_count(session, &number) == ATTNC_OK && number == 1, "count", attnc_session_error(session));

    /* States by index: their description, their elements, and what does not fit. */
    CHECK(attnc_state_count() == 1 && attnc_state_index("calls") == 0 && attnc_state_index("call") == -1, "states", "another number");
    CHECK(strcmp(attnc_state_name(0), "calls") == 0 && strcmp(attnc_state_type(0), "i32") == 0, "states", "another state");
    CHECK(attnc_state_name(1) == 0 && attnc_state_type(1) == 0 && attnc_state_index(0) == -1, "states", "one too many");
    CHECK(attnc_state_shape(0, 0, 0, &ndim) == ATTNC_OK && ndim == 0, "states", "another shape");
    CHECK(attnc_state_shape(1, 0, 0, &ndim) == ATTNC_WRONG_CALL, "states", "a shape of none");
    CHECK(attnc_session_state(session, 0, &number, sizeof number) == ATTNC_OK && number == 1, "state", attnc_session_error(session));
    number = 41;
    CHECK(attnc_session_set_state(session, 0, &number, sizeof number) == ATTNC_OK, "state", attnc_session_error(session));
    CHECK(toy_count(session, &number) == ATTNC_OK && number == 42, "count", attnc_session_error(session));
    CHECK(attnc_session_state(session, 0, &number, 3) == ATTNC_WRONG_TENSOR, "state", "of 3 bytes");
    CHECK(strcmp(attnc_session_error(session), "state `calls` has 4 bytes, found 3") == 0, "state", attnc_session_error(session));
    CHECK(attnc_session_set_state(session, 0, 0, 4) == ATTNC_WRONG_CALL, "state", "from nowhere");
    CHECK(attnc_session_state(session, 1, &number, 4) == ATTNC_WRONG_CALL, "state", "one too many");
    CHECK(attnc_session_state(0, 0, &number, 4) == ATTNC_WRONG_CALL, "state", "of no session");

    /* DLPack: every second number of a wide array, into every second. */
    for (i = 0; i < 16; i++) {
        wide[i] = (float)(i / 2);
    }
    shape[0] = 2;
    shape[1] = 4;
    strides[0] = 8;
    strides[1] = 2;
    in = tensor(wide, 2, shape, kDLFloat, 32);
    in.strides = strides;
    out = in;
    CHECK(toy_scale_dlpack(session, &in, &out) == ATTNC_OK, "strides", attnc_session_error(session));
    for (i = 0; i < 8; i++) {
        CHECK(wide[2 * i] == (float)i * (float)(i % 4) + 600 + 3 * (float)(i % 4), "strides", "a wrong number");
        CHECK(wide[2 * i + 1] == (float)i, "strides", "a number in between has changed");
    }

    in_list[0] = &in;
    out_list[0] = &out;
    CHECK(attnc_result_shape(session, TOY_SCALE, 1, in_list, 0, found, 4, &ndim) == ATTNC_OK, "shape", attnc_session_error(session));
    CHECK(ndim == 2 && found[0] == 2 && found[1] == 4, "shape", "wrong");
    CHECK(attnc_call_owned(session, TOY_SCALE, 1, in_list, 1, owned) == ATTNC_OK, "owned", attnc_session_error(session));
    CHECK(owned[0]->dl_tensor.ndim == 2 && owned[0]->dl_tensor.shape[1] == 4, "owned", "a wrong shape");
    patterns[0] = "h.2.*";
    CHECK(attnc_call_taps(session, TOY_SCALE, 1, in_list, 1, out_list, 1, patterns, &taps) == ATTNC_OK, "taps", attnc_session_error(session));
    CHECK(attnc_taps_count(taps) == 1 && strcmp(attnc_taps_name(taps, 0), "h.2.partial") == 0, "taps", "wrong");
    tap = attnc_taps_tensor(taps, 0);
    CHECK(tap->shape[1] == 4 && memcmp(tap->data, owned[0]->dl_tensor.data, 8 * sizeof(float)) == 0, "taps", "a wrong number");
    CHECK(attnc_taps_name(taps, 1) == 0 && attnc_taps_tensor(taps, 1) == 0, "taps", "one too many");
    attnc_taps_close(taps);
    attnc_session_close(session);
    /* A result outlives its session. */
    CHECK(((float *)owned[0]->dl_tensor.data)[0] == wide[0], "owned", "gone");
    owned[0]->deleter(owned[0]);

    attnc_session_close(0);
    attnc_model_close(0);
    attnc_taps_close(0);
    printf("ok\n");
    return 0;
}
