// Counts of digits in a cluster that keeps a row. Layer device.
#pragma once

#include <finegemm/topk/topk.h>
#include <finegemm/device/ptx/control.cuh>
#include <finegemm/device/ptx/convert.cuh>
#include <finegemm/device/ptx/mbarrier.cuh>
#include <finegemm/device/topk/row.cuh>

namespace finegemm::device {

/// All threads of the cluster.
__device__ inline void sync_ctas() {
    ptx::cluster_arrive();
    ptx::cluster_wait();
}

/// The first of `count` places of this lane, of those that all lanes of a warp take together.
__device__ inline uint32_t take_places(uint32_t& taken, uint32_t count) {
    const uint32_t up_to = sum_up_to(count);
    uint32_t place = 0;
    if (ptx::lane() == kWarpSize - 1 && up_to > 0) place = atomicAdd(&taken, up_to);
    return ptx::value_of(place, kWarpSize - 1) + up_to - count;
}

/// Until the phase of this parity of an mbarrier of the CTA has completed; then the next one is waited for.
__device__ inline void wait_for(uint64_t& barrier, uint32_t& parity) {
    const ptx::SmemAddr at = ptx::smem_address(&barrier);
    while (!ptx::mbarrier_try_wait(at, parity)) {}
    parity ^= 1;
}

/// How often each value of a digit occurs: keys are counted in the CTA that has them.
template <TopkConfig C>
class TopkFewCounts {
public:
    /// All counts are zero, and mbarriers made, behind the next barrier of the cluster.
    __device__ explicit TopkFewCounts(TopkFewShared<C>& shared) : shared_(shared) {
        const ptx::SmemAddr counts = ptx::smem_address(&shared.counts[0]);
        for (uint32_t i = threadIdx.x; i < 3 * kTopkBins / 4; i += C.threads())
            ptx::store_shared_words_x4(counts + i * 16, {});
        if (threadIdx.x > 0) return;
        shared.added = 0;
        for (uint64_t& counted : shared.counted) ptx::mbarrier_init(ptx::smem_address(&counted), C.ctas);
        ptx::mbarrier_init(ptx::smem_address(&shared.told), 1);
        ptx::mbarrier_init(ptx::smem_address(&shared.sent), 1);
        ptx::fence_mbarrier_init();
    }

    __device__ void add(uint32_t value) { atomicAdd(&shared_.counts[value], 1u); }

