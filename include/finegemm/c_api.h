/* The C ABI of FineGEMM: plain C99, no state but the context's, no exception crosses it. Layer public.
 *
 * A function that can fail returns a finegemm_code and, where `error` is not null, writes code and reason there.
 * Any number of threads may use one context at once.
 * Structs that begin with struct_size may grow at their end: set it to sizeof the struct and zero what you do not use,
 * and the program keeps its meaning with later versions of the library, which take the fields it lacks as zero. */
#ifndef FINEGEMM_C_API_H
#define FINEGEMM_C_API_H

#include <finegemm/c_four_bit.h>
#include <finegemm/c_mxfp8.h>
#include <finegemm/c_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* d[m, n] = sum over k of (a[m, k] * sfa[m, k / 128]) * (b[n, k] * sfb[n / 128, k / 128])
 * or, where sfb has a row for each one of b, sfb[n, k / 128]. Scales of shape [M, 1] or [N, 1] are one for each row, of
 * shape [1, 1] one for the matrix. finegemm/gemm.h has the rules. */
typedef struct finegemm_gemm_args {
    finegemm_matrix a, sfa, b, sfb, d;
} finegemm_gemm_args;

/* d[m, n] = sum over k of (a[m, k] * sfa[m, k / 128]) * (b[g, n, k] * sfb[g, n / 128, k / 128]), g the group of row m
 * finegemm/gemm.h has the rules. */
typedef struct finegemm_grouped_gemm_args {
    finegemm_stack a, sfa, b, sfb, d;
    finegemm_groups groups;
} finegemm_grouped_gemm_args;

/* d[g, m, n] = sum over the k of group g of (a[m, k] * sfa[m, k / 128]) * (b[n, k] * sfb[n, k / 128]): see gemm.h */
typedef struct finegemm_k_grouped_gemm_args {
    finegemm_matrix a, sfa, b, sfb;
    finegemm_stack d;
    const int32_t* offsets; /* [groups + 1], multiples of 128 */
    int64_t groups;
    int32_t device_type; /* of the offsets: that of d, or FINEGEMM_CPU */
    int32_t device_index;
    int32_t layout;   /* FINEGEMM_COLUMNS: groups side by side in a and b; _BLOCKS: one behind the other */
    int32_t reserved; /* 0 */
} finegemm_k_grouped_gemm_args;

typedef struct finegemm_einsum_args {
    finegemm_stack a, sfa, b, sfb, d; /* tensors of three dimensions; finegemm/einsum.h has the rules */
} finegemm_einsum_args;

/* Square blocks of x, and their codes transposed; finegemm/quantize.h has the rules. */
typedef struct finegemm_quantize_weights_args {
    finegemm_stack x, q, scales, transposed; /* transposed without a pointer: none */
} finegemm_quantize_weights_args;

/* Columns of x as rows of codes, and its rows besides; finegemm/quantize.h has the rules. */
typedef struct finegemm_quantize_columns_args {
    finegemm_matrix x, q, scales, row_q, row_scales; /* row_q and row_scales without pointers: no rows */
    finegemm_matrix offsets, begins; /* of groups, [1, groups + 1]; begins is written. Without pointers: none */
} finegemm_quantize_columns_args;

/* SwiGLU of pairs of x, quantised; finegemm/swiglu.h has the rules. */
typedef struct finegemm_swiglu_args {
    finegemm_stack x, q, scales;
    finegemm_matrix weights; /* [count, rows] f32; without a pointer: none */
    finegemm_groups groups;  /* FINEGEMM_WHOLE: all rows */
} finegemm_swiglu_args;

/* Scales, and where they go in another layout, f32 or ue8m0x4; finegemm/scale_layout.h has the rules. */
typedef struct finegemm_scale_layout_args {
    finegemm_stack sf, out;
    int32_t form;     /* of the groups: FINEGEMM_NO_GROUPS, _ROW_GROUPS, _K_SIZES or _K_PREFIX_SUMS */
    int32_t reserved; /* 0 */
    const int32_t* groups;
    int64_t size;        /* of groups */
    int64_t alignment;   /* of where groups begin, by row groups and prefix sums */
    int64_t scale_k;     /* k that a scale serves, of groups of k */
    int32_t device_type; /* of groups: that of out */
    int32_t device_index;
} finegemm_scale_layout_args;

