/* A layer of experts over ranks, for C: communicators, and the call in which tokens travel. finegemm/ep.h has the
 * rules. Layer public. */
#ifndef FINEGEMM_C_EP_H
#define FINEGEMM_C_EP_H

#include <finegemm/c_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Names a communicator that is about to be made. */
typedef struct finegemm_communicator_id {
    uint8_t bytes[128];
} finegemm_communicator_id;

typedef struct finegemm_communicator_options {
    uint32_t struct_size;
    int32_t reserved;      /* 0 */
    double timeout_s;      /* after which a rank that has not come ends the communicator; 0: 30 */
    const char* nccl_path; /* a libnccl.so.2, or its folder; null: that of the process, of pip or of the system */
} finegemm_communicator_options;

typedef struct finegemm_communicator finegemm_communicator;

/* `options` may be null in all of these. One rank makes an id, the program hands it to the others. */
FINEGEMM_C_API int32_t finegemm_communicator_make_id(finegemm_context* context, finegemm_communicator_id* id,
                                                     const finegemm_communicator_options* options,
                                                     finegemm_error* error);
/* A rank with a GPU of its own, by NCCL; returns when all ranks have called it. */
FINEGEMM_C_API int32_t finegemm_communicator_create(finegemm_context* context, const finegemm_communicator_id* id,
                                                    int32_t rank, int32_t ranks, int32_t device,
                                                    const finegemm_communicator_options* options,
                                                    finegemm_communicator** communicator, finegemm_error* error);
/* Ranks on the CPU, each for a thread of its own: `communicators` has place for as many. */
FINEGEMM_C_API int32_t finegemm_communicators_of_threads(int32_t ranks, const finegemm_communicator_options* options,
                                                         finegemm_communicator** communicators, finegemm_error* error);
/* Null is ignored. */
FINEGEMM_C_API void finegemm_communicator_destroy(finegemm_communicator* communicator);
/* Returns when all that is queued on `stream` has been done, or a rank is missed. */
FINEGEMM_C_API int32_t finegemm_communicator_wait(finegemm_communicator* communicator, void* stream,
                                                  finegemm_error* error);
/* Ends it, here and, of threads, for all. */
FINEGEMM_C_API void finegemm_communicator_end(finegemm_communicator* communicator);

/* Memory of all ranks that each of them reaches: with it rows travel without messages. */
typedef struct finegemm_peer_memory finegemm_peer_memory;

/* Returns when all ranks have called it. `most`: its tokens are the most that any rank passes in a call. */
FINEGEMM_C_API int32_t finegemm_peer_memory_create(finegemm_communicator* communicator, const finegemm_moe_shape* most,
                                                   finegemm_peer_memory** memory, finegemm_error* error);
/* Null is ignored. When calls of all ranks with it have ended. */
FINEGEMM_C_API void finegemm_peer_memory_destroy(finegemm_peer_memory* memory);
/* Whether all ranks reach that of all, 1 or 0: where they do not, calls exchange messages. */
FINEGEMM_C_API int32_t finegemm_peer_memory_is_reached(const finegemm_peer_memory* memory);
/* That each rank has taken. */
FINEGEMM_C_API int64_t finegemm_peer_memory_bytes(const finegemm_peer_memory* memory);

/* What of a call is about ranks. */
typedef struct finegemm_ep_options {
    uint32_t struct_size;
    int32_t reserved;             /* 0 */
    int64_t capacity;             /* rows from each rank to each other; 0: as many as are chosen */
    finegemm_matrix counts;       /* [1, ranks] i32, written; without a pointer: none */
    finegemm_peer_memory* memory; /* of this communicator, for calls with a capacity; null: messages */
} finegemm_ep_options;

/* `layer.first` is 0. `how` and `options` may be null. */
FINEGEMM_C_API int32_t finegemm_ep_moe(finegemm_context* context, finegemm_communicator* communicator,
                                       const finegemm_moe_args* layer, const finegemm_ep_options* how,
                                       const finegemm_moe_options* options, finegemm_error* error);
/* With weights of 4 bits; those of FP8 in `layer` may have no pointers. */
FINEGEMM_C_API int32_t finegemm_ep_four_bit_moe(finegemm_context* context, finegemm_communicator* communicator,
                                                const finegemm_moe_args* layer,
                                                const finegemm_four_bit_weights* gate_up,
                                                const finegemm_four_bit_weights* down, const finegemm_ep_options* how,
                                                const finegemm_moe_options* options, finegemm_error* error);
/* Memory that a call of a shape takes, to `bytes`. */
FINEGEMM_C_API int32_t finegemm_ep_moe_workspace_bytes(const finegemm_moe_shape* shape, int32_t ranks, int64_t capacity,
                                                       int64_t* bytes, finegemm_error* error);

#ifdef __cplusplus
}
#endif
#endif
