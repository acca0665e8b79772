// Argument checks of a layer over ranks. Layer api.
#include "ops/ep/checks.h"

#include "api/argument.h"
#include "ops/moe/checks.h"

namespace finegemm {

namespace {

void check_ranks(int64_t ranks, int64_t experts, int64_t capacity, int64_t hidden) {
    if (ranks < 1 || ranks > kMostExperts)
        reject("ranks", "is {}, must be from 1 to {}; pass how many there are", ranks, kMostExperts);
    if (ranks * experts > kMostExperts)
        reject("gate_up", "has {} experts on each of {} ranks, {} of all, must be at most {}; take fewer of them",
               experts, ranks, ranks * experts, kMostExperts);
    const int64_t most = most_rows(hidden) / ranks;
    if (capacity < 0 || capacity > most)
        reject("capacity", "is {}, must be from 0 to {} with {} ranks; 0 takes as many as are chosen", capacity, most,
               ranks);
}

void check_workspace(const EpMoeCall& call) {
    const ConstMatrix result = call.layer.out;
    const ConstMatrix memory{
        call.layer.workspace, DType::E4M3, 1, call.layer.workspace_bytes, call.layer.workspace_bytes, 1, call.device()};
    const Argument workspace{"workspace", memory}, out{"out", result}, x{"x", call.layer.x};
    const int64_t needed = memory_of(call.shape(), call.ranks(), call.how.capacity).bytes;
    if (call.layer.workspace_bytes < needed)
        reject("workspace", "has {} bytes, must have {}; ep_moe_workspace_bytes tells", call.layer.workspace_bytes,
               needed);
    workspace.check_pointer(alignment_on(call.device()));
    x.check_apart_from(workspace);
    out.check_apart_from(workspace);
}

/// What all calls with a memory have in common with the one that it was made for.
void check_memory(const EpMoeCall& call) {
    if (!call.memory) return;
    const PeerMemoryState& memory = *call.memory;
    const MoeShape s = call.shape(), &most = memory.most;
    if (memory.group != &call.group)
        reject("memory", "is that of another communicator; pass one that was made with this one");
    if (s.tokens > most.tokens)
        reject("x", "has {} tokens, but memory was made for at most {}; make it for more", s.tokens, most.tokens);
    if (s.choices != most.choices || s.hidden != most.hidden || s.experts != most.experts)
        reject("memory",
               "was made for {} choices, H = {}, {} experts, but these are {}, {}, {}; make one for this layer",
               most.choices, most.hidden, most.experts, s.choices, s.hidden, s.experts);
}

void check_counts(const EpMoeCall& call) {
    const ConstMatrix given = call.how.counts;
    if (!given.data && given.rows == 0 && given.cols == 0) return;
    const Argument counts{"counts", given};
    counts.check_dtype(DType::I32, "pass memory of i32");
    if (!counts.has_shape(1, call.ranks()))
        reject("counts", "has shape [{}, {}], must be [1, {}], one for each rank; pass memory of that shape",
               given.rows, given.cols, call.ranks());
    counts.check_device(call.device(), "out");
    counts.check_pointer(4);
    counts.check_rows(1);
}

}  // namespace

void check_ep_moe(const EpMoeCall& call) {
    MoeArgs layer = call.layer;
    layer.workspace = nullptr, layer.workspace_bytes = 0;
    if (call.options.rows != 0)
        reject("rows", "is {}, must be 0: capacity bounds the rows of experts here; pass that", call.options.rows);
    if (call.options.weights_first)
        reject("weights_first", "is set, must not be: weights stay where their tokens are; leave it out");
    for (const auto& [name, given] :
         {std::pair("gate_up_bias", call.options.gate_up_bias), {"down_bias", call.options.down_bias}})
        if (given.data) reject(name, "is given, must not be: a layer over ranks has no biases; leave it out");
    check_moe(MoeCall{layer, call.options});
    if (layer.first != 0)
        reject("first", "is {}, must be 0: the first id of a rank is its number times its experts; leave it out",
               layer.first);
    check_ranks(call.ranks(), call.experts(), call.how.capacity, layer.x.cols);
    if (call.device() != call.group.device())
        reject("out", "is on another device than the communicator's rank; pass memory of the device of that rank");
    check_counts(call);
    check_memory(call);
    if (call.layer.workspace && call.how.capacity == 0)
        reject("workspace",
               "is given, but capacity is 0, whose memory depends on what is chosen; pass a capacity, or "
               "leave it out");
    if (call.layer.workspace) check_workspace(call);
}

void check_peer_memory(const MoeShape& most, int64_t ranks) {
    check_moe(most);
    check_ranks(ranks, most.experts, 0, most.hidden);
    if (ranks > kMostPeers)
        reject("ranks", "are {}, must be at most {} that reach each other; leave memory out", ranks, kMostPeers);
}

int64_t ep_moe_workspace_bytes(const MoeShape& shape, int32_t ranks, int64_t capacity) {
    check_moe(shape);
    check_ranks(ranks, shape.experts, capacity, shape.hidden);
    if (capacity == 0) reject("capacity", "is 0, whose memory depends on what is chosen; pass one of at least 1");
    return memory_of(shape, ranks, capacity).bytes;
}

}  // namespace finegemm
