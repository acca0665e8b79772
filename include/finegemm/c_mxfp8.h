/* The C ABI of MXFP8 as codes with scales for 128; finegemm/quantize.h has the rules. Layer public. */
#ifndef FINEGEMM_C_MXFP8_H
#define FINEGEMM_C_MXFP8_H

#include <finegemm/c_types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct finegemm_reencode_args {
    finegemm_stack codes, words, q, scales;
    finegemm_matrix changed; /* without a pointer: nothing is counted */
} finegemm_reencode_args;

typedef struct finegemm_reencode_options {
    uint32_t struct_size;
    int32_t pdl; /* 0 or 1; CUDA: as of finegemm_gemm_options */
    void* stream;
    finegemm_poll poll; /* may be null */
    void* poll_data;    /* handed to poll */
} finegemm_reencode_options;

/* `options`: or null. */
FINEGEMM_C_API int32_t finegemm_reencode(finegemm_context* context, const finegemm_reencode_args* args,
                                         const finegemm_reencode_options* options, finegemm_error* error);

#ifdef __cplusplus
}
#endif

#endif
