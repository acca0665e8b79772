// The kernel that selects the k largest numbers of a row: a radix selection by one cluster. Layer device.
// Three passes count the values of a digit each, of the keys that agree in the digits before, until the least key that
// is selected is known. All keys are compared with it, and what is selected gets its place in the order of columns: no
// result depends on the order in which threads count.
#pragma once

#include <finegemm/topk/topk.h>
#include <finegemm/device/ptx/control.cuh>
#include <finegemm/device/ptx/convert.cuh>
#include <finegemm/device/ptx/dynamic_shared.cuh>
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

/// The row that a cluster selects from, and the part of it that is this warp's.
template <TopkConfig C>
class TopkRow {
public:
    __device__ TopkRow(const TopkParams& p, TopkShared& shared, uint32_t row, uint32_t rank)
        : logits_(p.logits + row * p.logits_stride),
          window_(p.window(row)),
          quads_(C.quads_of_warp(C.quads(window_, rank), threadIdx.x / kWarpSize)),
          shared_(shared) {}

    /// Rounds in which a warp has 128 columns, and each lane four of them, that are as far apart as there are lanes.
    __device__ uint32_t rounds() const { return ceil_div(quads_.count, kWarpSize); }
    /// The first of a lane's columns in a round.
    __device__ uint32_t column(uint32_t round) const { return first_column(round) + ptx::lane(); }

    /// Calls visit(key) for each column of a lane, and keeps keys. 0: of no number.
    template <typename Visit>
    __device__ void load(const Visit& visit) {
#pragma unroll 2
        for (uint32_t round = 0; round < rounds(); ++round) {
            const ptx::Words4 keys = keys_loaded(round);
            if (round < C.held())
#pragma unroll
                for (uint32_t u = 0; u < 4; ++u) held(round)[u * kWarpSize + ptx::lane()] = keys.w[u];
#pragma unroll
            for (uint32_t u = 0; u < 4; ++u) visit(keys.w[u]);
        }
    }
    /// The keys of a round, once they have been loaded.
    __device__ ptx::Words4 keys(uint32_t round) const {
        return round < C.held() ? words_held(round) : keys_loaded(round);
    }

private:
    __device__ uint32_t first_column(uint32_t round) const { return (quads_.first + round * kWarpSize) * 4; }
    /// Where the warp keeps the keys of a round, by column.
    __device__ uint32_t* held(uint32_t round) const {
        return &shared_.keys[round][threadIdx.x / kWarpSize * kWarpSize * 4];
    }
    __device__ ptx::Words4 words_held(uint32_t round) const {
        ptx::Words4 words;
#pragma unroll
        for (uint32_t u = 0; u < 4; ++u) words.w[u] = held(round)[u * kWarpSize + ptx::lane()];
        return words;
    }
    __device__ ptx::Words4 keys_loaded(uint32_t round) const {
        ptx::Words4 words;
#pragma unroll
        for (uint32_t u = 0; u < 4; ++u) {
            const uint32_t at = column(round) + u * kWarpSize;
            words.w[u] = ptx::load_global_l2_if(at < end(), logits_ + at);
        }
        return keys_of(words, round);
    }
    /// Behind the columns of this warp.
    __device__ uint32_t end() const { return min((quads_.first + quads_.count) * 4, window_.end); }
    __device__ ptx::Words4 keys_of(const ptx::Words4& words, uint32_t round) const {
        const uint32_t first = first_column(round);
        const bool all = first >= window_.begin && first + 4 * kWarpSize <= end();  // of the warp's
        ptx::Words4 keys;
#pragma unroll
        for (uint32_t u = 0; u < 4; ++u) {
            const uint32_t bits =
                float_bits(ptx::fma(float_of_bits(words.w[u]), 1.0f, 0.0f));  // -0 is 0, NaN has no sign
            keys.w[u] = bits ^ (bits >> 31 != 0 ? ~0u : 0x80000000u);
        }
        if (!all)
#pragma unroll
            for (uint32_t u = 0; u < 4; ++u) {
                const uint32_t at = column(round) + u * kWarpSize;
                keys.w[u] = at >= window_.begin && at < end() ? keys.w[u] : 0;
            }
        return keys;
    }

    const float* const logits_;
    const TopkWindow window_;
    const TopkQuads quads_;  // of this warp
    TopkShared& shared_;
};

/// The sum of what the threads before this one have in its CTA. All threads call it.
__device__ inline uint32_t topk_sum_before(uint32_t x, TopkShared& shared) {
    const uint32_t warp = threadIdx.x / kWarpSize, lane = ptx::lane(), up_to = sum_up_to(x);
    if (lane == kWarpSize - 1) shared.sums[warp] = up_to;
    __syncthreads();  // the warps' sums are there
    return ptx::sum_of_lanes(lane < warp ? shared.sums[lane % TopkConfig::warps()] : 0) + up_to - x;
}

