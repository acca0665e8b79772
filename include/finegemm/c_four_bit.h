/* The C ABI of products with weights of 4 bits; finegemm/four_bit.h has the rules. Layer public. */
#ifndef FINEGEMM_C_FOUR_BIT_H
#define FINEGEMM_C_FOUR_BIT_H

#include <finegemm/c_types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { FINEGEMM_MXFP4 = 1, FINEGEMM_INT4 = 2 };

/* Weights of a checkpoint, on the host: two in each byte. */
typedef struct finegemm_four_bit_source {
    int32_t format;     /* FINEGEMM_MXFP4 or _INT4 */
    int32_t high_first; /* 0 or 1: the upper four bits of a byte are those of the even k */
    int32_t offset;     /* 0 or 1: codes of int4 are 8 above their values */
    int32_t reserved;   /* 0 */
    finegemm_matrix codes, scales;
} finegemm_four_bit_source;

/* Packed weights: matrices one behind the other. */
typedef struct finegemm_four_bit_weights {
    const void* data;
    int32_t format;
    int32_t device_type;
    int32_t device_index;
    int32_t reserved; /* 0 */
    int64_t groups, rows, cols;
} finegemm_four_bit_weights;

typedef struct finegemm_four_bit_args {
    finegemm_stack a, sfa;
    finegemm_four_bit_weights b;
    finegemm_stack d;
    finegemm_groups groups;         /* FINEGEMM_WHOLE: all rows of each matrix */
    finegemm_stack fp8, fp8_scales; /* b as finegemm_unpack_four_bit makes it; without pointers: none */
} finegemm_four_bit_args;

/* A call of it without its pointers. */
typedef struct finegemm_four_bit_shape {
    uint32_t struct_size;
    int32_t format;                /* FINEGEMM_MXFP4 or _INT4 */
    int64_t m, n, k;               /* m: of all groups together */
    int64_t groups;                /* of rows; 0: a dense product */
    int64_t expected_m, alignment; /* as of finegemm_shape */
    int32_t num_sms;               /* as of finegemm_gemm_options */
    int32_t fp8;                   /* 0 or 1: is it given? */
    const char* device;            /* as of finegemm_shape */
} finegemm_four_bit_shape;

typedef struct finegemm_four_bit_options {
    uint32_t struct_size;
    int32_t numerics; /* CPU only */
    int32_t num_sms;  /* as of finegemm_gemm_options */
    int32_t pdl;      /* the same */
    void* stream;
    finegemm_poll poll; /* may be null */
    void* poll_data;    /* handed to poll */
} finegemm_four_bit_options;

/* Bytes of packed weights, to `bytes`. */
FINEGEMM_C_API int32_t finegemm_four_bit_bytes(int32_t format, int64_t rows, int64_t cols, int64_t* bytes,
                                               finegemm_error* error);
/* Packs weights into so many bytes of the host. */
FINEGEMM_C_API int32_t finegemm_pack_four_bit(const finegemm_four_bit_source* source, void* packed,
                                              finegemm_error* error);
/* Packed weights of one matrix as e4m3 with scales, on the host. */
FINEGEMM_C_API int32_t finegemm_unpack_four_bit(const finegemm_four_bit_weights* weights, int64_t group,
                                                const finegemm_matrix* q, const finegemm_matrix* scales,
                                                finegemm_error* error);
/* A product with packed weights, of groups of rows or of whole matrices. `options` may be null. */
FINEGEMM_C_API int32_t finegemm_four_bit_gemm(finegemm_context* context, const finegemm_four_bit_args* args,
                                              const finegemm_four_bit_options* options, finegemm_error* error);
/* A layer of experts as of finegemm_moe, with weights of 4 bits; those of FP8 in `args` may have no pointers. */
FINEGEMM_C_API int32_t finegemm_four_bit_moe(finegemm_context* context, const finegemm_moe_args* args,
                                             const finegemm_four_bit_weights* gate_up,
                                             const finegemm_four_bit_weights* down, const finegemm_moe_options* options,
                                             finegemm_error* error);
/* JSON: which kernel it takes and why (docs/four_bit.md), as finegemm_explain writes it. */
FINEGEMM_C_API int32_t finegemm_explain_four_bit(const finegemm_four_bit_shape* shape, char* buffer, size_t capacity,
                                                 size_t* needed, finegemm_error* error);

#ifdef __cplusplus
}
#endif
#endif
