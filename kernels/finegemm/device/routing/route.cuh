// The kernel that gives each choice of a token a row of its expert: a counting sort by one cluster. Layer device.
#pragma once

#include <finegemm/routing/routing.h>
#include <finegemm/device/either.cuh>
#include <finegemm/device/ptx/control.cuh>
#include <finegemm/device/ptx/dynamic_shared.cuh>
#include <finegemm/device/ptx/mbarrier.cuh>
#include <finegemm/device/routing/choices.cuh>
#include <finegemm/device/warp.cuh>

namespace finegemm::device {

/// The lanes of a converged warp that have the same number, at most `most`.
__device__ inline uint32_t lanes_with_same(uint32_t x, uint32_t most) {
    uint32_t lanes = ~0u;
    for (uint32_t bits = most; bits != 0; bits /= 2, x /= 2) {
        const uint32_t odd = ptx::ballot(x % 2 != 0);
        lanes &= x % 2 != 0 ? odd : ~odd;
    }
    return lanes;
}

/// Choices of a warp, a lane each, in rounds, some of which are loaded together: where there are no more, once.
class ChoiceRounds {
public:
    __device__ ChoiceRounds(const RouteParams& p, ChoiceRange range) : p_(p), range_(range), first_(range.end) {}

    /// Calls visit(choice, peers) for each round. Peers: lanes that chose the same expert.
    template <typename Visit>
    __device__ void for_each(const Visit& visit) {
        for (uint32_t first = range_.begin; first < range_.end; first += kAtOnce * kWarpSize) {
            if (first != first_) load(first);
#pragma unroll
            for (uint32_t u = 0; u < kAtOnce; ++u)
                if (first + u * kWarpSize < range_.end) visit(choices_[u], peers_[u]);
        }
    }

private:
    static constexpr uint32_t kAtOnce = 4;

    __device__ void load(uint32_t first) {
        first_ = first;
#pragma unroll
        for (uint32_t u = 0; u < kAtOnce; ++u) {
            const uint32_t number = first + u * kWarpSize + ptx::lane();
            choices_[u] = load_choice(p_, number, number < range_.end);
        }
#pragma unroll
        for (uint32_t u = 0; u < kAtOnce; ++u)
            if (first + u * kWarpSize < range_.end) peers_[u] = lanes_with_same(choices_[u].expert, p_.places.experts);
    }

