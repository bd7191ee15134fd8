#include <stdint.h>

/* DLPack's structs, unless its own header was included before. */
#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_

typedef enum {
    kDLCPU = 1,
    kDLCUDA = 2,
    kDLCUDAHost = 3,
    kDLCUDAManaged = 13
} DLDeviceType;

typedef struct {
    int32_t device_type;
    int32_t device_id;
} DLDevice;

typedef enum {
    kDLInt = 0,
    kDLUInt = 1,
    kDLFloat = 2,
    kDLBfloat = 4,
    kDLComplex = 5,
    kDLBool = 6
} DLDataTypeCode;

typedef struct {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
} DLDataType;

typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; null where contiguous */
    uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensor {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;

#endif /* DLPACK_DLPACK_H_ */

/* The runtime's functions, which are the same for every model. */
#ifndef ATTNC_RUNTIME_H
#define ATTNC_RUNTIME_H

#if defined(__cplusplus) || (defined(__STDC_VERSION__) && __STDC_VERSION__ >= 199901L)
#define ATTNC_INLINE static inline
#elif defined(__GNUC__)
#define ATTNC_INLINE static __inline__
#else
#define ATTNC_INLINE static
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The weights, read-only once open: any number of threads may use a model at once. */
typedef struct attnc_model attnc_model;
/*
 * The memory of calls: one call at a time; a second call waits. Sessions of one model may be used concurrently. Two cases that
 * would deadlock are errors (ATTNC_WRONG_CALL): using a session on a thread that is in a call of it (in poll, or in a signal
 * handler), and in a forked process, if another thread was in a call at the fork.
 */
typedef struct attnc_session attnc_session;
/* The taps of a call. */
typedef struct attnc_taps attnc_taps;

/*
 * A library does not export these functions directly: a program linked with two models would call the first one's for
 * both. It exports a table of functions under a unique name, and every handle points to the table of its library. The
 * inline functions below go through that table, so they work in the same way for every model.
 */
typedef struct attnc_functions attnc_functions;

/* Status codes. The handle has the message. */
enum {
    ATTNC_OK = 0,
    ATTNC_WRONG_CALL = 1,      /* a null pointer, a wrong count, no such entry point or tap */
    ATTNC_WRONG_TENSOR = 2,    /* device, type, shape or strides do not match */
    ATTNC_WRONG_WEIGHTS = 3,   /* a weights file that is invalid or does not match */
    ATTNC_WRONG_FILE = 4,      /* a file that cannot be read */
    ATTNC_NO_MEMORY = 5,
    ATTNC_OUT_OF_RANGE = 6,    /* an index out of range at run time */
    ATTNC_WRONG_PROCESSOR = 7, /* this processor cannot run the model */
    ATTNC_INTERNAL = 8,        /* a bug in attnc */
    ATTNC_INTERRUPTED = 9,     /* requested by the function of attnc_session_poll */
    ATTNC_NO_DEVICE = 10,      /* no GPU, no driver, or no support for the code */
    ATTNC_GPU_FAILED = 11,     /* a launch or a copy on the GPU failed, or the GPU's context is broken */
    ATTNC_STATES_LOST = 12     /* an earlier call failed while it changed the session's states: reset the session */
};

/* The table, in an order that belongs to its version. */
struct attnc_functions {
    uint64_t abi_version;
    const char *(*status_text)(int32_t status);
    const char *(*info)(void);
    const char *(*model_name)(void);
    const char *(*target)(void);
    uint64_t (*variant_count)(void);
    const char *(*variant_name)(uint64_t variant);
    uint64_t (*entry_count)(void);
    int64_t (*entry_index)(const char *name);
    const char *(*entry_name)(uint64_t entry);
    const char *(*entry_signature)(uint64_t entry);
    const char *(*entry_doc)(uint64_t entry);
    uint64_t (*dimension_count)(uint64_t entry);
    const char *(*dimension_name)(uint64_t entry, uint64_t dimension);
    uint64_t (*argument_count)(uint64_t entry);
    const char *(*argument_name)(uint64_t entry, uint64_t argument);
    const char *(*argument_type)(uint64_t entry, uint64_t argument);
    uint64_t (*result_count)(uint64_t entry);
    const char *(*result_type)(uint64_t entry, uint64_t result);
    uint64_t (*tap_count)(uint64_t entry);
    const char *(*tap_name)(uint64_t entry, uint64_t tap);
    const char *(*tap_cost)(uint64_t entry, uint64_t tap);
    uint64_t (*parameter_count)(void);
    const char *(*parameter_name)(uint64_t parameter);
    int32_t (*model_open)(const char *weights, int32_t threads, attnc_model **model);
    void (*model_close)(attnc_model *model);
    const char *(*model_error)(const attnc_model *model);
    uint64_t (*model_copy_error)(const attnc_model *model, char *buffer, uint64_t capacity);
    const char *(*model_variant)(const attnc_model *model);
    uint64_t (*unused_weight_count)(const attnc_model *model);
    const char *(*unused_weight)(const attnc_model *model, uint64_t index);
    uint64_t (*converted_weight_count)(const attnc_model *model);
    const char *(*converted_weight)(const attnc_model *model, uint64_t index);
    int32_t (*session_open)(const attnc_model *model, attnc_session **session);
    void (*session_close)(attnc_session *session);
    int32_t (*session_reset)(attnc_session *session);
    const char *(*session_error)(const attnc_session *session);
    uint64_t (*session_copy_error)(const attnc_session *session, char *buffer, uint64_t capacity);
    int32_t (*session_poll)(attnc_session *session, int32_t (*poll)(void *context), void *context);
    int32_t (*session_profile)(attnc_session *session, int32_t on);
    uint64_t (*launch_count)(const attnc_session *session);
    int64_t (*launch_nanoseconds)(const attnc_session *session, uint64_t index);
    int64_t (*launch_points)(const attnc_session *session, uint64_t index);
    int32_t (*result_shape)(attnc_session *session, uint64_t entry, uint64_t arg_count, DLTensor *const *args,
                            uint64_t result, int64_t *shape, uint64_t capacity, int32_t *ndim);
    int32_t (*call)(attnc_session *session, uint64_t entry, uint64_t arg_count, DLTensor *const *args,
                    uint64_t result_count, DLTensor *const *results);
    int32_t (*call_owned)(attnc_session *session, uint64_t entry, uint64_t arg_count, DLTensor *const *args,
                          uint64_t result_count, DLManagedTensor **results);
    int32_t (*call_taps)(attnc_session *session, uint64_t entry, uint64_t arg_count, DLTensor *const *args,
                         uint64_t result_count, DLTensor *const *results, uint64_t pattern_count,
                         const char *const *patterns, attnc_taps **taps);
    uint64_t (*taps_count)(const attnc_taps *taps);
    const char *(*taps_name)(const attnc_taps *taps, uint64_t index);
    const DLTensor *(*taps_tensor)(const attnc_taps *taps, uint64_t index);
    int64_t (*taps_written)(const attnc_taps *taps, uint64_t index);
    void (*taps_close)(attnc_taps *taps);
    int32_t (*result_shape_raw)(attnc_session *session, uint64_t entry, uint64_t dim_count, const int64_t *dims,
                                uint64_t result, int64_t *shape, uint64_t capacity, int32_t *ndim);
    int32_t (*call_raw)(attnc_session *session, uint64_t entry, uint64_t dim_count, const int64_t *dims,
                        uint64_t arg_count, const void *const *args, uint64_t result_count, void *const *results);
    int32_t (*python_call)(attnc_session *session, uint64_t entry, uint64_t arg_count, DLTensor *const *args,
                           uint64_t result_count, DLTensor *const *results, uint64_t pattern_count,
                           const char *const *patterns, attnc_taps **taps);
    int32_t (*model_open_on)(const char *device, const char *weights, int32_t threads, attnc_model **model);
    const char *(*model_device)(const attnc_model *model);
    const char *(*model_device_note)(const attnc_model *model);
    void *(*session_stream)(attnc_session *session);
    int32_t (*session_use_stream)(attnc_session *session, void *stream, int32_t own);
    int32_t (*call_on_device)(attnc_session *session, uint64_t entry, uint64_t arg_count, DLTensor *const *args,
                              uint64_t result_count, DLManagedTensor **results);
    int32_t (*copy_to_host)(attnc_session *session, const DLTensor *tensor, void *to);
    void *(*python_capsule)(DLManagedTensor *tensor);
    uint64_t (*state_count)(void);
    int64_t (*state_index)(const char *name);
    const char *(*state_name)(uint64_t state);
    const char *(*state_type)(uint64_t state);
    int32_t (*state_shape)(uint64_t state, int64_t *shape, uint64_t capacity, int32_t *ndim);
    int32_t (*session_state)(attnc_session *session, uint64_t state, void *to, uint64_t bytes);
    int32_t (*session_set_state)(attnc_session *session, uint64_t state, const void *from, uint64_t bytes);
};

/* The header of every handle: a mark while the handle is open, and the model it belongs to. */
typedef struct {
    uint64_t mark;
    const attnc_functions *functions;
    uint64_t model;
} attnc_head;

#define ATTNC_U64(high, low) (((uint64_t)(high) << 32) | (uint64_t)(low))
#define ATTNC_MODEL_MARK ATTNC_U64(0x6174746eu, 0x6d6f6431u)
#define ATTNC_SESSION_MARK ATTNC_U64(0x6174746eu, 0x73657331u)
#define ATTNC_TAPS_MARK ATTNC_U64(0x6174746eu, 0x74617031u)

ATTNC_INLINE const attnc_functions *attnc_functions_of(const void *handle, uint64_t mark)
{
    const attnc_head *head = (const attnc_head *)handle;
    return head && head->mark == mark ? head->functions : 0;
}

/* The entry point of a typed function if the session belongs to its model; else an invalid one, which makes the call fail. */
ATTNC_INLINE uint64_t attnc_entry_of(const attnc_session *session, uint64_t model, uint64_t entry)
{
    const attnc_head *head = (const attnc_head *)(const void *)session;
    return head && head->model == model ? entry : ATTNC_U64(0xffffffffu, 0xffffffffu);
}

/*
 * These use the library of the one model whose header is included. If there are several, use the table of each,
 * NAME_library()->info(), and open it with NAME_model_open().
 */
/* A short description of a status. */
#define attnc_status_text(status) (ATTNC_ANY_LIBRARY->status_text((status)))
/* Contents of the library; null, 0 or -1 for what does not exist. */
#define attnc_info() (ATTNC_LIBRARY->info())
#define attnc_model_name() (ATTNC_LIBRARY->model_name())
#define attnc_target() (ATTNC_LIBRARY->target())
#define attnc_variant_count() (ATTNC_LIBRARY->variant_count())
#define attnc_variant_name(variant) (ATTNC_LIBRARY->variant_name((variant)))
#define attnc_entry_count() (ATTNC_LIBRARY->entry_count())
#define attnc_entry_index(name) (ATTNC_LIBRARY->entry_index((name)))
#define attnc_entry_name(entry) (ATTNC_LIBRARY->entry_name((entry)))
#define attnc_entry_signature(entry) (ATTNC_LIBRARY->entry_signature((entry)))
#define attnc_entry_doc(entry) (ATTNC_LIBRARY->entry_doc((entry)))
#define attnc_dimension_count(entry) (ATTNC_LIBRARY->dimension_count((entry)))
#define attnc_dimension_name(entry, dimension) (ATTNC_LIBRARY->dimension_name((entry), (dimension)))
#define attnc_argument_count(entry) (ATTNC_LIBRARY->argument_count((entry)))
#define attnc_argument_name(entry, argument) (ATTNC_LIBRARY->argument_name((entry), (argument)))
#define attnc_argument_type(entry, argument) (ATTNC_LIBRARY->argument_type((entry), (argument)))
#define attnc_result_count(entry) (ATTNC_LIBRARY->result_count((entry)))
#define attnc_result_type(entry, result) (ATTNC_LIBRARY->result_type((entry), (result)))
#define attnc_tap_count(entry) (ATTNC_LIBRARY->tap_count((entry)))
#define attnc_tap_name(entry, tap) (ATTNC_LIBRARY->tap_name((entry), (tap)))
#define attnc_tap_cost(entry, tap) (ATTNC_LIBRARY->tap_cost((entry), (tap)))
#define attnc_parameter_count() (ATTNC_LIBRARY->parameter_count())
#define attnc_parameter_name(parameter) (ATTNC_LIBRARY->parameter_name((parameter)))
#define attnc_state_count() (ATTNC_LIBRARY->state_count())
#define attnc_state_index(name) (ATTNC_LIBRARY->state_index((name)))
#define attnc_state_name(state) (ATTNC_LIBRARY->state_name((state)))
#define attnc_state_type(state) (ATTNC_LIBRARY->state_type((state)))
/* Writes up to capacity extents, and to *ndim how many there are. */
#define attnc_state_shape(state, shape, capacity, ndim) (ATTNC_LIBRARY->state_shape((state), (shape), (capacity), (ndim)))
/*
 * Opens the model with a safetensors file (null for a model without weights); threads 0 means ATTNC_THREADS in the
 * environment, else one per core. The environment variable ATTNC_CPU (portable, avx2, avx2vnni, avx512, avx512bf16, amx)
 * caps the instruction set; the best one that the processor supports is used. amx is skipped if the system does not grant
 * its tiles, avx512bf16 on Intel processors unless ATTNC_CPU names it.
 * *model becomes a handle even on failure, for attnc_model_error; close it either way.
 * The file is memory-mapped: while the model is open, it must not be modified or truncated (reading past the new end raises
 * SIGBUS). Writing a new file and renaming it to the old name is fine.
 */
#define attnc_model_open(weights, threads, model) (ATTNC_LIBRARY->model_open((weights), (threads), (model)))
/*
 * The same on a device: "cpu", "cuda", "cuda:N", or "auto", which is a GPU if it can be used and else the CPU (then
 * attnc_model_device_note has the reason). Null: the value of ATTNC_DEVICE in the environment, else "cuda" if the library has
 * code for GPUs, else "cpu". The driver is libcuda.so.1, or the file that ATTNC_CUDA_LIB names.
 * On a GPU, arguments and results may be in GPU memory (kDLCUDA) or in CPU memory. Tensors in CPU memory are copied; tensors in
 * GPU memory are copied on the GPU if they are strided or not aligned to 16 bytes. Arguments in GPU memory must be complete when
 * a call begins, or be computed by work that is queued on the session's stream.
 * If ATTNC_SYNC is 1, calls wait after each launch, so that an error names the kernel. If ATTNC_CUDA_GRAPHS is 0, recurring
 * launches do not become CUDA graphs.
 */
#define attnc_model_open_on(device, weights, threads, model) (ATTNC_LIBRARY->model_open_on((device), (weights), (threads), (model)))
#define attnc_abi_version() (ATTNC_LIBRARY->abi_version)

/*
 * Null is ignored. The memory is freed when the model's sessions are closed too. A loaded library stays in memory (dlclose
 * does not unload it), so the threads of a model that is still open keep their code.
 */
ATTNC_INLINE void attnc_model_close(attnc_model *model)
{
    const attnc_functions *f = attnc_functions_of(model, ATTNC_MODEL_MARK);
    if (f) {
        f->model_close(model);
    }
}

/* The message of the last error; valid until the next. */
ATTNC_INLINE const char *attnc_model_error(const attnc_model *model)
{
    const attnc_functions *f = attnc_functions_of(model, ATTNC_MODEL_MARK);
    return f ? f->model_error(model) : "not a model handle";
}

/* A copy of it, which other threads cannot change: returns the full length, writes at most capacity bytes. */
ATTNC_INLINE uint64_t attnc_model_copy_error(const attnc_model *model, char *buffer, uint64_t capacity)
{
    const attnc_functions *f = attnc_functions_of(model, ATTNC_MODEL_MARK);
    return f ? f->model_copy_error(model, buffer, capacity) : 0;
}

ATTNC_INLINE const char *attnc_model_variant(const attnc_model *model)
{
    const attnc_functions *f = attnc_functions_of(model, ATTNC_MODEL_MARK);
    return f ? f->model_variant(model) : 0;
}

/* "cpu" or "cuda:0"; null if the model did not open. */
ATTNC_INLINE const char *attnc_model_device(const attnc_model *model)
{
    const attnc_functions *f = attnc_functions_of(model, ATTNC_MODEL_MARK);
    return f ? f->model_device(model) : 0;
}

/* Why a model opened on "auto" runs on the CPU although the library has code for GPUs; otherwise empty. */
ATTNC_INLINE const char *attnc_model_device_note(const attnc_model *model)
{
    const attnc_functions *f = attnc_functions_of(model, ATTNC_MODEL_MARK);
    return f ? f->model_device_note(model) : 0;
}

ATTNC_INLINE uint64_t attnc_unused_weight_count(const attnc_model *model)
{
    const attnc_functions *f = attnc_functions_of(model, ATTNC_MODEL_MARK);
    return f ? f->unused_weight_count(model) : 0;
}

ATTNC_INLINE const char *attnc_unused_weight(const attnc_model *model, uint64_t index)
{
    const attnc_functions *f = attnc_functions_of(model, ATTNC_MODEL_MARK);
    return f ? f->unused_weight(model, index) : 0;
}

/*
 * Tensors that are bf16 or f16 in the weights file and f32 in the model. They were converted when the model was opened,
 * which is exact but takes memory: f32 tensors are mapped instead.
 */
ATTNC_INLINE uint64_t attnc_converted_weight_count(const attnc_model *model)
{
    const attnc_functions *f = attnc_functions_of(model, ATTNC_MODEL_MARK);
    return f ? f->converted_weight_count(model) : 0;
}

ATTNC_INLINE const char *attnc_converted_weight(const attnc_model *model, uint64_t index)
{
    const attnc_functions *f = attnc_functions_of(model, ATTNC_MODEL_MARK);
    return f ? f->converted_weight(model, index) : 0;
}

/* Allocates and zeroes the states, on the device that the model runs on. On failure, the model has the message. */
ATTNC_INLINE int32_t attnc_session_open(const attnc_model *model, attnc_session **session)
{
    const attnc_functions *f = attnc_functions_of(model, ATTNC_MODEL_MARK);
    return f ? f->session_open(model, session) : ATTNC_WRONG_CALL;
}

ATTNC_INLINE void attnc_session_close(attnc_session *session)
{
    const attnc_functions *f = attnc_functions_of(session, ATTNC_SESSION_MARK);
    if (f) {
        f->session_close(session);
    }
}

/*
 * Zeroes the states.
 *
 * A call that is rejected because of its arguments changes nothing. A call that fails later (an index or a length that is out of
 * range, ATTNC_INTERRUPTED, ATTNC_GPU_FAILED, no memory) leaves the contents of its results undefined. If its entry point sets
 * states, they are lost: every further call of the session fails with ATTNC_STATES_LOST until this function is called.
 */
ATTNC_INLINE int32_t attnc_session_reset(attnc_session *session)
{
    const attnc_functions *f = attnc_functions_of(session, ATTNC_SESSION_MARK);
    return f ? f->session_reset(session) : ATTNC_WRONG_CALL;
}

/*
 * Copies the elements of a state, in row-major order, to CPU memory; bytes is their size, which must be exact. A parameter that
 * is trained is a state, stacked along its arrays of layers ("h.*.weight"), and so are the states of its rule ("h.*.weight.AdamW.m").
 */
ATTNC_INLINE int32_t attnc_session_state(attnc_session *session, uint64_t state, void *to, uint64_t bytes)
{
    const attnc_functions *f = attnc_functions_of(session, ATTNC_SESSION_MARK);
    return f ? f->session_state(session, state, to, bytes) : ATTNC_WRONG_CALL;
}

/* Sets the elements of a state from CPU memory. */
ATTNC_INLINE int32_t attnc_session_set_state(attnc_session *session, uint64_t state, const void *from, uint64_t bytes)
{
    const attnc_functions *f = attnc_functions_of(session, ATTNC_SESSION_MARK);
    return f ? f->session_set_state(session, state, from, bytes) : ATTNC_WRONG_CALL;
}

ATTNC_INLINE const char *attnc_session_error(const attnc_session *session)
{
    const attnc_functions *f = attnc_functions_of(session, ATTNC_SESSION_MARK);
    return f ? f->session_error(session) : "not a session handle";
}

ATTNC_INLINE uint64_t attnc_session_copy_error(const attnc_session *session, char *buffer, uint64_t capacity)
{
    const attnc_functions *f = attnc_functions_of(session, ATTNC_SESSION_MARK);
    return f ? f->session_copy_error(session, buffer, capacity) : 0;
}

/*
 * Makes calls of the session interruptible: between kernel launches they call poll, on the thread of the call, at most once
 * every 50 ms. If it returns other than 0, the call ends with ATTNC_INTERRUPTED, and the contents of its results are
 * undefined. poll cannot call functions of the session. Null: calls are not interruptible.
 */
ATTNC_INLINE int32_t attnc_session_poll(attnc_session *session, int32_t (*poll)(void *context), void *context)
{
    const attnc_functions *f = attnc_functions_of(session, ATTNC_SESSION_MARK);
    return f ? f->session_poll(session, poll, context) : ATTNC_WRONG_CALL;
}

/* The stream (CUstream) of the session's calls; null on a CPU. */
ATTNC_INLINE void *attnc_session_stream(attnc_session *session)
{
    const attnc_functions *f = attnc_functions_of(session, ATTNC_SESSION_MARK);
    return f ? f->session_stream(session) : 0;
}

/*
 * Makes calls use the caller's stream, so that they start after the work queued there; if own is not 0, the session's own stream
 * again. A call returns when its results are complete, whatever the stream, and leaves nothing queued: the stream may be destroyed
 * before another one is set, but must exist during each call. It must not be capturing.
 */
ATTNC_INLINE int32_t attnc_session_use_stream(attnc_session *session, void *stream, int32_t own)
{
    const attnc_functions *f = attnc_functions_of(session, ATTNC_SESSION_MARK);
    return f ? f->session_use_stream(session, stream, own) : ATTNC_WRONG_CALL;
}

/* Switches the timing of kernel launches on or off, from the next call on. The functions below return the launches of the last call, in order. */
ATTNC_INLINE int32_t attnc_session_profile(attnc_session *session, int32_t on)
{
    const attnc_functions *f = attnc_functions_of(session, ATTNC_SESSION_MARK);
    return f ? f->session_profile(session, on) : ATTNC_WRONG_CALL;
}

ATTNC_INLINE uint64_t attnc_launch_count(const attnc_session *session)
{
    const attnc_functions *f = attnc_functions_of(session, ATTNC_SESSION_MARK);
    return f ? f->launch_count(session) : 0;
}

ATTNC_INLINE int64_t attnc_launch_nanoseconds(const attnc_session *session, uint64_t index)
{
    const attnc_functions *f = attnc_functions_of(session, ATTNC_SESSION_MARK);
    return f ? f->launch_nanoseconds(session, index) : -1;
}

ATTNC_INLINE int64_t attnc_launch_points(const attnc_session *session, uint64_t index)
{
    const attnc_functions *f = attnc_functions_of(session, ATTNC_SESSION_MARK);
    return f ? f->launch_points(session, index) : -1;
}

/* The shape that a result will have; only the shapes and types of the arguments are used. */
ATTNC_INLINE int32_t attnc_result_shape(attnc_session *session, uint64_t entry, uint64_t arg_count, DLTensor *const *args,
                                        uint64_t result, int64_t *shape, uint64_t capacity, int32_t *ndim)
{
    const attnc_functions *f = attnc_functions_of(session, ATTNC_SESSION_MARK);
    return f ? f->result_shape(session, entry, arg_count, args, result, shape, capacity, ndim) : ATTNC_WRONG_CALL;
}

/* Calls an entry point; the results are written to the caller's tensors, of any strides. */
ATTNC_INLINE int32_t attnc_call(attnc_session *session, uint64_t entry, uint64_t arg_count, DLTensor *const *args,
                                uint64_t result_count, DLTensor *const *results)
{
    const attnc_functions *f = attnc_functions_of(session, ATTNC_SESSION_MARK);
    return f ? f->call(session, entry, arg_count, args, result_count, results) : ATTNC_WRONG_CALL;
}

/* The same; the runtime allocates the results, each with a deleter. */
ATTNC_INLINE int32_t attnc_call_owned(attnc_session *session, uint64_t entry, uint64_t arg_count, DLTensor *const *args,
                                      uint64_t result_count, DLManagedTensor **results)
{
    const attnc_functions *f = attnc_functions_of(session, ATTNC_SESSION_MARK);
    return f ? f->call_owned(session, entry, arg_count, args, result_count, results) : ATTNC_WRONG_CALL;
}

/* The same; the results are in the memory of the device that the model runs on. */
ATTNC_INLINE int32_t attnc_call_on_device(attnc_session *session, uint64_t entry, uint64_t arg_count, DLTensor *const *args,
                                          uint64_t result_count, DLManagedTensor **results)
{
    const attnc_functions *f = attnc_functions_of(session, ATTNC_SESSION_MARK);
    return f ? f->call_on_device(session, entry, arg_count, args, result_count, results) : ATTNC_WRONG_CALL;
}

/* Copies a contiguous tensor from GPU memory; `to` must be large enough. */
ATTNC_INLINE int32_t attnc_copy_to_host(attnc_session *session, const DLTensor *tensor, void *to)
{
    const attnc_functions *f = attnc_functions_of(session, ATTNC_SESSION_MARK);
    return f ? f->copy_to_host(session, tensor, to) : ATTNC_WRONG_CALL;
}

/*
 * attnc_call that also returns the taps whose paths match a pattern (* matches any string, ? any character). The extra work is
 * done only for taps that match.
 */
ATTNC_INLINE int32_t attnc_call_taps(attnc_session *session, uint64_t entry, uint64_t arg_count, DLTensor *const *args,
                                     uint64_t result_count, DLTensor *const *results, uint64_t pattern_count,
                                     const char *const *patterns, attnc_taps **taps)
{
    const attnc_functions *f = attnc_functions_of(session, ATTNC_SESSION_MARK);
    return f ? f->call_taps(session, entry, arg_count, args, result_count, results, pattern_count, patterns, taps) : ATTNC_WRONG_CALL;
}

ATTNC_INLINE uint64_t attnc_taps_count(const attnc_taps *taps)
{
    const attnc_functions *f = attnc_functions_of(taps, ATTNC_TAPS_MARK);
    return f ? f->taps_count(taps) : 0;
}

ATTNC_INLINE const char *attnc_taps_name(const attnc_taps *taps, uint64_t index)
{
    const attnc_functions *f = attnc_functions_of(taps, ATTNC_TAPS_MARK);
    return f ? f->taps_name(taps, index) : 0;
}

ATTNC_INLINE const DLTensor *attnc_taps_tensor(const attnc_taps *taps, uint64_t index)
{
    const attnc_functions *f = attnc_functions_of(taps, ATTNC_TAPS_MARK);
    return f ? f->taps_tensor(taps, index) : 0;
}

/*
 * The number of iterations that wrote the tap: 0 if the call did not reach it (a branch that was not taken); at most 1, or for
 * a tap in a loop over time, the number of iterations. Elements that were not written are zeros. -1 if there is no such tap.
 */
ATTNC_INLINE int64_t attnc_taps_written(const attnc_taps *taps, uint64_t index)
{
    const attnc_functions *f = attnc_functions_of(taps, ATTNC_TAPS_MARK);
    return f ? f->taps_written(taps, index) : -1;
}

ATTNC_INLINE void attnc_taps_close(attnc_taps *taps)
{
    const attnc_functions *f = attnc_functions_of(taps, ATTNC_TAPS_MARK);
    if (f) {
        f->taps_close(taps);
    }
}

/* For contiguous tensors, whose shapes follow from the values of the entry point's dimensions (attnc_dimension_name). */
ATTNC_INLINE int32_t attnc_result_shape_raw(attnc_session *session, uint64_t entry, uint64_t dim_count, const int64_t *dims,
                                            uint64_t result, int64_t *shape, uint64_t capacity, int32_t *ndim)
{
    const attnc_functions *f = attnc_functions_of(session, ATTNC_SESSION_MARK);
    return f ? f->result_shape_raw(session, entry, dim_count, dims, result, shape, capacity, ndim) : ATTNC_WRONG_CALL;
}

ATTNC_INLINE int32_t attnc_call_raw(attnc_session *session, uint64_t entry, uint64_t dim_count, const int64_t *dims,
                                    uint64_t arg_count, const void *const *args, uint64_t result_count, void *const *results)
{
    const attnc_functions *f = attnc_functions_of(session, ATTNC_SESSION_MARK);
    return f ? f->call_raw(session, entry, dim_count, dims, arg_count, args, result_count, results) : ATTNC_WRONG_CALL;
}

#ifdef __cplusplus
}

#endif

#endif /* ATTNC_RUNTIME_H */
