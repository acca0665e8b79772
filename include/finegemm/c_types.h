/* What all calls of the C ABI share: codes, values of fields, options of a context, matrices. finegemm/c_api.h includes
 * it. Layer public. */
#ifndef FINEGEMM_C_TYPES_H
#define FINEGEMM_C_TYPES_H

#include <stddef.h>
#include <stdint.h>

#define FINEGEMM_C_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

typedef struct finegemm_context finegemm_context;

typedef enum finegemm_code {
    FINEGEMM_OK = 0,
    FINEGEMM_INVALID_ARGUMENT = 1, /* breaks a documented rule */
    FINEGEMM_UNSUPPORTED = 2,      /* valid, but not on this device or in this build */
    FINEGEMM_DRIVER = 3,           /* the CUDA driver reported an error */
    FINEGEMM_COMPILE = 4,          /* run-time compilation failed; the message carries the log */
    FINEGEMM_IO = 5,
    FINEGEMM_OUT_OF_MEMORY = 6,
    FINEGEMM_INTERNAL = 7, /* a bug of the library: please report it */
    FINEGEMM_ENDED = 8,    /* by what the caller's poll returned */
    FINEGEMM_PEER = 9      /* another rank of a communicator has not come, or has left */
} finegemm_code;

/* Values of the int32_t fields below. */
enum {
    FINEGEMM_E4M3 = 1,
    FINEGEMM_BF16 = 2,
    FINEGEMM_F16 = 3,
    FINEGEMM_F32 = 4,
    FINEGEMM_UE8M0X4 = 5,
    FINEGEMM_I32 = 6,
    FINEGEMM_E5M2 = 7,
    FINEGEMM_I64 = 8,
    FINEGEMM_I8 = 9
};
enum { FINEGEMM_CPU = 1, FINEGEMM_CUDA = 2 };
enum { FINEGEMM_NUMERICS_FAST = 0, FINEGEMM_NUMERICS_EXACT = 1, FINEGEMM_NUMERICS_HOPPER = 2 };
enum { FINEGEMM_NVRTC = 0, FINEGEMM_NVCC = 1 };
enum { FINEGEMM_OFFSETS = 1, FINEGEMM_INDICES = 2, FINEGEMM_PREFIX_SUMS = 3, FINEGEMM_MASKED = 4, FINEGEMM_WHOLE = 5 };
enum { FINEGEMM_COLUMNS = 0, FINEGEMM_BLOCKS = 1 };
enum { FINEGEMM_NO_GROUPS = 0, FINEGEMM_ROW_GROUPS = 1, FINEGEMM_K_SIZES = 2, FINEGEMM_K_PREFIX_SUMS = 3 };
enum { FINEGEMM_RELU_EXACT = 0, FINEGEMM_RELU_ABS = 1 };
enum { FINEGEMM_FILLED = 0, FINEGEMM_UNTOUCHED = 1, FINEGEMM_COMPRESSED = 2 };
enum { FINEGEMM_AS_CONTEXT = 0, FINEGEMM_ON = 1, FINEGEMM_OFF = 2 };

/* Owned by the caller. The message is cut to fit and ends with a zero; it is empty where the code is FINEGEMM_OK. */
typedef struct finegemm_error {
    int32_t code;
    char message[2044];
} finegemm_error;

#define FINEGEMM_PATH_BYTES 4096

/* A call that was made; finegemm/context.h describes each field. Texts live until the log returns. */
typedef struct finegemm_logged_call {
    uint32_t struct_size; /* set by the library */
    int32_t device_type;
    int32_t device_index;
    int32_t reserved; /* 0 */
    const char* line;
    const char* kernel; /* "" where there is none */
    const char* origin; /* "" where there is none */
    double host_us;
} finegemm_logged_call;

/* Told of each call that did not fail, on its thread; several threads may call it at once. It may not leave by longjmp
 * or an exception. */
typedef void (*finegemm_log)(void* data, const finegemm_logged_call* call);

