// The kth largest of many words, by counting values of digits. Layer device.
#pragma once

#include <finegemm/device/topk/row.cuh>
#include <finegemm/device/warp.cuh>

namespace finegemm::device {

/// All threads of the cluster that has a row.
template <TopkConfig C>
__device__ void sync_cluster() {
    if (C.ctas > 1) {
        ptx::cluster_arrive();
        ptx::cluster_wait();
    } else {
        __syncthreads();
    }
}

/// How often each value of a digit occurs in the words of a cluster.
template <TopkConfig C>
class TopkCounts {
public:
    __device__ explicit TopkCounts(TopkShared<C>& shared) : shared_(shared) { clear(); }

    /// All counts are zero behind the next barrier.
    __device__ void clear() {
        const ptx::SmemAddr counts = ptx::smem_address(&shared_.placing.counts[0][0]);
        for (uint32_t i = threadIdx.x; i < kTurns * kTopkBins / 4; i += C.threads())
            ptx::store_shared_words_x4(counts + i * 16, {});
    }

    __device__ void add(uint32_t value) { atomicAdd(&shared_.placing.counts[turn_][value], 1u); }

    /// Counts in all CTAs, which is faster than that each reads the counts of all where few words are left.
    __device__ void add_everywhere(uint32_t value) {
        const ptx::SmemAddr own = ptx::smem_address(&shared_.placing.counts[turn_][value]);
#pragma unroll 1
        for (uint32_t r = 0; r < C.ctas; ++r) ptx::add_cluster(ptx::map_to_rank(own, r), 1);
    }

    /// Finds the value that the `wanted`th largest word has, if there are as many. Calls visit(value, count) for each,
    /// on one thread. Ends when all threads know, with counts of zero. `everywhere`: they have been counted so.
    template <typename Visit>
    __device__ TopkFound find(uint32_t wanted, const Visit& visit, bool everywhere = false) {
        constexpr uint32_t kEach = kTopkBins / C.threads();
        static_assert(kEach == 4);
        const uint32_t thread = ptx::thread(), first = kTopkBins - (thread + 1) * kEach;  // thread 0 has the largest
        const uint32_t rank = C.ctas > 1 ? ptx::cluster_rank() : 0;
        sync_cluster<C>();  // all have counted
        const ptx::SmemAddr at = ptx::smem_address(&shared_.placing.counts[turn_][first]);
        const uint32_t last = turn_ > 0 ? turn_ - 1 : kTurns - 1;
        turn_ = turn_ + 1 < kTurns ? turn_ + 1 : 0;
        ptx::Words4 counts = ptx::load_shared_words_x4(at);
        if (C.ctas > 1 && !everywhere)
#pragma unroll 2  // all at once would spill
            for (uint32_t i = 1; i < C.ctas; ++i) {
                const ptx::Words4 more = ptx::load_cluster_x4(ptx::map_to_rank(at, (rank + i) % C.ctas));
#pragma unroll
                for (uint32_t u = 0; u < kEach; ++u) counts.w[u] += more.w[u];
            }
        // One CTA clears the counts that it has just read. A cluster clears those of the turn before, which nobody
        // reads any more, and to which nobody adds before the next barrier.
        ptx::store_shared_words_x4(ptx::smem_address(&shared_.placing.counts[last][first]), {});
        const uint32_t warp = thread / kWarpSize, lane = ptx::lane();
        const uint32_t own = counts.w[0] + counts.w[1] + counts.w[2] + counts.w[3], of_warp = ptx::sum_of_lanes(own);
        if (lane == 0) shared_.sums[warp] = of_warp;
        __syncthreads();  // the warps' sums are there, and what was found before has been read
        uint32_t before = ptx::sum_of_lanes(lane < warp ? shared_.sums[lane % C.warps()] : 0);
#pragma unroll
        for (uint32_t u = 0; u < kEach; ++u) visit(first + u, counts.w[u]);
        if (before < wanted && wanted <= before + of_warp) {  // one warp has it
            before += sum_up_to(own) - own;
#pragma unroll
            for (uint32_t u = kEach; u-- > 0;) {
                if (before < wanted && wanted <= before + counts.w[u]) shared_.found = {first + u, before, counts.w[u]};
                before += counts.w[u];
            }
        }
        __syncthreads();  // it has been found
        return shared_.found;
    }
    __device__ TopkFound find(uint32_t wanted, bool everywhere = false) {
        return find(wanted, [](uint32_t, uint32_t) {}, everywhere);
    }

private:
    static constexpr uint32_t kTurns = TopkPlacing<C>::kCounts;