/* d[i, j] = sfk[j] * sum over heads h of relu(q[i, h] . k[j]) * w[i, h], for j from starts[i] to before ends[i]
 * finegemm/mqa.h has the rules. */
typedef struct finegemm_mqa_logits_args {
    finegemm_stack q; /* count may be 0 */
    finegemm_matrix k, sfk, w, starts, ends, d;
} finegemm_mqa_logits_args;

/* Scores of keys in the pages of a cache; finegemm/mqa.h has the rules. */
typedef struct finegemm_paged_mqa_logits_args {
    finegemm_stack q; /* count may be 0 */
    finegemm_matrix cache, w, lengths, block_table;
    finegemm_matrix schedule; /* may be zeros: nothing reads it in this version */
    finegemm_matrix d;
} finegemm_paged_mqa_logits_args;

/* How its work is split over slots; finegemm/mqa.h has the rules. */
typedef struct finegemm_paged_mqa_schedule_args {
    finegemm_matrix lengths;
    int64_t queries_each;
    finegemm_matrix schedule; /* is written */
} finegemm_paged_mqa_schedule_args;

/* The sum of the slices of d is a * tf32(b)^T, that of the rows of sqrsum the sum of squares of each row of a
 * finegemm/prenorm.h has the rules. */
typedef struct finegemm_prenorm_args {
    finegemm_matrix a, b;
    finegemm_stack d;
    finegemm_matrix sqrsum;
} finegemm_prenorm_args;

/* Where choices of tokens have their rows; finegemm/routing.h has the rules. */
typedef struct finegemm_route_args {
    finegemm_matrix ids, inverse, numbers;
    finegemm_matrix permutation; /* without a pointer: none */
    int32_t form;                /* of numbers: FINEGEMM_OFFSETS, _INDICES, _PREFIX_SUMS or _MASKED */
    int32_t reserved;            /* 0 */
    int64_t experts, first;
    int64_t rows;      /* that there are; of _MASKED for each expert */
    int64_t alignment; /* of where groups begin, by indices and prefix sums */
} finegemm_route_args;

/* Rows of tokens where their experts have them; finegemm/routing.h has the rules. */
typedef struct finegemm_permute_quantize_args {
    finegemm_matrix x;
    finegemm_matrix x_scales; /* without a pointer: none */
    finegemm_matrix inverse;
    finegemm_stack q;
    finegemm_stack scales; /* without a pointer: none */
} finegemm_permute_quantize_args;

/* Weighted sums of rows of experts; finegemm/routing.h has the rules. */
typedef struct finegemm_combine_args {
    finegemm_stack y;
    finegemm_matrix inverse;
    finegemm_matrix weights; /* without a pointer: ones */
    finegemm_matrix out;
} finegemm_combine_args;

/* d becomes alpha * the product + beta * c + bias, rounded once; finegemm/gemm.h, Epilogue, has the rules. */
typedef struct finegemm_epilogue {
    uint32_t struct_size;
    float alpha;                    /* 1: the product as it is; zero would leave nothing of it */
    float beta;                     /* of c; 0: c is not read */
    int32_t reserved;               /* 0 */
    finegemm_stack c;               /* as d; without a pointer: none */
    finegemm_matrix bias;           /* [1, n] f32; without a pointer: none */
    int64_t head_left;              /* Columns of the product before the gap of a head of D */
    int64_t head_gap;               /* Columns of D in the gap of a head, which are not written */
    int64_t head_right;             /* Columns of the product behind the gap */
    finegemm_stack sfd;             /* Scales of D, which is the SwiGLU of the product, quantised */
    finegemm_stack row_weights;     /* A number for each row that its SwiGLU is multiplied by */
    double gate_limit;              /* Of gates from above, and of the magnitudes of ups; 0: none */
    double gate_alpha;              /* Factor of the gate in its sigmoid; 0: 1 */
    double up_offset;               /* Added to ups */
    int64_t bf16_between;           /* The product and its SwiGLU are rounded to bf16 */
    int64_t power_of_two_sfd;       /* Scales of D are powers of two */
    finegemm_matrix rows_of_a;      /* Rows of A that the rows of the product are of; -1: zeros */
    finegemm_matrix rows_of_d;      /* Rows of D that they are stored as; -1: none */
    finegemm_stack factors_of_rows; /* A number for each row of the product that it is multiplied by */
} finegemm_epilogue;