    const RouteParams& p_;
    const ChoiceRange range_;
    uint32_t first_;
    Choice choices_[kAtOnce];
    uint32_t peers_[kAtOnce];
};

/// Sums over the threads before this one. All threads call it.
__device__ inline uint32_t sum_before(uint32_t x, RouteShared& shared) {
    const uint32_t warp = threadIdx.x / kWarpSize, up_to = sum_up_to(x);
    if (threadIdx.x % kWarpSize == kWarpSize - 1) shared.sums[warp] = up_to;
    __syncthreads();  // the warps' sums are there
    const uint32_t of_warp = shared.sums[threadIdx.x % RouteConfig::warps()];
    return ptx::value_of(sum_up_to(of_warp) - of_warp, warp) + up_to - x;
}

template <RouteConfig C>
using RouteSharedOf = Either<(C.ctas > 1), RouteClusterShared, RouteShared>;

/// How many choices of this thread's expert there are.
struct ExpertTotals {
    uint32_t all, before;  // of all CTAs, of those before this one
};

/// Each CTA of a cluster tells all of them what it has, and waits for nothing but what they tell it. All threads come
/// here first.
__device__ inline void expect_totals(const RouteParams&, RouteShared&) {}
__device__ inline void expect_totals(const RouteParams& p, RouteClusterShared& shared) {
    if (threadIdx.x == 0) {
        const ptx::SmemAddr told = ptx::smem_address(&shared.told);
        ptx::mbarrier_init(told, 1);
        ptx::fence_mbarrier_init();
        ptx::mbarrier_arrive_expect_tx(told, kMostRouteCtas * p.places.experts * sizeof(uint32_t));
    }
    ptx::cluster_arrive_relaxed();
}
__device__ inline ExpertTotals exchange_totals(const RouteParams&, RouteShared&, uint32_t own) { return {own, 0}; }
__device__ inline ExpertTotals exchange_totals(const RouteParams& p, RouteClusterShared& shared, uint32_t own) {
    const uint32_t e = threadIdx.x, rank = ptx::cluster_rank();
    const ptx::SmemAddr told = ptx::smem_address(&shared.told), to = ptx::smem_address(&shared.totals[rank][e]);
    ptx::cluster_wait();  // the other CTAs have begun, and have made their mbarriers
    if (e < p.places.experts)
#pragma unroll
        for (uint32_t r = 0; r < kMostRouteCtas; ++r)
            ptx::st_async(ptx::map_to_rank(to, r), own, ptx::map_to_rank(told, r));
    while (!ptx::mbarrier_try_wait_cluster(told, 0)) {}
    // Nobody writes here any more: a CTA may end when it likes.
    ExpertTotals totals{};
#pragma unroll
    for (uint32_t r = 0; r < kMostRouteCtas; ++r) {
        const uint32_t of_cta = shared.totals[r][e];
        totals.all += of_cta;
        totals.before += r < rank ? of_cta : 0;
    }
    return totals;
}

/// Choices of each warp become where its first one's row is; what the warps before it and the other CTAs have is known
/// then. This thread has one expert.
template <RouteConfig C>
__device__ void place_experts(const RouteParams& p, RouteSharedOf<C>& shared) {
    const uint32_t e = threadIdx.x, rank = C.ctas > 1 ? ptx::cluster_rank() : 0;
    const bool exists = e < p.places.experts;
    uint32_t own = 0;
    if (exists)
#pragma unroll
        for (uint32_t w = 0; w < C.warps(); ++w) {
            const uint32_t of_warp = shared.counts[w][e];
            shared.counts[w][e] = own;
            own += of_warp;
        }
    const ExpertTotals totals = exchange_totals(p, shared, own);
    const uint32_t all = exists ? totals.all : 0, taken = sum_before(p.places.taken(all), shared);
    const ExpertRows rows = p.places.of(e, taken, all);
    if (!exists) return;
    const uint32_t first = (p.places.masked() ? rows.begin : taken) + totals.before;
#pragma unroll
    for (uint32_t w = 0; w < C.warps(); ++w) shared.counts[w][e] += first;
    shared.ends[e] = rows.end, shared.nexts[e] = rows.next;
    if (rank > 0) return;
    if (p.stored) ptx::store_global(p.stored + e, 0u);
    if (p.places.form == RouteForm::Indices) return;
    const bool offsets = p.places.form == RouteForm::Offsets;
    ptx::store_global(p.numbers + e, p.places.masked() ? rows.end - rows.begin : offsets ? rows.begin : rows.end);
    if (offsets && e + 1 == p.places.experts) ptx::store_global(p.numbers + e + 1, rows.end);
}

/// Rows of no choice, but where groups are masked.
template <RouteConfig C>
__device__ void mark_padding(const RouteParams& p, const RouteShared& shared, uint32_t warp_of_grid) {
    const bool indices = p.places.form == RouteForm::Indices;
    if (p.places.masked() || (!p.permutation && !indices)) return;
    const auto mark = [&](uint32_t row) {
        if (p.permutation) ptx::store_global(p.permutation + row, static_cast<uint32_t>(kNoRow));
        if (indices) ptx::store_global(p.numbers + row, static_cast<uint32_t>(kNoRow));
    };
    for (uint32_t e = warp_of_grid; e < p.places.experts; e += C.ctas * C.warps())
        for (uint32_t row = shared.ends[e] + ptx::lane(); row < shared.nexts[e]; row += kWarpSize) mark(row);
    for (uint32_t row = shared.nexts[p.places.experts - 1] + warp_of_grid * kWarpSize + ptx::lane();
         row < p.places.rows; row += C.ctas * C.threads())
        mark(row);
}

/// The grid is one cluster: rows follow the order of tokens, and of their choices, in each expert.
template <RouteConfig C>
__device__ void route(const RouteParams& p) {
    static_assert(C.ctas == 1 || C.ctas == kMostRouteCtas);
    auto& shared = ptx::dynamic_shared_object<RouteSharedOf<C>>();
    ptx::grid_launch_dependents();
    expect_totals(p, shared);
    ptx::grid_dependency_wait();
    const uint32_t warp = threadIdx.x / kWarpSize, lane = ptx::lane();
    const uint32_t warp_of_grid = (C.ctas > 1 ? ptx::cluster_rank() : 0) * C.warps() + warp;
    const ChoiceRange range = C.choices(p.choices, warp_of_grid);
    uint32_t* const counts = shared.counts[warp];
    for (uint32_t e = lane; e < p.places.experts; e += kWarpSize) counts[e] = 0;
    __syncwarp();  // they are zero
    ChoiceRounds rounds(p, range);
    rounds.for_each([&](const Choice& choice, uint32_t peers) {
        if (choice.expert < p.places.experts && lane == ptx::lowest_bit(peers))
            counts[choice.expert] += ptx::count_bits(peers);
        __syncwarp();  // what the next round adds to is there
    });
    __syncthreads();  // the warps have counted
    place_experts<C>(p, shared);
    __syncthreads();  // rows are known
    rounds.for_each([&](const Choice& choice, uint32_t peers) {
        const bool local = choice.expert < p.places.experts;
        const uint32_t next = local ? counts[choice.expert] : 0;
        const uint32_t row = next + ptx::count_bits(peers & ((1u << lane) - 1));
        const bool fits = local && row < p.places.limit(choice.expert);
        __syncwarp();  // all lanes have read it
        if (local && lane == ptx::lowest_bit(peers)) counts[choice.expert] = next + ptx::count_bits(peers);
        __syncwarp();  // the next round reads it
        ptx::store_global_if(choice.number < range.end, p.inverse + choice.token * p.inverse_row_stride + choice.slot,
                             fits ? row : static_cast<uint32_t>(kNoRow));
        ptx::store_global_if(fits && p.permutation, p.permutation + row, choice.number);
        ptx::store_global_if(fits && p.places.form == RouteForm::Indices, p.numbers + row, choice.expert);
    });
    mark_padding<C>(p, shared, warp_of_grid);
}

}  // namespace finegemm::device