    TopkShared<C>& shared_;
    uint32_t turn_ = 0;
};

/// The upper bits, but `shift`, of a word that was found by its digits: it is the `wanted`th of the `equal` words that
/// agree in them.
struct TopkWord {
    uint32_t word, wanted, equal, shift;

    /// Where all that agree are wanted, the other bits do not matter.
    __device__ bool all_are_wanted() const { return wanted == equal; }
    __device__ uint32_t least() const { return word << shift; }
};

/// Keys as words.
template <typename Source>
struct TopkKeyWords {
    const Source& source;

    template <typename Visit>
    __device__ void for_each(const Visit& visit) const {
        source.for_each([&](uint32_t key, uint32_t) { visit(key); });
    }
};
/// Columns of keys that equal one, as words that fall with them.
template <typename Source>
struct TopkColumnWords {
    const Source& source;
    uint32_t key;

    template <typename Visit>
    __device__ void for_each(const Visit& visit) const {
        source.for_each([&](uint32_t of_column, uint32_t column) {
            if (of_column == key) visit(~column);
        });
    }
};

/// Finds digits behind the first one, up to `digits` in all, or until `few` words agree, or all that do are wanted.
template <TopkConfig C, typename Words>
__device__ TopkWord find_behind(TopkCounts<C>& counts, TopkFound found, uint32_t wanted, const Words& words,
                                uint32_t few, uint32_t digits = kTopkDigits) {
    TopkWord word{found.digit, wanted - found.before, found.count, topk_digit_shift(0)};
#pragma unroll 1
    for (uint32_t i = 1; i < digits && word.equal > few && !word.all_are_wanted(); ++i) {
        const uint32_t before = word.shift, shift = topk_digit_shift(i);
        const bool everywhere = C.ctas > 1 && i == kTopkDigits - 1;
        words.for_each([&](uint32_t x) {
            if (x >> before != word.word) return;
            if (everywhere) counts.add_everywhere(topk_digit(x, i));
            else counts.add(topk_digit(x, i));
        });
        found = counts.find(word.wanted, everywhere);
        word = {word.word << (before - shift) | found.digit, word.wanted - found.before, found.count, shift};
    }
    return word;
}

/// Counts first digits; 0 is no word.
template <TopkConfig C>
__device__ void count_first(TopkCounts<C>& counts, uint32_t word) {
    if (word != 0) counts.add(topk_digit(word, 0));
}

/// What is selected of few keys of a CTA, those that agree with `word`: they are compared with each other.
template <TopkConfig C, typename Source>
__device__ TopkLeast find_among(TopkShared<C>& shared, const Source& source, const TopkWord& word) {
    uint64_t* const gathered = shared.placing.gathered;
    source.for_each([&](uint32_t key, uint32_t column) {
        if (key >> word.shift == word.word) gathered[atomicAdd(&shared.gathered, 1u)] = topk_ranked(key, column);
    });
    __syncthreads();  // all are there
    if (threadIdx.x < word.equal) {
        const uint64_t own = gathered[threadIdx.x];
        const auto key = static_cast<uint32_t>(own >> 32);
        uint32_t above = 0, equal_below = 0;
#pragma unroll 4
        for (uint32_t i = 0; i < word.equal; ++i) {
            const uint64_t other = gathered[i];
            above += other > own ? 1 : 0;
            equal_below += other < own && other >> 32 == key ? 1 : 0;
        }
        if (above + 1 == word.wanted) shared.least = {key, equal_below > 0 ? topk_column(own) : ~0u};
    }
    __syncthreads();  // it has been found
    return shared.least;
}

/// What is selected if k keys are: there are more. `first`: the digit that was found.
template <TopkConfig C, typename Source>
__device__ TopkLeast find_least(TopkShared<C>& shared, TopkCounts<C>& counts, const Source& source,
                                const TopkFound& first, uint32_t k) {
    const uint32_t few = C.ctas == 1 ? kTopkGathered : 0;
    const TopkWord least = find_behind(counts, first, k, TopkKeyWords<Source>{source}, few);
    if (least.all_are_wanted()) return {least.least(), ~0u};
    if (least.equal <= few) return find_among(shared, source, least);
    const TopkColumnWords<Source> columns{source, least.word};  // of the lowest ones the words are the largest
    columns.for_each([&](uint32_t word) { count_first(counts, word); });
    const TopkFound highest = counts.find(least.wanted);
    return {least.word, ~find_behind(counts, highest, least.wanted, columns, 0).least()};
}

}  // namespace finegemm::device