    /// Finds the value that the `wanted`th largest digit of all CTAs has, if there are as many. Each CTA adds what it
    /// has counted in all: few values occur, mostly, and only those of which it has fewer than `wanted` keys above can
    /// be the one; `all_values`: all are added, and visit(value, count) is called for each. Sums and mbarriers are
    /// taken by turns: one clears the sums that it has read, and others come to these again only when all of its
    /// threads have come to the next ones.
    template <typename Visit>
    __device__ TopkFewFound find_in_cluster(uint32_t wanted, bool all_values, const Visit& visit) {
        const uint32_t lane = ptx::lane(), warp = threadIdx.x / kWarpSize;
        __syncthreads();  // all have counted
        const ptx::SmemAddr sums = ptx::smem_address(shared_.sums[turn_]);
        const ptx::SmemAddr counted = ptx::smem_address(&shared_.counted[turn_]);
        ptx::Words4 own = take(ptx::smem_address(&shared_.counts[first()]));
        const uint32_t up_to = sum_up_to(sum_of(own));
        if (lane == kWarpSize - 1) shared_.own[warp] = up_to;
        __syncthreads();  // all warps' sums are there
        uint32_t own_before = ptx::sum_of_lanes(lane < warp ? shared_.own[lane % C.warps()] : 0) + up_to - sum_of(own);
        uint32_t above = own_before, added = 0;
#pragma unroll
        for (uint32_t u = kEach; u-- > 0;) {
            const uint32_t count = own.w[u];
            if (above >= wanted && !all_values) own.w[u] = 0;
            added += own.w[u] > 0 ? 1 : 0;
            above += count;
        }
        uint32_t place = take_places(shared_.added, added);
#pragma unroll
        for (uint32_t u = 0; u < kEach; ++u)
            if (own.w[u] > 0) shared_.lists.all[place++] = (first() + u) | own.w[u] * kTopkBins;
        __syncthreads();  // all that is added is listed
        added = shared_.added;
        // Threads add one count each to one CTA: those of few warps would take 60 clocks for each.
        for (uint32_t i = threadIdx.x; i < added * C.ctas; i += C.threads()) {
            const uint32_t x = shared_.lists.all[i / C.ctas], r = i % C.ctas;
            ptx::add_async(ptx::map_to_rank(sums + x % kTopkBins * 4, r), x / kTopkBins, ptx::map_to_rank(counted, r));
        }
        if (threadIdx.x < C.ctas)  // one arrival of a CTA: each takes 16 clocks there
            ptx::mbarrier_arrive_expect_tx_cluster(ptx::map_to_rank(counted, threadIdx.x), added * 4);
        uint32_t parity = counted_parities_ >> turn_ & 1;
        wait_for(shared_.counted[turn_], parity);
        counted_parities_ ^= 1u << turn_, turn_ ^= 1;
        return find(take(sums + first() * 4), own, own_before, wanted, visit);
    }
    /// Counts of digits of what is listed, which each CTA has. `i`: of which digit.
    __device__ void add_listed(uint32_t i, uint32_t value) { atomicAdd(&shared_.listed_counts[i][value], 1u); }
    __device__ void clear_listed() {
        constexpr uint32_t kWords4 = sizeof(shared_.listed_counts) / sizeof(ptx::Words4);
        static_assert(kWords4 <= C.threads());
        if (threadIdx.x < kWords4)
            ptx::store_shared_words_x4(ptx::smem_address(shared_.listed_counts) + threadIdx.x * 16, {});
    }
    /// As find_in_cluster, by each warp for itself.
    __device__ TopkFound find_listed(uint32_t i, uint32_t wanted) const {
        constexpr uint32_t kValues = 1u << kTopkFewBits, kOfLane = kValues / kWarpSize;
        static_assert(kOfLane == 8);
        const uint32_t lane = ptx::lane(), first = kValues - (lane + 1) * kOfLane;  // lane 0 has the largest values
        const ptx::SmemAddr at = ptx::smem_address(&shared_.listed_counts[i][first]);
        const ptx::Words4 low = ptx::load_shared_words_x4(at), high = ptx::load_shared_words_x4(at + 16);
        const uint32_t all = sum_of(low) + sum_of(high);
        uint32_t before = sum_up_to(all) - all;
        const bool here = before < wanted && wanted <= before + all;
        TopkFound found{};
#pragma unroll
        for (uint32_t u = kOfLane; u-- > 0;) {
            const uint32_t count = u < 4 ? low.w[u % 4] : high.w[u % 4];
            if (before < wanted && wanted <= before + count) found = {first + u, before, count};
            before += count;
        }
        const uint32_t lane_of_it = ptx::highest_bit(ptx::ballot(here));
        return {ptx::value_of(found.digit, lane_of_it), ptx::value_of(found.before, lane_of_it),
                ptx::value_of(found.count, lane_of_it)};
    }

    /// Gathers few keys, each from the thread that calls it with one.
    __device__ void gather(uint32_t key) { gathered()[1 + atomicAdd(gathered(), 1u)] = key; }
    /// The `wanted`th largest of those, `count`, which are compared with each other.
    __device__ TopkFound find_gathered(uint32_t count, uint32_t wanted) {
        if (threadIdx.x < count) {
            const uint32_t own = gathered()[1 + threadIdx.x];
            uint32_t above = 0, equal = 0, equal_before = 0;
#pragma unroll 4
            for (uint32_t i = 0; i < count; ++i) {
                const uint32_t other = gathered()[1 + i];
                above += other > own ? 1 : 0, equal += other == own ? 1 : 0;
                equal_before += other == own && i < threadIdx.x ? 1 : 0;
            }
            if (above < wanted && wanted <= above + equal && equal_before == 0)
                static_cast<TopkFound&>(shared_.found) = {own, above, equal};
        }
        __syncthreads();  // it has been found
        return shared_.found;
    }

    /// Tells all CTAs of the cluster what this one lists.
    __device__ void tell(const TopkFewListing& listing) {
        const ptx::SmemAddr to = ptx::smem_address(&shared_.listings[ptx::cluster_rank()]);
        const ptx::SmemAddr told = ptx::smem_address(&shared_.told);
        const uint32_t rank = threadIdx.x;
        if (rank == 0) ptx::mbarrier_arrive_expect_tx(told, sizeof(shared_.listings));
        if (rank < C.ctas)
            ptx::st_async_x4(ptx::map_to_rank(to, rank), {{listing.above, listing.listed, 0, 0}},
                             ptx::map_to_rank(told, rank));
    }
    /// What the CTA of this lane's rank has told.
    __device__ TopkFewListing told() {
        wait_for(shared_.told, told_parity_);
        return ptx::lane() < C.ctas ? shared_.listings[ptx::lane() % C.ctas] : TopkFewListing{};
    }

