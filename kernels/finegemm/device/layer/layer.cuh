// A layer of experts for few tokens as one kernel: tokens are quantised, both products and the activation follow, and
// sums over experts. Loads of weights never wait for what they are multiplied with. CTAs take tickets of tiles one
// after the other, and wait for tiles with lower tickets alone, whose CTAs run: how many do at once changes nothing but
// time. Layer device.
#pragma once

#include <finegemm/device/layer/load.cuh>
#include <finegemm/device/layer/multiply.cuh>
#include <finegemm/device/layer/publish.cuh>
#include <finegemm/device/layer/tokens.cuh>

namespace finegemm::device {

template <LayerConfig C>
__device__ void make_layer_barriers(LayerShared<C>& shared) {
    const auto make = [](uint64_t& barrier, uint32_t arrivals) { ptx::mbarrier_init(address_of(&barrier), arrivals); };
    for (uint32_t i = 0; i < C.stages(); ++i)
        make(shared.full[i], 2), make(shared.empty[i], 4), make(shared.armed[i], 1);
    for (uint32_t i = 0; i < C.kScales; ++i) make(shared.scales_full[i], 1), make(shared.scales_empty[i], 4);
    for (uint32_t i = 0; i < C.kPublishers; ++i) make(shared.given[i], 4), make(shared.taken[i], 1);
    for (uint32_t i = 0; i < C.kTiles; ++i) make(shared.tile_known[i], 1);
    shared.stages_armed = 0, shared.rows_missing = 0;
    ptx::fence_mbarrier_init();
}

/// What comes before the first loads of weights, by the warp that issues them: tickets and ids are on their way at
/// once.
template <LayerConfig C>
__device__ void begin_weights(const LayerRole<C>& role) {
    uint32_t ticket = 0;
    if (ptx::lane() == 0) ticket = ptx::add_relaxed(role.counters + LayerCounters::kTickets, 1);
    const auto choices = LaneChoices::load(role.p);
    if (ptx::lane() == 0) make_layer_barriers(role.shared);
    list_groups(role, choices);
    if (ptx::lane() == 0) role.shared.first_ticket = ticket;
    __syncwarp();
    ptx::named_barrier_arrive(kListedBarrier, C.threads());  // groups, rows and barriers are there
}

/// The role of the math warps: they quantise tokens first; an only token before rows are known.
template <LayerConfig C>
__device__ void consume_layer(const LayerRole<C>& role) {
    if (threadIdx.x == 0)
        role.shared.first_task = ptx::add_relaxed(role.counters + LayerCounters::kTasks, C.kMathWarps);
    ptx::named_barrier_sync(kMathBarrier, C.math_threads());  // the first task is known
    const auto chunk = TokenChunk::load(role.p, role.shared.first_task + threadIdx.x / kWarpSize);
    if (role.p.tokens == 1) store_tokens(role, chunk);
    ptx::named_barrier_sync(kListedBarrier, C.threads());
    if (role.p.tokens > 1) store_tokens(role, chunk);
    multiply_tiles(role);
}

/// When all CTAs have come to their end, the last one leaves counters as they were.
template <LayerConfig C>
__device__ void end_layer(const LayerRole<C>& role) {
    const LayerParams& p = role.p;
    __syncthreads();  // all roles have ended
    if (threadIdx.x == 0)
        role.shared.is_last = ptx::add_acq_rel(role.counters + LayerCounters::kCtas, 1) + 1 == gridDim.x;
    __syncthreads();
    if (!role.shared.is_last) return;
    const uint32_t words = LayerCounters::words(role.shared.groups, p.pair_blocks(), p.y_tiles());
    for (uint32_t i = threadIdx.x; i < words; i += C.threads()) ptx::store_global(role.counters + i, 0u);
}

template <LayerConfig C>
__device__ void expert_layer(const LayerParams& p, uint32_t* counters) {
    const LayerRole<C> role{p, ptx::dynamic_shared_object_aligned<LayerShared<C>>(),
                            counters + p.slot * LayerCounters::kWords};
    const uint32_t warp = ptx::broadcast(threadIdx.x / kWarpSize);
    ptx::grid_dependency_wait();
    ptx::grid_launch_dependents();
    if (warp == C.kWeightsWarp) {
        begin_weights(role);
        if (ptx::lane() == 0) load_weights(role);
        __syncwarp();
    } else if (warp == C.kTokensWarp) {
        ptx::named_barrier_sync(kListedBarrier, C.threads());
        if (ptx::lane() == 0) load_rows(role);
        __syncwarp();
    } else if (warp >= C.kFirstPublisher) {
        ptx::named_barrier_sync(kListedBarrier, C.threads());
        publish_tiles(role, warp - C.kFirstPublisher);
    } else {
        consume_layer(role);
    }
    end_layer(role);
}

}  // namespace finegemm::device