typedef struct finegemm_gemm_options {
    uint32_t struct_size;
    int32_t numerics;                  /* CPU only */
    int32_t check_values;              /* FINEGEMM_AS_CONTEXT, _ON or _OFF: look at scale values first */
    int32_t batch_invariant;           /* the same: the bits of a row of d do not depend on other rows */
    void* stream;                      /* CUstream or cudaStream_t; ignored on the CPU */
    const char* config;                /* a kernel by name; null: the planner's choice */
    int32_t num_sms;                   /* CUDA only: SMs that may be used at most; 0: all */
    int32_t pdl;                       /* CUDA only: programmatic dependent launch, 0 or 1 */
    int32_t accumulate;                /* 1: d, of f32, is added to; 0: it is overwritten */
    int32_t prefetch_weights;          /* with pdl, 1: loads of b begin before the kernels before it end */
    finegemm_poll poll;                /* may be null */
    void* poll_data;                   /* handed to poll */
    const finegemm_epilogue* epilogue; /* null: d is the product, or the product is added to it */
} finegemm_gemm_options;

typedef struct finegemm_quantize_options {
    uint32_t struct_size;
    int32_t power_of_two_scales; /* 0 or 1 */
    void* stream;
    finegemm_poll poll; /* may be null */
    void* poll_data;    /* handed to poll */
} finegemm_quantize_options;

typedef struct finegemm_scale_layout_options {
    uint32_t struct_size;
    int32_t power_of_two_scales; /* 0 or 1 */
    void* stream;
    finegemm_poll poll; /* may be null */
    void* poll_data;    /* handed to poll */
} finegemm_scale_layout_options;

typedef struct finegemm_mqa_options {
    uint32_t struct_size;
    int32_t form;         /* FINEGEMM_FILLED, _UNTOUCHED or _COMPRESSED */
    int32_t relu;         /* FINEGEMM_RELU_EXACT or FINEGEMM_RELU_ABS */
    int32_t check_values; /* FINEGEMM_AS_CONTEXT, _ON or _OFF: look at windows, lengths and numbers of pages first */
    int32_t num_sms;      /* as of finegemm_gemm_options */
    int32_t pdl;          /* the same */
    void* stream;
    finegemm_poll poll; /* may be null */
    void* poll_data;    /* handed to poll */
} finegemm_mqa_options;

typedef struct finegemm_paged_mqa_schedule_options {
    uint32_t struct_size;
    int32_t pdl; /* as of finegemm_gemm_options */
    void* stream;
    finegemm_poll poll; /* may be null */
    void* poll_data;    /* handed to poll */
} finegemm_paged_mqa_schedule_options;

typedef struct finegemm_prenorm_options {
    uint32_t struct_size;
    int32_t num_sms;  /* as of finegemm_gemm_options */
    int32_t pdl;      /* the same */
    int32_t reserved; /* 0 */
    void* stream;
    finegemm_poll poll; /* may be null */
    void* poll_data;    /* handed to poll */
} finegemm_prenorm_options;

typedef struct finegemm_swiglu_options {
    uint32_t struct_size;
    float gate_limit; /* of clamps; 0: none */
    float gate_alpha; /* above 0: 1 is usual */
    float up_offset;
    int32_t interleaved;         /* 0 or 1: columns of x are 8 gates, 8 ups in turn */
    int32_t to_bf16;             /* 0 or 1 */
    int32_t power_of_two_scales; /* 0 or 1 */
    int32_t num_sms;             /* as of finegemm_gemm_options */
    int32_t pdl;                 /* the same */
    int32_t reserved;            /* 0 */
    void* stream;
    finegemm_poll poll; /* may be null */
    void* poll_data;    /* handed to poll */
} finegemm_swiglu_options;

