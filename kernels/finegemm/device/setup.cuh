// What a CTA does before its roles part: barriers, tensor maps, first loads. Layer device.
#pragma once

#include <finegemm/device/load/grouped_operands.cuh>
#include <finegemm/device/load/operands.cuh>
#include <finegemm/device/load/pieces.cuh>
#include <finegemm/device/pipeline/barriers.cuh>
#include <finegemm/device/schedule/tiles.cuh>

namespace finegemm::device {

/// The first warp after the math warps; the scale warps follow.
template <GemmConfig C>
inline constexpr uint32_t kTmaWarp = C.math_warpgroups * 4;

/// Prefetches the tensor maps, by the first scale warp, so that the first loads need not wait for them.
template <GemmConfig C>
__device__ void prefetch_tensor_maps(const Params<C>& p) {
    constexpr uint32_t kFirst = 8;  // any lane would do, but with others ptxas numbers all registers anew
    const uint32_t lane = threadIdx.x % kWarpSize;
    if (lane == kFirst) ptx::prefetch_tensor_map(p.m < C.tile_m ? &p.a.last : &p.a.whole);
    if (lane == kFirst + 1) ptx::prefetch_tensor_map(&p.b.whole);
    if constexpr (n_segments(C) > 1)
        if (lane >= kFirst + 2 && lane < kFirst + 1 + n_segments(C))
            ptx::prefetch_tensor_map(&p.b_segments[lane - (kFirst + 2)]);
}

/// A grouped kernel prefetches its tensor maps while the sizes of groups are on their way, or when roles part.
template <GemmConfig C>
inline constexpr bool kPrefetchesMapsEarly = C.b.scaling == Scaling::None || C.counts_choices;

/// Prefetches the tensor maps of a grouped kernel, by a math thread.
template <GemmConfig C>
__device__ void prefetch_tensor_maps_of_groups(const GroupedParams& p) {
    ptx::prefetch_tensor_map(&p.b.whole);
    ptx::prefetch_tensor_map(&p.a.whole);
#pragma unroll
    for (uint32_t segment = 1; segment < n_segments(C); ++segment) ptx::prefetch_tensor_map(&p.b_segments[segment - 1]);
#pragma unroll
    for (uint32_t i = 0; i < kRowBoxes; ++i) ptx::prefetch_tensor_map(&p.a_rows[i]);
}

/// Meets the other CTAs of the cluster, by all warps: with multicast a CTA waits until its neighbours' barriers exist;
/// one that only sends partial sums waits when it does (SplitKReduce).
template <GemmConfig C>
__device__ void meet_neighbours() {
    if (C.cluster > 1) ptx::cluster_arrive_relaxed();
    if constexpr (kPlan<C>.producers_served > 1) ptx::cluster_wait();
}

/// Set-up of dense kernels. The TMA warp makes the barriers that its loads arrive at and begins, while the others wait
/// for the rest: what comes before the first load is 3% of a kernel of 10 us. It waits for empty stages only after the
/// first round, and for the barriers of these before that.
template <GemmConfig C>
__device__ void set_up_and_load(const Params<C>& p, const Shared<C>& smem) {
    const bool is_tma = threadIdx.x / kWarpSize == kTmaWarp<C>;
    if (is_tma) {
        if (ptx::elect_one()) make_full_barriers(smem);
    } else {
        if (threadIdx.x == 0) make_other_barriers(smem);
    }
    __syncwarp();
    if (is_tma) {
        ptx::named_barrier_arrive(kSetUpBarrier, C.threads());
        meet_neighbours<C>();  // now, as no warp gets past its arrival alone
        if (ptx::elect_one()) load_first_round<C>(p, smem, scheduler_of<C>(p, {}));
        __syncwarp();
        ptx::named_barrier_sync(kFirstRoundBarrier, C.threads());
    } else {
        ptx::named_barrier_sync(kSetUpBarrier, C.threads());
        ptx::named_barrier_arrive(kFirstRoundBarrier, C.threads());
        meet_neighbours<C>();
    }
    converge_hint<C>();
}

/// The barriers of grouped kernels: nobody goes on before all exist.
template <GemmConfig C>
__device__ void make_barriers(const Shared<C>& smem) {
    if (threadIdx.x == 0) make_other_barriers(smem);
    if (threadIdx.x == kTmaWarp<C> * kWarpSize) make_full_barriers(smem);
    __syncthreads();
    meet_neighbours<C>();
}

/// Is the warpgroup one of the producers'? And the number of such a thread among them.
template <GemmConfig C>
__device__ bool is_producer_warpgroup(uint32_t warpgroup) {
    return C.producer_warpgroups() > 1 ? warpgroup >= C.math_warpgroups : warpgroup == C.math_warpgroups;
}
template <GemmConfig C>
__device__ uint32_t producer_thread() {
    return C.producer_warpgroups() > 1 ? threadIdx.x - C.math_warpgroups * 128 : threadIdx.x % 128;
}

/// This warp is a producer. In kernels for groups of rows ptxas has to be told that its lanes agree.
template <GemmConfig C>
__device__ bool is_producer(const GemmParams&) {
    return is_producer_warpgroup<C>(threadIdx.x / 128);
}
template <GemmConfig C>
__device__ bool is_producer(const GroupedParams&) {
    return is_producer_warpgroup<C>(ptx::broadcast(threadIdx.x / 128));
}

/// Prefetches the scales that `rows` of `Rows` rows have in the first k-blocks to L2, by 128 threads: a sector of eight
/// each, of one row or of one k-block, as they lie.
template <uint32_t Rows>
__device__ inline void prefetch_scales(const ScaleView& s, uint32_t first_row, uint32_t rows, KRange k) {
    constexpr uint32_t kSector = 32 / sizeof(float), kRowSectors = Rows / kSector;
    const uint32_t i = threadIdx.x;
    const bool of_row = s.k_stride == 1;
    const uint32_t row = of_row ? i % Rows : i % kRowSectors * kSector,
                   kb = k.begin + (of_row ? i / Rows * kSector : i / kRowSectors);
    if (row < rows && kb < k.end) ptx::prefetch_global(s.data + (first_row + row) * s.mn_stride + kb * s.k_stride);
}

template <GemmConfig C>
inline constexpr bool kPrefetchesMxScales = C.mx() && C.a.scaling == Scaling::Mx;
template <GemmConfig C>
    requires(!kPrefetchesMxScales<C>)
__device__ void prefetch_mx_scales(const Params<C>&) {}
/// Prefetches the MX scales of the first k-blocks of this CTA's first tile, by a math warpgroup: their loads would else
/// wait in memory behind those of the operands that fill the ring, 5% of a kernel of 10 us. Nothing is read, so this
/// waits for no kernel before.
template <GemmConfig C>
    requires(kPrefetchesMxScales<C>)
__device__ void prefetch_mx_scales(const Params<C>& p) {
    if (threadIdx.x >= 128) return;
    const DenseScheduler scheduler = scheduler_of<C>(p, {});
    const Tile tile = scheduler.template tile<C>();
    prefetch_scales<C.tile_n>(p.sfb, tile.col, existing_rows(tile.col, C.tile_n, p.n), scheduler.k);
    prefetch_scales<C.tile_m>(p.sfa, tile.row, tile.rows, scheduler.k);
}

template <GemmConfig C>
__device__ GroupLayout::Ends set_up(const SegmentedParams& p, const Shared<C>& smem) {
    if (threadIdx.x / kWarpSize == kTmaWarp<C> + 1) prefetch_tensor_maps<C>(p);
    prefetch_mx_scales<C>(p);
    set_up_and_load<C>(p, smem);
    return {};
}
template <GemmConfig C>
__device__ GroupLayout::Ends set_up(const KGroupedParams& p, const Shared<C>& smem) {
    if (threadIdx.x / kWarpSize == kTmaWarp<C> + 1) prefetch_tensor_maps<C>(p);
    make_barriers<C>(smem);
    return {};
}
/// Prefetches this CTA's share of the D that the sums of pieces will be added to, by a warp: no cache has it, and the
/// kernel that adds waits for nothing else as long.
__device__ inline void prefetch_old_d(const OldRows& d, uint32_t rows) {
    const uint32_t count = d.data ? rows * d.lines.divisor : 0, lane = threadIdx.x % kWarpSize;
    for (uint32_t i = blockIdx.x * kWarpSize + lane; i < count; i += gridDim.x * kWarpSize) {
        const uint32_t row = d.lines.quotient(i), line = i - row * d.lines.divisor;
        ptx::prefetch_global(static_cast<const uint8_t*>(d.data) + row * d.row_bytes + line * kLineBytes);
    }
}

template <GemmConfig C>
__device__ GroupLayout::Ends set_up(const SummedParams& p, const Shared<C>& smem) {
    const bool prefetches = threadIdx.x / kWarpSize == kTmaWarp<C> + 1;
    if (prefetches) prefetch_tensor_maps<C>(p);
    set_up_and_load<C>(p, smem);
    if (prefetches) prefetch_old_d(p.old_d, p.m);
    return {};
}

/// Gives registers of a producer warpgroup to the math warpgroups, which take them in `consume`.
template <GemmConfig C>
__device__ void give_registers_back() {
    constexpr RegisterPlan kRegisters = kPlan<C>.registers;
    if constexpr (kRegisters.move()) ptx::setmaxnreg_dec<kRegisters.load>();
}

/// Set-up of kernels for groups of rows. Loads of the groups' sizes are issued first, and land when all barriers exist.
/// Then the producers begin the first tile, before roles part: code comes from memory, too, and straight-line code
/// comes sooner than the target of a jump. Returns the ends of the first spans, for the scheduler to go on from.
template <GemmConfig C>
__device__ GroupLayout::Ends set_up(const GroupedParams& p, const Shared<C>& smem) {
    GroupLayout::Ends ends;
    if (is_producer_warpgroup<C>(threadIdx.x / 128)) {
        if (!C.counts_choices) ptx::grid_dependency_wait();
        ends = GroupedMScheduler::ends_of_lane<C>(p, 0);
    }
    if (!C.counts_choices && threadIdx.x / kWarpSize == 1 && ptx::elect_one())
        prefetch_expected_b<C>(p, C.cluster > 1 ? ptx::cluster_rank() : 0);
    if (kPrefetchesMapsEarly<C> && threadIdx.x / kWarpSize == 2 && ptx::elect_one())
        prefetch_tensor_maps_of_groups<C>(p);
    make_barriers<C>(smem);
    if (is_producer<C>(p)) {
        give_registers_back<C>();
        const uint32_t warp = producer_thread<C>() / kWarpSize;
        if (C.counts_choices) begin_counted_tile<C>(p, smem, ends, warp);
        else begin_first_tile<C>(p, smem, ends, warp);
    }
    converge_hint<C>();
    return ends;
}

/// What a warp does first in its role. Producers give registers back; with groups of rows they have done so before
/// their first loads, and a math warp prefetches tensor maps.
template <GemmConfig C>
__device__ void start_producer(const GemmParams&) {
    give_registers_back<C>();
}
template <GemmConfig C>
__device__ void start_producer(const GroupedParams&) {}
template <GemmConfig C>
__device__ void start_consumer(const GemmParams&) {}
template <GemmConfig C>
__device__ void start_consumer(const GroupedParams& p) {
    if (!kPrefetchesMapsEarly<C> && threadIdx.x / kWarpSize == 0 && ptx::elect_one())
        prefetch_tensor_maps_of_groups<C>(p);
}

}  // namespace finegemm::device
