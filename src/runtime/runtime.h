#include <stdint.h>

/* DLPack's structs, unless its own header was included before. */
#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_

typedef enum {
    kDLCPU = 1
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

/* The weights, read only once open: any number of threads may use a model at once. */
typedef struct attnc_model attnc_model;
/* The memory of calls: one call at a time; a second waits. Sessions of one model may be used at once. */
typedef struct attnc_session attnc_session;
/* The taps of a call. */
typedef struct attnc_taps attnc_taps;

/* What functions return. The handle has the text. */
enum {
    ATTNC_OK = 0,
    ATTNC_WRONG_CALL = 1,      /* a null pointer, a wrong count, no such entry point or tap */
    ATTNC_WRONG_TENSOR = 2,    /* device, type, shape or strides do not fit */
    ATTNC_WRONG_WEIGHTS = 3,   /* a weights file that is broken or does not fit */
    ATTNC_WRONG_FILE = 4,      /* a file that cannot be read */
    ATTNC_NO_MEMORY = 5,
    ATTNC_OUT_OF_RANGE = 6,    /* an index, found while running */
    ATTNC_WRONG_PROCESSOR = 7, /* this processor cannot run the model */
    ATTNC_INTERNAL = 8         /* a bug in attnc */
};

const char *attnc_status_text(int32_t status);

/* What the library holds; null, 0 or -1 for what is not there. */
uint64_t attnc_abi_version(void);
const char *attnc_info(void);
const char *attnc_model_name(void);
const char *attnc_target(void);
uint64_t attnc_variant_count(void);
const char *attnc_variant_name(uint64_t variant);
uint64_t attnc_entry_count(void);
int64_t attnc_entry_index(const char *name);
const char *attnc_entry_name(uint64_t entry);
const char *attnc_entry_signature(uint64_t entry);
const char *attnc_entry_doc(uint64_t entry);
uint64_t attnc_dimension_count(uint64_t entry);
const char *attnc_dimension_name(uint64_t entry, uint64_t dimension);
uint64_t attnc_argument_count(uint64_t entry);
const char *attnc_argument_name(uint64_t entry, uint64_t argument);
const char *attnc_argument_type(uint64_t entry, uint64_t argument);
uint64_t attnc_result_count(uint64_t entry);
const char *attnc_result_type(uint64_t entry, uint64_t result);
uint64_t attnc_tap_count(uint64_t entry);
const char *attnc_tap_name(uint64_t entry, uint64_t tap);
const char *attnc_tap_cost(uint64_t entry, uint64_t tap);
uint64_t attnc_parameter_count(void);
const char *attnc_parameter_name(uint64_t parameter);

/*
 * Opens the model with a safetensors file (null for a model without weights); threads 0 is what ATTNC_THREADS in
 * the environment says, else one for each core. ATTNC_CPU there (portable, avx2, avx2vnni, avx512, avx512bf16, amx) is the best level
 * of processors whose code may run; of those, the best that this processor has does. amx is passed over where the system
 * refuses its tiles, avx512bf16 on Intel's processors unless ATTNC_CPU names just it.
 * *model becomes a handle even where this fails, for attnc_model_error; close it either way.
 */
int32_t attnc_model_open(const char *weights, int32_t threads, attnc_model **model);
/* Null is ignored. The memory is freed when the model's sessions are closed too. */
void attnc_model_close(attnc_model *model);
/* Text of the last error; valid until the next. */
const char *attnc_model_error(const attnc_model *model);
/* The same as a copy, which other threads cannot change: returns the whole length, writes at most capacity bytes. */
uint64_t attnc_model_copy_error(const attnc_model *model, char *buffer, uint64_t capacity);
const char *attnc_model_variant(const attnc_model *model);
uint64_t attnc_unused_weight_count(const attnc_model *model);
const char *attnc_unused_weight(const attnc_model *model, uint64_t index);

/* Where this fails, the model has the text. */
int32_t attnc_session_open(const attnc_model *model, attnc_session **session);
void attnc_session_close(attnc_session *session);
/* Sets all states to zero; programs cannot declare any yet. */
int32_t attnc_session_reset(attnc_session *session);
const char *attnc_session_error(const attnc_session *session);
uint64_t attnc_session_copy_error(const attnc_session *session, char *buffer, uint64_t capacity);

/* Times the launches of kernels from the next call on (on is not 0), or no longer; then those of the last call, in order. */
int32_t attnc_session_profile(attnc_session *session, int32_t on);
uint64_t attnc_launch_count(const attnc_session *session);
int64_t attnc_launch_nanoseconds(const attnc_session *session, uint64_t index);
int64_t attnc_launch_points(const attnc_session *session, uint64_t index);

/* The shape that a result will have; only shapes and types of the arguments are looked at. */
int32_t attnc_result_shape(attnc_session *session, uint64_t entry, uint64_t arg_count, DLTensor *const *args,
                           uint64_t result, int64_t *shape, uint64_t capacity, int32_t *ndim);
/* Calls an entry point; the results are the caller's tensors, of any strides. */
int32_t attnc_call(attnc_session *session, uint64_t entry, uint64_t arg_count, DLTensor *const *args,
                   uint64_t result_count, DLTensor *const *results);
/* The same; the results are made by the runtime, each with a deleter, to be called before the library is unloaded. */
int32_t attnc_call_owned(attnc_session *session, uint64_t entry, uint64_t arg_count, DLTensor *const *args,
                         uint64_t result_count, DLManagedTensor **results);
/* attnc_call that also gives the taps whose paths match a pattern (* is any run of characters, ? any one). */
int32_t attnc_call_taps(attnc_session *session, uint64_t entry, uint64_t arg_count, DLTensor *const *args,
                        uint64_t result_count, DLTensor *const *results, uint64_t pattern_count,
                        const char *const *patterns, attnc_taps **taps);
uint64_t attnc_taps_count(const attnc_taps *taps);
const char *attnc_taps_name(const attnc_taps *taps, uint64_t index);
const DLTensor *attnc_taps_tensor(const attnc_taps *taps, uint64_t index);
void attnc_taps_close(attnc_taps *taps);

/* For contiguous memory, described by the values of the entry point's dimensions alone (attnc_dimension_name). */
int32_t attnc_result_shape_raw(attnc_session *session, uint64_t entry, uint64_t dim_count, const int64_t *dims,
                               uint64_t result, int64_t *shape, uint64_t capacity, int32_t *ndim);
int32_t attnc_call_raw(attnc_session *session, uint64_t entry, uint64_t dim_count, const int64_t *dims,
                       uint64_t arg_count, const void *const *args, uint64_t result_count, void *const *results);

#ifdef __cplusplus
}
#endif

#endif /* ATTNC_RUNTIME_H */