/* What the host knows of a product: one of finegemm_gemm, of finegemm_grouped_gemm if `groups` is not 0, or of
 * finegemm_k_grouped_gemm if `k_groups` is not. What the product does not have is 0. */
typedef struct finegemm_shape {
    uint32_t struct_size;
    int32_t num_sms;    /* as the option of a call */
    int64_t m, n, k;    /* m of all groups together, k of all k_groups together */
    int64_t groups;     /* of rows */
    int64_t expected_m; /* of a group; 0: m / groups */
    int64_t alignment;  /* of FINEGEMM_INDICES and FINEGEMM_PREFIX_SUMS; 0: groups begin anywhere */
    int64_t k_groups;
    int32_t row_b_scales;    /* 0 or 1: scales for each row of b; k_groups have no others */
    int32_t out_dtype;       /* of d; 0: f32 for k_groups, else as a and b, for e4m3 bf16 */
    int32_t accumulate;      /* 0 or 1, as the option of a call */
    int32_t batch_invariant; /* 0 or 1 */
    const char* device;      /* a known one, as "h200"; null or empty: the GPU present, else h200, with the plan table
                                and the batch invariance that the environment asks for */
    const char* plan_table;  /* a file; null or empty: none but that */
    int64_t dtype;           /* of a and b; 0: FINEGEMM_E4M3, which has scales, as E5M2 and I8 have */
    int64_t affine;          /* D is alpha A B + beta C + bias, with any of the three */
    int64_t head_gaps;       /* D is in heads, each with a gap that is not written */
    int64_t summed;          /* Matrices of A and of B, whose products are added up; K is that of all together */
    int64_t a_mn_major;      /* A is stored as [K, M], not [M, K]; of bf16 or f16 */
    int64_t b_mn_major;      /* B is stored as [K, N], not [N, K]; of bf16 or f16 */
    int64_t dtype_of_b;      /* Of B, where one of A and B is e4m3 and the other e5m2 */
    int64_t gated;           /* D is the SwiGLU of the halves of N, in e4m3 with scales */
    int64_t a_mx;            /* Scales of A are exponents, for each row and 32 of K (MX); b_mx, too */
    int64_t b_mx;            /* Scales of B are exponents, for each row and 32 of K (MX) */
    int64_t indexed;         /* Rows of A and of D are found by numbers, or have factors */
} finegemm_shape;

/* A call of finegemm_mqa_logits, or of finegemm_paged_mqa_logits if `paged` is 1; finegemm/mqa.h, MqaShape, describes
 * each field. */
typedef struct finegemm_mqa_shape {
    uint32_t struct_size;
    int32_t paged; /* 0 or 1 */
    int64_t requests, queries, keys;
    int64_t heads, dim, page_size;
    int32_t dtype;    /* of d; 0: FINEGEMM_F32 */
    int32_t form;     /* as the option of a call */
    int32_t relu;     /* the same */
    int32_t reserved; /* 0 */
} finegemm_mqa_shape;

/* A call of finegemm_prenorm_gemm without its pointers. */
typedef struct finegemm_prenorm_shape {
    uint32_t struct_size;
    int32_t num_sms; /* as the option of a call */
    int64_t m, n, k;
    int64_t slices;     /* of d */
    const char* device; /* as of finegemm_shape */
} finegemm_prenorm_shape;

/* "0.1.0" */
FINEGEMM_C_API const char* finegemm_version(void);

/* Fills `options` from the environment. `struct_size`: sizeof(finegemm_options), as the caller knows it. */
FINEGEMM_C_API int32_t finegemm_options_init(finegemm_options* options, size_t struct_size, finegemm_error* error);

/* `options` may be null: those of the environment. Writes null to `context` when it fails. */
FINEGEMM_C_API int32_t finegemm_context_create(const finegemm_options* options, finegemm_context** context,
                                               finegemm_error* error);