    /// Gives all CTAs of the cluster the list of this one, `count` words, a multiple of 4, which have their place
    /// `at` those of all, `total`. Ends when those of all are here.
    __device__ void send(uint32_t count, uint32_t at, uint32_t total) {
        const ptx::SmemAddr list = ptx::smem_address(shared_.lists.own), to = ptx::smem_address(&shared_.lists.all[at]);
        const ptx::SmemAddr sent = ptx::smem_address(&shared_.sent);
        if (threadIdx.x == 0) ptx::mbarrier_arrive_expect_tx(sent, total * sizeof(uint32_t));
        for (uint32_t i = threadIdx.x * 16; i < count * 4; i += C.threads() * 16) {
            const ptx::Words4 words = ptx::load_shared_words_x4(list + i);
#pragma unroll 2
            for (uint32_t r = 0; r < C.ctas; ++r)
                ptx::st_async_x4(ptx::map_to_rank(to + i, r), words, ptx::map_to_rank(sent, r));
        }
        wait_for(shared_.sent, sent_parity_);
    }

    /// Makes of `own` the sum over the warps before this one, and of `all` that of all threads.
    __device__ void sum_before(uint32_t& own, uint32_t& all) {
        const uint32_t warp = threadIdx.x / kWarpSize, lane = ptx::lane();
        own = ptx::sum_of_lanes(own), all = ptx::sum_of_lanes(all);
        if (lane == 0) shared_.own[warp] = own, shared_.warps[warp] = all;
        __syncthreads();  // all warps' sums are there
        own = ptx::sum_of_lanes(lane < warp ? shared_.own[lane % C.warps()] : 0);
        all = ptx::sum_of_lanes(lane < C.warps() ? shared_.warps[lane % C.warps()] : 0);
    }

private:
    static constexpr uint32_t kEach = kTopkBins / C.threads();
    static_assert(kEach == 4);

    /// How many, and what: where counts of the last digit would be, which nobody wants then.
    __device__ uint32_t* gathered() const { return shared_.listed_counts[2]; }

    /// Thread 0 has the largest values.
    __device__ static uint32_t first() { return kTopkBins - (threadIdx.x + 1) * kEach; }
    /// Leaves zeros.
    __device__ static ptx::Words4 take(ptx::SmemAddr at) {
        const ptx::Words4 words = ptx::load_shared_words_x4(at);
        ptx::store_shared_words_x4(at, {});
        return words;
    }
    __device__ static uint32_t sum_of(const ptx::Words4& x) { return x.w[0] + x.w[1] + x.w[2] + x.w[3]; }

    /// The warp that has the value finds it among its lanes'.
    template <typename Visit>
    __device__ TopkFewFound find(const ptx::Words4& counts, const ptx::Words4& own, uint32_t own_before,
                                 uint32_t wanted, const Visit& visit) {
        const uint32_t warp = threadIdx.x / kWarpSize, lane = ptx::lane();
        const uint32_t all = ptx::sum_of_lanes(sum_of(counts));
        if (lane == 0) shared_.own[warp] = all;
        __syncthreads();  // all warps' sums are there, and what was found before has been read
        if (threadIdx.x == 0) shared_.added = 0;
        uint32_t before = ptx::sum_of_lanes(lane < warp ? shared_.own[lane % C.warps()] : 0);
#pragma unroll
        for (uint32_t u = 0; u < kEach; ++u) visit(first() + u, counts.w[u]);
        if (before < wanted && wanted <= before + all) {
            before += sum_up_to(sum_of(counts)) - sum_of(counts);
#pragma unroll
            for (uint32_t u = kEach; u-- > 0;) {
                if (before < wanted && wanted <= before + counts.w[u])
                    shared_.found = {{first() + u, before, counts.w[u]}, own_before, own.w[u]};
                before += counts.w[u], own_before += own.w[u];
            }
        }
        __syncthreads();  // it has been found, and counts are zero
        return shared_.found;
    }

    TopkFewShared<C>& shared_;
    uint32_t turn_ = 0, counted_parities_ = 0, told_parity_ = 0, sent_parity_ = 0;
};

}  // namespace finegemm::device