/* Options of a context; finegemm/context.h describes each. Fill them with finegemm_options_init, then change some. */
typedef struct finegemm_options {
    uint32_t struct_size;
    int32_t compiler;          /* FINEGEMM_NVRTC or FINEGEMM_NVCC */
    int32_t use_pack;          /* 0 or 1 */
    int32_t check_values;      /* 0 or 1 */
    int32_t cpu_threads;       /* 0: as many as the process may use */
    int32_t batch_invariant;   /* 0 or 1 */
    int64_t cache_limit_bytes; /* 0: no disk cache */
    char cache_dir[FINEGEMM_PATH_BYTES];
    char driver_path[FINEGEMM_PATH_BYTES];
    char nvrtc_path[FINEGEMM_PATH_BYTES];
    char nvcc_path[FINEGEMM_PATH_BYTES];
    char cuda_home[FINEGEMM_PATH_BYTES];
    char python_prefix[FINEGEMM_PATH_BYTES];
    char dump_dir[FINEGEMM_PATH_BYTES];
    char plan_table[FINEGEMM_PATH_BYTES];  /* measured choices of kernels; empty: none */
    char trusted_dir[FINEGEMM_PATH_BYTES]; /* caches and plan tables in it are used whoever owns them; empty: none */
    char pack_path[FINEGEMM_PATH_BYTES];   /* kernels that go before the embedded ones; empty: none */
    char nvtx_path[FINEGEMM_PATH_BYTES];   /* a profiler's library for ranges of NVTX; empty: none */
    finegemm_log log;                      /* may be null */
    void* log_data;                        /* handed to log */
} finegemm_options;

/* A view of a matrix; strides count elements, the memory is borrowed for the call. Inputs are not written to. */
typedef struct finegemm_matrix {
    void* data; /* may be null where the matrix has no elements */
    int32_t dtype;
    int32_t device_type;
    int32_t device_index; /* of the GPU; ignored on the CPU */
    int32_t reserved;     /* 0 */
    int64_t rows, cols;
    int64_t row_stride, col_stride;
} finegemm_matrix;

/* Matrices of one shape. */
typedef struct finegemm_stack {
    finegemm_matrix matrix;
    int64_t count;  /* at least 1 */
    int64_t stride; /* elements from one to the next; ignored where there is one */
} finegemm_stack;

/* Which rows belong to which group; finegemm/gemm.h describes each field. */
typedef struct finegemm_groups {
    int32_t form;     /* FINEGEMM_OFFSETS, _INDICES, _PREFIX_SUMS, _MASKED or _WHOLE */
    int32_t reserved; /* 0 */
    const int32_t* data;
    int64_t size;
    int64_t alignment;  /* of indices and prefix sums; others ignore it */
    int64_t expected_m; /* 0: the library guesses */
    int32_t device_type;
    int32_t device_index;
} finegemm_groups;

/* Asks on the thread of a call that takes long whether it shall go on, about every 50 ms: on the CPU with the share of
 * the work that has been begun, and on a GPU with 0 while a compiler makes the kernel. 0: yes; else the call ends with
 * FINEGEMM_ENDED, and its output has parts of the result. It may not leave by longjmp or an exception. */
typedef int32_t (*finegemm_poll)(void* data, double share);

typedef struct finegemm_route_options {
    uint32_t struct_size;
    int32_t check_values; /* FINEGEMM_AS_CONTEXT, _ON or _OFF: look for more choices than there are rows first */
    int32_t pdl;          /* as of finegemm_gemm_options */
    int32_t reserved;     /* 0 */
    void* stream;
    finegemm_poll poll; /* may be null */
    void* poll_data;    /* handed to poll */
} finegemm_route_options;

typedef struct finegemm_permute_options {
    uint32_t struct_size;
    int32_t check_values;        /* likewise: look for rows that do not exist, or that two choices have */
    int32_t power_of_two_scales; /* 0 or 1 */
    int32_t num_sms;             /* as of finegemm_gemm_options */
    int32_t pdl;                 /* the same */
    int32_t reserved;            /* 0 */
    void* stream;
    finegemm_poll poll; /* may be null */
    void* poll_data;    /* handed to poll */
} finegemm_permute_options;

typedef struct finegemm_combine_options {
    uint32_t struct_size;
    int32_t check_values; /* likewise: look for rows that do not exist */
    int32_t num_sms;      /* as of finegemm_gemm_options */
    int32_t pdl;          /* the same */
    void* stream;
    finegemm_poll poll; /* may be null */
    void* poll_data;    /* handed to poll */
} finegemm_combine_options;

/* A layer of experts; finegemm/moe.h has the rules. */
typedef struct finegemm_moe_args {
    finegemm_matrix x;
    finegemm_matrix x_scales; /* of e4m3; without a pointer: none */
    finegemm_matrix ids;
    finegemm_matrix weights; /* without a pointer: ones */
    finegemm_stack gate_up, gate_up_scales, down, down_scales;
    int64_t first; /* id of the first expert here */
    finegemm_matrix out;
    void* workspace; /* null: the library takes memory */
    int64_t workspace_bytes;
} finegemm_moe_args;