/* Calls that use it must have returned, and work that they queued on a GPU must be done. Null is allowed. */
FINEGEMM_C_API void finegemm_context_destroy(finegemm_context* context);

/* `options` may be null. On CUDA the work is queued on the stream and the call does not wait for it. */
FINEGEMM_C_API int32_t finegemm_gemm(finegemm_context* context, const finegemm_gemm_args* args,
                                     const finegemm_gemm_options* options, finegemm_error* error);
/* D = (A * sfa)(B * sfb)^T for groups of rows, each with its own b. */
FINEGEMM_C_API int32_t finegemm_grouped_gemm(finegemm_context* context, const finegemm_grouped_gemm_args* args,
                                             const finegemm_gemm_options* options, finegemm_error* error);
/* D = (A * sfa)(B * sfb)^T for groups of k, each with its own d, of f32, bf16 or f16. */
FINEGEMM_C_API int32_t finegemm_k_grouped_gemm(finegemm_context* context, const finegemm_k_grouped_gemm_args* args,
                                               const finegemm_gemm_options* options, finegemm_error* error);
/* A product by its equation: "bhr,hdr->bhd", "bhd,hdr->bhr" or "bmk,bnk->mn". `options` may be null. */
FINEGEMM_C_API int32_t finegemm_einsum(finegemm_context* context, const char* equation,
                                       const finegemm_einsum_args* args, const finegemm_gemm_options* options,
                                       finegemm_error* error);
/* Scales for each row and 128 columns of x, or for each row; finegemm/quantize.h has the rules. `options`: or null. */
FINEGEMM_C_API int32_t finegemm_quantize_rows(finegemm_context* context, const finegemm_matrix* x,
                                              const finegemm_matrix* q, const finegemm_matrix* scales,
                                              const finegemm_quantize_options* options, finegemm_error* error);
/* Scales for each 128x128 block of x. */
FINEGEMM_C_API int32_t finegemm_quantize_blocks(finegemm_context* context, const finegemm_matrix* x,
                                                const finegemm_matrix* q, const finegemm_matrix* scales,
                                                const finegemm_quantize_options* options, finegemm_error* error);
/* Likewise of each matrix of a stack, and the codes transposed. */
FINEGEMM_C_API int32_t finegemm_quantize_weights(finegemm_context* context, const finegemm_quantize_weights_args* args,
                                                 const finegemm_quantize_options* options, finegemm_error* error);
/* Scales for each column and 128 rows of x, whose columns become rows. */
FINEGEMM_C_API int32_t finegemm_quantize_columns(finegemm_context* context, const finegemm_quantize_columns_args* args,
                                                 const finegemm_quantize_options* options, finegemm_error* error);

/* SwiGLU with quantisation; finegemm/swiglu.h has the rules. `options` may be null. */
FINEGEMM_C_API int32_t finegemm_swiglu_quantize(finegemm_context* context, const finegemm_swiglu_args* args,
                                                const finegemm_swiglu_options* options, finegemm_error* error);

/* Scales in another layout; finegemm/scale_layout.h has the rules. `options` may be null. */
FINEGEMM_C_API int32_t finegemm_scale_layout(finegemm_context* context, const finegemm_scale_layout_args* args,
                                             const finegemm_scale_layout_options* options, finegemm_error* error);

/* Scores of an indexer; finegemm/mqa.h has the rules. `options` may be null. */
FINEGEMM_C_API int32_t finegemm_mqa_logits(finegemm_context* context, const finegemm_mqa_logits_args* args,
                                           const finegemm_mqa_options* options, finegemm_error* error);
/* Scores of keys in the pages of a cache; finegemm/mqa.h has the rules. `options` may be null. */
FINEGEMM_C_API int32_t finegemm_paged_mqa_logits(finegemm_context* context, const finegemm_paged_mqa_logits_args* args,
                                                 const finegemm_mqa_options* options, finegemm_error* error);
/* Writes its schedule. */
FINEGEMM_C_API int32_t finegemm_paged_mqa_schedule(finegemm_context* context,
                                                   const finegemm_paged_mqa_schedule_args* args,
                                                   const finegemm_paged_mqa_schedule_options* options,
                                                   finegemm_error* error);

