/* The C ABI of FineGEMM: plain C99, no state but the context's, no exception crosses it. Layer public.
 *
 * Every function that can fail returns a finegemm_code and, where `error` is not null, writes the reason there. */
#ifndef FINEGEMM_C_API_H
#define FINEGEMM_C_API_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FINEGEMM_C_API __attribute__((visibility("default")))

typedef enum finegemm_code {
    FINEGEMM_OK = 0,
    FINEGEMM_INVALID_ARGUMENT = 1,
    FINEGEMM_UNSUPPORTED = 2,
    FINEGEMM_DRIVER = 3,
    FINEGEMM_COMPILE = 4,
    FINEGEMM_IO = 5,
    FINEGEMM_OUT_OF_MEMORY = 6,
    FINEGEMM_INTERNAL = 7
} finegemm_code;

enum { FINEGEMM_E4M3 = 1, FINEGEMM_BF16 = 2, FINEGEMM_F16 = 3, FINEGEMM_F32 = 4 };
enum { FINEGEMM_CPU = 1, FINEGEMM_CUDA = 2 };
enum { FINEGEMM_NUMERICS_FAST = 0, FINEGEMM_NUMERICS_EXACT = 1, FINEGEMM_NUMERICS_HOPPER = 2 };

/* Owned by the caller; the message is cut to fit and ends with a zero. */
typedef struct finegemm_error {
    int32_t code;
    char message[2044];
} finegemm_error;

/* A view of a matrix; strides count elements, the memory is borrowed for the call. */
typedef struct finegemm_matrix {
    void* data;
    int32_t dtype;
    int32_t device_type;
    int32_t device_index;
    int32_t reserved; /* 0 */
    int64_t rows, cols;
    int64_t row_stride, col_stride;
} finegemm_matrix;

/* d[m, n] = sum over k of (a[m, k] * sfa[m, k / 128]) * (b[n, k] * sfb[n / 128, k / 128]); finegemm/gemm.h has the rules. */
typedef struct finegemm_gemm_args {
    finegemm_matrix a, sfa, b, sfb, d;
} finegemm_gemm_args;

/* All zero, but for check_values, is a good default. */
typedef struct finegemm_gemm_options {
    void* stream;         /* CUstream or cudaStream_t; ignored on the CPU */
    int32_t numerics;     /* CPU only */
    int32_t check_values; /* 0 or 1; -1: as the context has it */
    const char* config;   /* a kernel by name; null: the planner's choice */
} finegemm_gemm_options;

typedef struct finegemm_quantize_options {
    void* stream;
    int32_t power_of_two_scales;
    int32_t reserved; /* 0 */
} finegemm_quantize_options;

typedef struct finegemm_context finegemm_context;

/* "0.1.0" */
FINEGEMM_C_API const char* finegemm_version(void);

/* `options`: a null-terminated list of "FINEGEMM_NAME=value" that goes before the environment, or null. */
FINEGEMM_C_API int32_t finegemm_context_create(const char* const* options, finegemm_context** context, finegemm_error* error);
/* Calls that use it must have returned. Null is allowed. */
FINEGEMM_C_API void finegemm_context_destroy(finegemm_context* context);

/* `options` may be null. On CUDA the work is queued on the stream and the call does not wait for it. */
FINEGEMM_C_API int32_t finegemm_gemm(finegemm_context* context, const finegemm_gemm_args* args, const finegemm_gemm_options* options,
                                     finegemm_error* error);
/* Scales for each row and 128 columns of x; finegemm/quantize.h has the rules. `options` may be null. */
FINEGEMM_C_API int32_t finegemm_quantize_rows(finegemm_context* context, const finegemm_matrix* x, const finegemm_matrix* q,
                                              const finegemm_matrix* scales, const finegemm_quantize_options* options,
                                              finegemm_error* error);
/* Scales for each 128x128 block of x. */
FINEGEMM_C_API int32_t finegemm_quantize_blocks(finegemm_context* context, const finegemm_matrix* x, const finegemm_matrix* q,
                                                const finegemm_matrix* scales, const finegemm_quantize_options* options,
                                                finegemm_error* error);

/* JSON: which kernel a shape takes and why. Writes at most `capacity` bytes, the last a zero, and to `needed` (may be null) how
 * many the whole takes. `device` may be null: h200. */
FINEGEMM_C_API int32_t finegemm_explain(int64_t m, int64_t n, int64_t k, const char* device, char* buffer, size_t capacity,
                                        size_t* needed, finegemm_error* error);

#ifdef __cplusplus
}
#endif
#endif