/// Finds the value of a digit that the `wanted`th largest key has, if there are as many, from counts of all CTAs. Calls
/// visit(value, count) for each, on one thread. Ends when all threads know.
template <TopkConfig C, typename Visit>
__device__ TopkFound find_digit(TopkShared& shared, uint32_t digit, uint32_t wanted, const Visit& visit) {
    constexpr uint32_t kEach = kTopkBins / TopkConfig::threads();
    static_assert(kEach == 4);
    const uint32_t first = kTopkBins - (threadIdx.x + 1) * kEach;  // thread 0 has the largest
    const uint32_t rank = C.ctas > 1 ? ptx::cluster_rank() : 0;
    sync_cluster<C>();  // all have counted
    const ptx::SmemAddr own = ptx::smem_address(&shared.counts[digit][first]);
    ptx::Words4 counts = ptx::load_shared_words_x4(own);
    if (C.ctas > 1)
#pragma unroll
        for (uint32_t i = 1; i < C.ctas; ++i) {
            const ptx::Words4 more = ptx::load_cluster_x4(ptx::map_to_rank(own, (rank + i) % C.ctas));
#pragma unroll
            for (uint32_t u = 0; u < kEach; ++u) counts.w[u] += more.w[u];
        }
    uint32_t before = topk_sum_before(counts.w[0] + counts.w[1] + counts.w[2] + counts.w[3], shared);
#pragma unroll
    for (uint32_t u = kEach; u-- > 0;) {
        if (before < wanted && wanted <= before + counts.w[u]) shared.found[digit] = {first + u, before};
        before += counts.w[u];
        visit(first + u, counts.w[u]);
    }
    __syncthreads();  // it has been found
    return shared.found[digit];
}

/// Calls visit(key) for each column of a lane: 0 where there is no number.
template <TopkConfig C, typename Visit>
__device__ void for_keys(const TopkRow<C>& row, const Visit& visit) {
#pragma unroll 1
    for (uint32_t round = 0; round < row.rounds(); ++round) {
        const ptx::Words4 keys = row.keys(round);
#pragma unroll
        for (uint32_t u = 0; u < 4; ++u) visit(keys.w[u]);
    }
}

/// The least key that is selected; of those that equal it `equal` are, those of the lowest columns.
struct TopkLeast {
    uint32_t key, equal;
};

/// Counts the digits behind the first one. There are more keys than k.
template <TopkConfig C>
__device__ TopkLeast find_least(TopkShared& shared, const TopkRow<C>& row, const TopkFound& first, uint32_t k) {
    uint32_t prefix = first.digit, wanted = k - first.before;
#pragma unroll 1
    for (uint32_t i = 1; i < kTopkDigits; ++i) {
        const uint32_t before = topk_digit_shift(i - 1), shift = topk_digit_shift(i);
        for_keys(row, [&](uint32_t key) {
            if (key >> before == prefix) atomicAdd(&shared.counts[i][topk_digit(key, i)], 1u);
        });
        const TopkFound found = find_digit<C>(shared, i, wanted, [](uint32_t, uint32_t) {});
        prefix = prefix << (before - shift) | found.digit;
        wanted -= found.before;
    }
    return {prefix, wanted};
}

/// Keys that have been passed on the way through a row: above the least one, and equal to it.
struct TopkPassed {
    uint32_t above = 0, equal = 0;
};

/// What this warp's part of the row begins with.
template <TopkConfig C>
__device__ TopkPassed passed_before(TopkShared& shared, const TopkRow<C>& row, const TopkLeast& least, uint32_t rank) {
    TopkPassed own;
    for_keys(row, [&](uint32_t key) {
        own.above += key > least.key ? 1 : 0;
        own.equal += key == least.key ? 1 : 0;
    });
    const uint32_t warp = threadIdx.x / kWarpSize, lane = ptx::lane();
    own.above = ptx::sum_of_lanes(own.above), own.equal = ptx::sum_of_lanes(own.equal);
    if (lane == 0) shared.above[warp] = own.above, shared.equal[warp] = own.equal;
    __syncthreads();  // all warps have counted
    const TopkPassed of_warp{shared.above[lane % C.warps()], shared.equal[lane % C.warps()]};
    TopkPassed before{ptx::sum_of_lanes(lane < warp ? of_warp.above : 0),
                      ptx::sum_of_lanes(lane < warp ? of_warp.equal : 0)};
    if (C.ctas == 1) return before;
    if (warp == C.warps() - 1 && lane == 0)
        shared.totals[0] = before.above + own.above, shared.totals[1] = before.equal + own.equal;
    sync_cluster<C>();  // totals are there
    for (uint32_t r = 0; r < rank; ++r) {
        const ptx::SmemAddr totals = ptx::map_to_rank(ptx::smem_address(shared.totals), r);
        before.above += ptx::load_cluster(totals), before.equal += ptx::load_cluster(totals + 4);
    }
    return before;
}