/* The k largest numbers of each row, or of an indexer's scores; finegemm/topk.h has the rules. `options` may be null.
 */
FINEGEMM_C_API int32_t finegemm_topk(finegemm_context* context, const finegemm_topk_args* args,
                                     const finegemm_topk_options* options, finegemm_error* error);
FINEGEMM_C_API int32_t finegemm_mqa_topk(finegemm_context* context, const finegemm_mqa_topk_args* args,
                                         const finegemm_topk_options* options, finegemm_error* error);
FINEGEMM_C_API int32_t finegemm_paged_mqa_topk(finegemm_context* context, const finegemm_paged_mqa_topk_args* args,
                                               const finegemm_topk_options* options, finegemm_error* error);

/* A product of few columns with sums of squares; finegemm/prenorm.h has the rules. `options` may be null. */
FINEGEMM_C_API int32_t finegemm_prenorm_gemm(finegemm_context* context, const finegemm_prenorm_args* args,
                                             const finegemm_prenorm_options* options, finegemm_error* error);

/* Gives each choice of a token a row of its expert; finegemm/routing.h has the rules. `options` may be null. */
FINEGEMM_C_API int32_t finegemm_route(finegemm_context* context, const finegemm_route_args* args,
                                      const finegemm_route_options* options, finegemm_error* error);
/* Puts rows of tokens there, quantised on the way where they are bf16 and q is e4m3. */
FINEGEMM_C_API int32_t finegemm_permute_quantize(finegemm_context* context, const finegemm_permute_quantize_args* args,
                                                 const finegemm_permute_options* options, finegemm_error* error);
/* Adds up the rows of a token's choices, each times its weight. */
FINEGEMM_C_API int32_t finegemm_combine(finegemm_context* context, const finegemm_combine_args* args,
                                        const finegemm_combine_options* options, finegemm_error* error);

/* A layer of experts as one call; finegemm/moe.h has the rules. `options` may be null. */
FINEGEMM_C_API int32_t finegemm_moe(finegemm_context* context, const finegemm_moe_args* args,
                                    const finegemm_moe_options* options, finegemm_error* error);
/* Memory that a call of a shape takes, to `bytes`. */
FINEGEMM_C_API int32_t finegemm_moe_workspace_bytes(const finegemm_moe_shape* shape, int64_t* bytes,
                                                    finegemm_error* error);

/* JSON: which kernel a product takes and why (docs/jit.md). Writes at most `capacity` bytes, the last a zero, and to
 * `needed` (may be null) how many the whole takes; `buffer` may be null where `capacity` is 0. */
FINEGEMM_C_API int32_t finegemm_explain(const finegemm_shape* shape, char* buffer, size_t capacity, size_t* needed,
                                        finegemm_error* error);
/* JSON: which kernel an indexer's scores take and why (docs/indexer.md), likewise. */
FINEGEMM_C_API int32_t finegemm_explain_mqa(const finegemm_mqa_shape* shape, char* buffer, size_t capacity,
                                            size_t* needed, finegemm_error* error);
/* JSON: which kernel selects, and of how many steps (docs/indexer_topk.md), likewise. */
FINEGEMM_C_API int32_t finegemm_explain_topk(const finegemm_topk_shape* shape, char* buffer, size_t capacity,
                                             size_t* needed, finegemm_error* error);
/* JSON: which kernel finegemm_prenorm_gemm takes and why (docs/prenorm.md), likewise. */
FINEGEMM_C_API int32_t finegemm_explain_prenorm(const finegemm_prenorm_shape* shape, char* buffer, size_t capacity,
                                                size_t* needed, finegemm_error* error);
/* JSON: of which launches finegemm_moe is made and why (docs/moe.md), likewise. */
FINEGEMM_C_API int32_t finegemm_explain_moe(const finegemm_moe_shape* shape, char* buffer, size_t capacity,
                                            size_t* needed, finegemm_error* error);

#ifdef __cplusplus
}
#endif
#endif
