// The C ABI of a layer of experts over ranks. Layer api.
#include <finegemm/c_ep.h>

#include <algorithm>
#include <cstddef>

#include <finegemm/ep.h>

#include "api/c_values.h"
#include "ops/moe/c_abi.h"

struct finegemm_communicator {
    finegemm::Communicator communicator;
};

struct finegemm_peer_memory {
    finegemm::PeerMemory memory;
};

namespace finegemm {
template <>
inline constexpr size_t kFirstSize<finegemm_ep_options> = offsetof(finegemm_ep_options, memory);
}  // namespace finegemm

namespace {

using namespace finegemm;

CommunicatorOptions to_options(const finegemm_communicator_options* caller) {
    CommunicatorOptions o;
    if (!caller) return o;
    const finegemm_communicator_options given = known_part(*caller, "options");
    require_zero(given.reserved, "options");
    if (given.timeout_s != 0) o.timeout_s = given.timeout_s;
    if (given.nccl_path) o.nccl_path = given.nccl_path;
    return o;
}

EpOptions to_how(const finegemm_ep_options* caller) {
    if (!caller) return {};
    const finegemm_ep_options given = known_part(*caller, "how");
    require_zero(given.reserved, "how");
    return {.capacity = given.capacity,
            .counts = to_matrix(given.counts, "counts"),
            .memory = given.memory ? &given.memory->memory : nullptr};
}

constexpr const char* kMakeCommunicator = "make one with finegemm_communicator_create";

}  // namespace

int32_t finegemm_communicator_make_id(finegemm_context* context, finegemm_communicator_id* id,
                                      const finegemm_communicator_options* options, finegemm_error* error) {
    return guarded(error, [&] {
        require(context, "context", kMakeContext);
        require(id, "id");
        std::ranges::copy(Communicator::make_id(context->context, to_options(options)).bytes, id->bytes);
    });
}

int32_t finegemm_communicator_create(finegemm_context* context, const finegemm_communicator_id* id, int32_t rank,
                                     int32_t ranks, int32_t device, const finegemm_communicator_options* options,
                                     finegemm_communicator** communicator, finegemm_error* error) {
    return guarded(error, [&] {
        require(context, "context", kMakeContext);
        require(id, "id");
        require(communicator, "communicator");
        CommunicatorId given;
        std::ranges::copy(id->bytes, given.bytes.begin());
        *communicator = new finegemm_communicator{{context->context, given, rank, ranks, device, to_options(options)}};
    });
}

int32_t finegemm_communicators_of_threads(int32_t ranks, const finegemm_communicator_options* options,
                                          finegemm_communicator** communicators, finegemm_error* error) {
    return guarded(error, [&] {
        require(communicators, "communicators");
        for (Communicator& one : Communicator::of_threads(ranks, to_options(options)))
            *communicators++ = new finegemm_communicator{std::move(one)};
    });
}

void finegemm_communicator_destroy(finegemm_communicator* communicator) { delete communicator; }

int32_t finegemm_communicator_wait(finegemm_communicator* communicator, void* stream, finegemm_error* error) {
    return guarded(error, [&] {
        require(communicator, "communicator", kMakeCommunicator);
        communicator->communicator.wait(stream);
    });
}

void finegemm_communicator_end(finegemm_communicator* communicator) {
    if (communicator) communicator->communicator.end();
}

int32_t finegemm_peer_memory_create(finegemm_communicator* communicator, const finegemm_moe_shape* most,
                                    finegemm_peer_memory** memory, finegemm_error* error) {
    return guarded(error, [&] {
        require(communicator, "communicator", kMakeCommunicator);
        require(most, "most");
        require(memory, "memory");
        *memory = new finegemm_peer_memory{{communicator->communicator, to_shape(known_part(*most, "most"))}};
    });
}

void finegemm_peer_memory_destroy(finegemm_peer_memory* memory) { delete memory; }

int32_t finegemm_peer_memory_is_reached(const finegemm_peer_memory* memory) {
    return memory && memory->memory.is_reached() ? 1 : 0;
}

int64_t finegemm_peer_memory_bytes(const finegemm_peer_memory* memory) { return memory ? memory->memory.bytes() : 0; }

int32_t finegemm_ep_moe(finegemm_context* context, finegemm_communicator* communicator, const finegemm_moe_args* layer,
                        const finegemm_ep_options* how, const finegemm_moe_options* options, finegemm_error* error) {
    return guarded(error, [&] {
        require(context, "context", kMakeContext);
        require(communicator, "communicator", kMakeCommunicator);
        require(layer, "layer");
        ep_moe(context->context, communicator->communicator, to_args(*layer), to_how(how),
               options ? to_options(*options) : MoeOptions{});
    });
}

int32_t finegemm_ep_four_bit_moe(finegemm_context* context, finegemm_communicator* communicator,
                                 const finegemm_moe_args* layer, const finegemm_four_bit_weights* gate_up,
                                 const finegemm_four_bit_weights* down, const finegemm_ep_options* how,
                                 const finegemm_moe_options* options, finegemm_error* error) {
    return guarded(error, [&] {
        require(context, "context", kMakeContext);
        require(communicator, "communicator", kMakeCommunicator);
        require(layer, "layer");
        ep_moe(context->context, communicator->communicator, to_args(*layer, gate_up, down), to_how(how),
               options ? to_options(*options) : MoeOptions{});
    });
}

int32_t finegemm_ep_moe_workspace_bytes(const finegemm_moe_shape* shape, int32_t ranks, int64_t capacity,
                                        int64_t* bytes, finegemm_error* error) {
    return guarded(error, [&] {
        require(shape, "shape");
        require(bytes, "bytes");
        *bytes = ep_moe_workspace_bytes(to_shape(known_part(*shape, "shape")), ranks, capacity);
    });
}