/// Gives each selected number its place, in the order of columns: to put(place, key, column).
template <TopkConfig C, typename Put>
__device__ void put_selected(const TopkRow<C>& row, const TopkLeast& least, TopkPassed passed, const Put& put) {
    const uint32_t below = (1u << ptx::lane()) - 1;  // lanes
#pragma unroll 1
    for (uint32_t round = 0; round < row.rounds(); ++round) {
        const ptx::Words4 keys = row.keys(round);
#pragma unroll
        for (uint32_t u = 0; u < 4; ++u) {
            const bool is_above = keys.w[u] > least.key, is_equal = keys.w[u] == least.key;
            const uint32_t above = ptx::ballot(is_above), equal = ptx::ballot(is_equal);
            const uint32_t equal_before = passed.equal + ptx::count_bits(equal & below);
            if (is_above || (is_equal && equal_before < least.equal))
                put(passed.above + ptx::count_bits(above & below) + min(equal_before, least.equal), keys.w[u],
                    row.column(round) + u * kWarpSize);
            passed.above += ptx::count_bits(above), passed.equal += ptx::count_bits(equal);
        }
    }
}

/// The larger one first if `falls`.
__device__ inline void put_in_order(uint64_t& a, uint64_t& b, bool falls) {
    const uint64_t x = a, y = b;
    a = (x > y) == falls ? x : y, b = (x > y) == falls ? y : x;
}

/// Sorts so many, a power of two, the largest first, by a bitonic network. All threads of a CTA call it: each has four
/// that are neighbours, so that most steps are within a warp.
__device__ inline void sort_ranked(uint64_t* ranked, uint32_t count) {
    constexpr uint32_t kEach = 4;
    static_assert(kEach * TopkConfig::threads() == kTopkMost);
    const uint32_t begin = threadIdx.x * kEach;
    uint64_t x[kEach], y[kEach];
#pragma unroll
    for (uint32_t i = 0; i < kEach; ++i) x[i] = ranked[begin + i];
    for (uint32_t size = 2; size <= count; size *= 2)
        for (uint32_t distance = size / 2; distance > 0; distance /= 2) {
            const bool falls = (begin & size) == 0;
            if (distance == 1) {
                put_in_order(x[0], x[1], falls), put_in_order(x[2], x[3], size == 2 ? false : falls);
                continue;
            }
            if (distance == 2) {
                put_in_order(x[0], x[2], falls), put_in_order(x[1], x[3], falls);
                continue;
            }
            if (distance < kEach * kWarpSize) {
#pragma unroll
                for (uint32_t i = 0; i < kEach; ++i) {
                    const uint32_t low = ptx::shuffle_xor(static_cast<uint32_t>(x[i]), distance / kEach);
                    const uint32_t high = ptx::shuffle_xor(static_cast<uint32_t>(x[i] >> 32), distance / kEach);
                    y[i] = uint64_t{high} << 32 | low;
                }
            } else {
                __syncthreads();  // the step before has been read
#pragma unroll
                for (uint32_t i = 0; i < kEach; ++i) ranked[begin + i] = x[i];
                __syncthreads();  // this one has been written
#pragma unroll
                for (uint32_t i = 0; i < kEach; ++i) y[i] = ranked[(begin ^ distance) + i];
            }
            const bool keeps_larger = falls == ((begin & distance) == 0);
#pragma unroll
            for (uint32_t i = 0; i < kEach; ++i) x[i] = (x[i] > y[i]) == keeps_larger ? x[i] : y[i];
        }
    __syncthreads();  // the last step has been read
#pragma unroll
    for (uint32_t i = 0; i < kEach; ++i) ranked[begin + i] = x[i];
    __syncthreads();  // all is in order
}

/// A row of the result, and the numbers that it is of.
struct TopkRowResult {
    const float* logits;
    int32_t* indices;
    uint32_t* values;  // null: not wanted

    __device__ TopkRowResult(const TopkParams& p, uint32_t row)
        : logits(p.logits + row * p.logits_stride),
          indices(p.indices + row * p.indices_stride),
          values(p.values ? reinterpret_cast<uint32_t*>(p.values) + row * p.values_stride : nullptr) {}