typedef struct finegemm_moe_options {
    uint32_t struct_size;
    float gate_limit; /* of clamps; 0: none */
    float gate_alpha; /* above 0: 1 is usual */
    float up_offset;
    int32_t f32_between;         /* 0 or 1: nothing is rounded to bf16 between the products */
    int32_t power_of_two_scales; /* 0 or 1 */
    int32_t fused;         /* FINEGEMM_AS_CONTEXT: whichever is faster, _ON or _OFF: the activation in an epilogue */
    int32_t numerics;      /* CPU only */
    int32_t check_values;  /* as of finegemm_gemm_options, and more choices than there are rows */
    int32_t num_sms;       /* as of finegemm_gemm_options */
    int32_t pdl;           /* the same, of the first launch */
    int32_t weights_first; /* 0 or 1: weights multiply the activation, not rows of the second product */
    int64_t rows;          /* that there is memory for; 0: as many as all choices take */
    int64_t expected_m;    /* of an expert; 0: as many as there may be, evenly */
    void* stream;
    finegemm_poll poll;                      /* may be null */
    void* poll_data;                         /* handed to poll */
    finegemm_matrix gate_up_bias, down_bias; /* [E, 2 I] and [E, H] f32 or bf16; without pointers: none */
} finegemm_moe_options;

/* A call of it without its pointers. */
typedef struct finegemm_moe_shape {
    uint32_t struct_size;
    int32_t num_sms; /* as the option of a call, like those below it in moe_options */
    int32_t f32_between;
    int32_t fused;
    int64_t tokens, choices, hidden, intermediate, experts;
    int64_t rows, expected_m;
    const char* device;     /* as of finegemm_shape; of finegemm_explain_moe alone */
    int32_t four_bit;       /* format of packed weights of 4 bits, where they are given; 0: none are */
    int32_t four_bit_alone; /* 0 or 1: there are none of FP8 beside them */
    int32_t biased;         /* 0 or 1: options have biases */
    int32_t reserved;       /* 0 */
} finegemm_moe_shape;

/* What a selection writes; finegemm/topk.h has the rules. Without a pointer: left out. */
typedef struct finegemm_topk_outputs {
    finegemm_matrix indices, values, histogram;
} finegemm_topk_outputs;

typedef struct finegemm_topk_args {
    finegemm_matrix logits, starts, ends;
    finegemm_topk_outputs out;
} finegemm_topk_args;

typedef struct finegemm_mqa_topk_args {
    finegemm_stack q; /* count may be 0 */
    finegemm_matrix k, sfk, w, starts, ends;
    finegemm_topk_outputs out;
    finegemm_matrix logits;
} finegemm_mqa_topk_args;

typedef struct finegemm_paged_mqa_topk_args {
    finegemm_stack q; /* count may be 0 */
    finegemm_matrix cache, w, lengths, block_table;
    int64_t keys; /* 0: as many as there is room for */
    finegemm_topk_outputs out;
    finegemm_matrix logits;
} finegemm_paged_mqa_topk_args;

typedef struct finegemm_topk_options {
    uint32_t struct_size;
    int32_t sorted;       /* 0 or 1 */
    int32_t form;         /* FINEGEMM_FILLED or _UNTOUCHED */
    int32_t relu;         /* FINEGEMM_RELU_EXACT or FINEGEMM_RELU_ABS */
    int32_t check_values; /* as of finegemm_mqa_options */
    int32_t num_sms;      /* as of finegemm_gemm_options */
    int32_t pdl;          /* the same, of the first launch */
    int32_t reserved;     /* 0 */
    void* stream;
    finegemm_poll poll; /* may be null */
    void* poll_data;    /* handed to poll */
} finegemm_topk_options;

/* A call of finegemm_topk, of finegemm_mqa_topk if `heads` is not 0, or of finegemm_paged_mqa_topk if `paged` is 1 too;
 * finegemm/topk.h, TopkShape, describes each field. */
typedef struct finegemm_topk_shape {
    uint32_t struct_size;
    int32_t paged; /* 0 or 1 */
    int64_t k;
    int64_t requests, queries, keys;
    int64_t heads, dim, page_size;
    int32_t relu;      /* as the option of a call */
    int32_t form;      /* the same */
    int32_t logits;    /* 0 or 1 */
    int32_t histogram; /* 0 or 1 */
    int32_t sorted;    /* 0 or 1 */
    int32_t num_sms;
    const char* device; /* as of finegemm_shape */
} finegemm_topk_shape;

#ifdef __cplusplus
}
#endif
#endif