    /// kTopkNone: nothing was selected for that place.
    __device__ void store(uint32_t place, uint32_t column) const {
        constexpr uint32_t kMinusInfinity = 0xff800000;
        const bool none = column == static_cast<uint32_t>(kTopkNone);
        ptx::store_global(indices + place, column);
        if (!values) return;
        const uint32_t value = ptx::load_global_l2_if(!none, logits + (none ? 0 : column));
        ptx::store_global(values + place, none ? kMinusInfinity : value);
    }
};

/// Selects from one row. In the order of columns all CTAs write; sorted, the first one does.
template <TopkConfig C>
__device__ void select_from_row(const TopkParams& p, TopkShared& shared, uint32_t row, uint32_t rank) {
    const ptx::SmemAddr counts = ptx::smem_address(&shared.counts[0][0]);
    for (uint32_t i = threadIdx.x; i < kTopkDigits * kTopkBins / 4; i += C.threads())
        ptx::store_shared_words_x4(counts + i * 16, {});
    if (threadIdx.x < kTopkHistogramBins) shared.histogram[threadIdx.x] = 0;
    __syncthreads();  // they are zero
    TopkRow<C> of(p, shared, row, rank);
    of.load([&](uint32_t key) {
        if (key != 0) atomicAdd(&shared.counts[0][topk_digit(key, 0)], 1u);
    });
    const bool has_histogram = p.histogram && rank == 0;
    const TopkFound first = find_digit<C>(shared, 0, p.k, [&](uint32_t digit, uint32_t of_digit) {
        if (has_histogram && of_digit > 0) atomicAdd(&shared.histogram[topk_histogram_bin(digit)], of_digit);
    });
    if (has_histogram && threadIdx.x < kTopkHistogramBins)
        ptx::store_global(p.histogram + row * p.histogram_stride + threadIdx.x, shared.histogram[threadIdx.x]);
    if (p.k == 0) return sync_cluster<C>();  // others may still read this CTA's counts
    const TopkWindow window = p.window(row);
    const uint32_t count = window.end - window.begin;
    const TopkLeast least = count <= p.k ? TopkLeast{1, ~0u} : find_least(shared, of, first, p.k);
    const TopkPassed before = passed_before(shared, of, least, rank);
    const TopkRowResult result(p, row);
    if (!p.sorted) {
        put_selected(of, least, before,
                     [&](uint32_t place, uint32_t, uint32_t column) { result.store(place, column); });
        for (uint32_t i = count + threadIdx.x; rank == 0 && i < p.k; i += C.threads())
            result.store(i, static_cast<uint32_t>(kTopkNone));
        return sync_cluster<C>();  // others may still read this CTA's totals
    }
    uint32_t size = 4 * kWarpSize;  // whole warps
    while (size < p.k) size *= 2;
    const ptx::SmemAddr ranked = ptx::smem_address(shared.ranked);
    if (rank == 0)
        for (uint32_t i = threadIdx.x; i < size; i += C.threads()) shared.ranked[i] = 0;
    sync_cluster<C>();  // they are zero
    const ptx::SmemAddr to = C.ctas > 1 ? ptx::map_to_rank(ranked, 0) : ranked;
    put_selected(of, least, before, [&](uint32_t place, uint32_t key, uint32_t column) {
        const uint64_t x = topk_ranked(key, column);
        const auto low = static_cast<uint32_t>(x), high = static_cast<uint32_t>(x >> 32);
        if (C.ctas > 1) ptx::store_cluster_x2(to + place * 8, low, high);
        else ptx::store_shared_words_x2(to + place * 8, low, high);
    });
    sync_cluster<C>();  // all have been put there
    if (rank > 0) return;
    sort_ranked(shared.ranked, size);
    for (uint32_t i = threadIdx.x; i < p.k; i += C.threads()) result.store(i, topk_column(shared.ranked[i]));
}

/// A cluster takes one row after another.
template <TopkConfig C>
__device__ void topk_select(const TopkParams& p) {
    TopkShared& shared = ptx::dynamic_shared_object<TopkShared>();
    ptx::grid_launch_dependents();
    ptx::grid_dependency_wait();
    const uint32_t rank = C.ctas > 1 ? ptx::cluster_rank() : 0, clusters = gridDim.x / C.ctas;
    for (uint32_t row = blockIdx.x / C.ctas; row < p.rows; row += clusters) {
        select_from_row<C>(p, shared, row, rank);
        __syncthreads();  // what it left in shared memory has been read
    }
}

}  // namespace finegemm::device
