// The kernel that selects the k largest numbers of a row: a radix selection by one cluster. Layer device.
// Three passes count the values of a digit each, of the keys that agree in the digits before, until the least key that
// is selected is known. A fourth compares with it, and gives what is selected its place in the order of columns: no
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
          width_(p.width),
          vectors_(reinterpret_cast<uint64_t>(logits_) % 16 == 0),
          quads_(C.quads_of_warp(C.quads(window_, rank), threadIdx.x / kWarpSize)),
          shared_(shared) {}

    /// Rounds in which each lane has four columns.
    __device__ uint32_t rounds() const { return ceil_div(quads_.count, kWarpSize); }
    /// The first of a lane's columns in a round.
    __device__ uint32_t column(uint32_t round) const { return (quads_.first + round * kWarpSize + ptx::lane()) * 4; }
    __device__ const float* at(uint32_t column) const { return logits_ + column; }

    /// Calls visit(keys) once for each round, and keeps keys. 0: of no number.
    template <typename Visit>
    __device__ void load(const Visit& visit) {
        if (vectors_)
            for (uint32_t round = 0; round < min(rounds(), C.held()); ++round) {
                const uint32_t first = column(round), bytes = has(round) ? min(width_ - first, 4) * 4 : 0;
                ptx::copy_async_x4(held(round), logits_ + (bytes > 0 ? first : 0), bytes);
            }
        ptx::wait_for_copies();
        for (uint32_t round = 0; round < rounds(); ++round) {
            const bool is_copied = vectors_ && round < C.held();
            const ptx::Words4 words = is_copied ? ptx::load_shared_words_x4(held(round)) : words_of(round);
            const ptx::Words4 keys = keys_of(words, round);
            if (round < C.held()) ptx::store_shared_words_x4(held(round), keys);
            visit(keys);
        }
    }
    /// The keys of a round, once they have been loaded.
    __device__ ptx::Words4 keys(uint32_t round) const {
        if (round < C.held()) return ptx::load_shared_words_x4(held(round));
        return keys_of(words_of(round), round);
    }

private:
    __device__ ptx::SmemAddr held(uint32_t round) const {
        return ptx::smem_address(&shared_.keys[0][0][0]) + (round * C.threads() + threadIdx.x) * 16;
    }
    __device__ bool has(uint32_t round) const { return round * kWarpSize + ptx::lane() < quads_.count; }
    __device__ ptx::Words4 words_of(uint32_t round) const {
        const uint32_t first = column(round);
        if (vectors_ && (quads_.first + (round + 1) * kWarpSize) * 4 <= width_)  // of all lanes
            return ptx::load_global_l2_x4_if(has(round), logits_ + first);
        ptx::Words4 words;
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i)
            words.w[i] = ptx::load_global_l2_if(has(round) && first + i < width_, logits_ + first + i);
        return words;
    }
    __device__ ptx::Words4 keys_of(const ptx::Words4& words, uint32_t round) const {
        const uint32_t first = column(round);
        const bool all = first >= window_.begin && first + 4 <= window_.end, exists = has(round);
        ptx::Words4 keys;
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            const bool seen = all || (first + i >= window_.begin && first + i < window_.end);
            keys.w[i] = exists && seen ? topk_key(words.w[i]) : 0;
        }
        return keys;
    }

    const float* const logits_;
    const TopkWindow window_;
    const uint32_t width_;
    const bool vectors_;
    const TopkQuads quads_;  // of this warp
    TopkShared& shared_;
};

/// What a warp's lanes have before it in its CTA. All threads call it.
__device__ inline uint32_t topk_sum_before(uint32_t x, TopkShared& shared) {
    const uint32_t warp = threadIdx.x / kWarpSize, up_to = sum_up_to(x);
    if (threadIdx.x % kWarpSize == kWarpSize - 1) shared.sums[warp] = up_to;
    __syncthreads();  // the warps' sums are there
    const uint32_t lane = threadIdx.x % kWarpSize, of_warp = lane < warp ? shared.sums[lane % TopkConfig::warps()] : 0;
    return ptx::value_of(sum_up_to(of_warp), kWarpSize - 1) + up_to - x;
}

/// Finds the bin of the `wanted`th largest key from counts of all CTAs; what was found before stays if they are fewer.
/// Ends when all threads know.
template <TopkConfig C>
__device__ TopkFound find_bin(TopkShared& shared, uint32_t wanted) {
    constexpr uint32_t kEach = kTopkBins / TopkConfig::threads();
    static_assert(kEach == 4);
    const uint32_t first = kTopkBins - (threadIdx.x + 1) * kEach;  // thread 0 has the largest
    sync_cluster<C>();                                             // all have counted
    const ptx::SmemAddr own = ptx::smem_address(&shared.counts[first]);
    uint32_t counts[kEach] = {};
#pragma unroll
    for (uint32_t r = 0; r < C.ctas; ++r) {
        const ptx::Words4 of_cta =
            C.ctas > 1 ? ptx::load_cluster_x4(ptx::map_to_rank(own, r)) : ptx::load_shared_words_x4(own);
#pragma unroll
        for (uint32_t i = 0; i < kEach; ++i) counts[i] += of_cta.w[i];
    }
    uint32_t before = topk_sum_before(counts[0] + counts[1] + counts[2] + counts[3], shared);
#pragma unroll
    for (uint32_t i = kEach; i-- > 0;) {
        if (before < wanted && wanted <= before + counts[i]) shared.found = {first + i, before, counts[i]};
        before += counts[i];
    }
    __syncthreads();  // it has been found
    return shared.found;
}

__device__ inline void clear_counts(TopkShared& shared) {
    const ptx::SmemAddr counts = ptx::smem_address(shared.counts);
    for (uint32_t i = threadIdx.x; i < kTopkBins / 4; i += TopkConfig::threads())
        ptx::store_shared_words_x4(counts + i * 16, {});
}

/// Calls visit(key) for each column of a lane: 0 where there is no number.
template <TopkConfig C, typename Visit>
__device__ void for_keys(const TopkRow<C>& row, const Visit& visit) {
    for (uint32_t round = 0; round < row.rounds(); ++round) {
        const ptx::Words4 keys = row.keys(round);
#pragma unroll
        for (uint32_t u = 0; u < 4; ++u) visit(keys.w[u]);
    }
}

/// A bracket from a sample of all CTAs. `highest`: the largest key of this lane.
template <TopkConfig C>
__device__ TopkBracket find_bracket(TopkShared& shared, const TopkRow<C>& row, uint32_t k, uint32_t count,
                                    uint32_t highest) {
    constexpr uint32_t kOfCta = kTopkSample / C.ctas, kStep = C.threads() / kOfCta;
    const uint32_t thread = threadIdx.x, warp = thread / kWarpSize;
    if (thread % kStep == 0) {  // neighbours take theirs from other rounds
        const uint32_t rounds = min(row.rounds(), C.held());
        shared.sample[thread / kStep] = rounds > 0 ? row.keys(thread / kStep % rounds).w[0] : 0;
    }
    highest = ptx::largest_of_lanes(highest);
    if (ptx::lane() == 0) shared.highest[warp] = highest;
    if (thread == 0) shared.lower = 1;
    sync_cluster<C>();  // all parts are there
    const auto of = [&](const uint32_t& x, uint32_t rank) {
        return C.ctas > 1 ? ptx::load_cluster(ptx::map_to_rank(ptx::smem_address(&x), rank)) : x;
    };
    uint32_t key = 0;
    if (thread < kTopkSample) shared.whole_sample[thread] = key = of(shared.sample[thread % kOfCta], thread / kOfCta);
    if (warp == 4) {
        highest = 0;
        for (uint32_t i = ptx::lane(); i < C.ctas * C.warps(); i += kWarpSize)
            highest = max(highest, of(shared.highest[i % C.warps()], i / C.warps()));
        highest = ptx::largest_of_lanes(highest);
        if (ptx::lane() == 0) shared.upper = highest;
    }
    __syncthreads();  // the sample is here, and the bounds that it may better
    if (thread < kTopkSample) {
        const ptx::SmemAddr sample = ptx::smem_address(shared.whole_sample);
        uint32_t place = 0, size = 0;
        for (uint32_t i = 0; i < kTopkSample; i += 4) {
            const ptx::Words4 others = ptx::load_shared_words_x4(sample + i * 4);
#pragma unroll
            for (uint32_t u = 0; u < 4; ++u) {
                place += others.w[u] > key || (others.w[u] == key && i + u < thread) ? 1 : 0;
                size += others.w[u] != 0 ? 1 : 0;
            }
        }
        const TopkQuantile quantile = TopkQuantile::of(k, count, size);
        if (place == quantile.upper && place < size) shared.upper = key;
        if (place == quantile.lower && place < size) shared.lower = key;
    }
    __syncthreads();  // the bracket is known
    return TopkBracket::between(shared.lower, shared.upper);
}

/// Few keys are in the interval that was found: they are listed, and each is compared with all others.
template <TopkConfig C>
__device__ TopkLeast least_of_list(TopkShared& shared, const TopkRow<C>& row, const TopkBracket& bracket,
                                   const TopkFound& found, uint32_t wanted) {
    for_keys(row, [&](uint32_t key) {
        if (bracket.has(key) && bracket.bin(key) == found.bin) shared.listed[atomicAdd(&shared.list_count, 1u)] = key;
    });
    sync_cluster<C>();                    // all have listed theirs
    uint32_t rank = 0, at = threadIdx.x;  // of the list of all, those of one CTA behind the other
    if (C.ctas > 1)
        for (uint32_t r = 0; r < C.ctas; ++r) {
            const uint32_t of_cta = ptx::load_cluster(ptx::map_to_rank(ptx::smem_address(&shared.list_count), r));
            if (rank != r) continue;
            if (at < of_cta) break;
            at -= of_cta, ++rank;
        }
    uint32_t key = 0;
    if (threadIdx.x < found.count)
        key = C.ctas > 1 ? ptx::load_cluster(ptx::map_to_rank(ptx::smem_address(&shared.listed[at]), rank))
                         : shared.listed[at];
    static_assert(kTopkList <= TopkConfig::threads());
    if (threadIdx.x < kTopkList) shared.listed_by_all[threadIdx.x] = key;
    __syncthreads();  // those of all CTAs are here; 0 behind them
    TopkLeast passed{0, 0};
    const ptx::SmemAddr all = ptx::smem_address(shared.listed_by_all);
    if (threadIdx.x < found.count)
        for (uint32_t i = 0; i < found.count; i += 4) {
            const ptx::Words4 others = ptx::load_shared_words_x4(all + i * 4);
#pragma unroll
            for (uint32_t u = 0; u < 4; ++u) {
                passed.key += others.w[u] > key ? 1 : 0;
                passed.equal += others.w[u] == key ? 1 : 0;
            }
        }
    if (passed.key < wanted && wanted <= passed.key + passed.equal) shared.least = {key, wanted - passed.key};
    __syncthreads();  // the one that fits has said so, or several that are equal
    return shared.least;
}

/// Three passes count the values of a digit each, of the keys that agree in the digits before.
template <TopkConfig C>
__device__ TopkLeast least_by_digits(TopkShared& shared, const TopkRow<C>& row, uint32_t wanted) {
    uint32_t prefix = 0;
    for (uint32_t i = 0; i < kTopkDigits; ++i) {
        const uint32_t shift = topk_digit_shift(i), before = i == 0 ? 32 : topk_digit_shift(i - 1);
        sync_cluster<C>();  // nobody reads counts any more
        clear_counts(shared);
        __syncthreads();  // they are zero
        for_keys(row, [&](uint32_t key) {
            if (key != 0 && (i == 0 || key >> before == prefix)) atomicAdd(&shared.counts[topk_digit(key, i)], 1u);
        });
        const TopkFound found = find_bin<C>(shared, wanted);
        prefix = prefix << (before - shift) | found.bin;
        wanted -= found.above;
    }
    return {prefix, wanted};
}

/// Counts keys of a bracket by intervals; where the one that is sought has few of them, these are all that is left to
/// look at. `count`: of numbers, more than k.
template <TopkConfig C>
__device__ TopkLeast find_least(TopkShared& shared, const TopkRow<C>& row, uint32_t k, uint32_t count,
                                uint32_t highest) {
    const TopkBracket bracket = find_bracket(shared, row, k, count, highest);
    uint32_t above = 0;
    for_keys(row, [&](uint32_t key) {
        if (bracket.has(key)) atomicAdd(&shared.counts[bracket.bin(key)], 1u);
        above += key > bracket.upper ? 1 : 0;
    });
    above = sum_up_to(above);
    if (ptx::lane() == kWarpSize - 1 && above > 0) atomicAdd(&shared.counts[kTopkBins - 1], above);
    const TopkFound found = find_bin<C>(shared, k);
    if (found.bin == kTopkBins - 1 || found.count > kTopkList) return least_by_digits(shared, row, k);
    return least_of_list(shared, row, bracket, found, k - found.above);
}

/// Counts numbers by sign and size, for callers.
template <TopkConfig C>
__device__ void count_histogram(const TopkParams& p, TopkShared& shared, const TopkRow<C>& of, uint32_t row,
                                uint32_t rank) {
    for (uint32_t i = threadIdx.x; i < kTopkHistogramBins; i += C.threads()) shared.histogram[i] = 0;
    __syncthreads();  // they are zero
    for_keys(of, [&](uint32_t key) {
        if (key != 0) atomicAdd(&shared.histogram[topk_histogram_bin(topk_digit(key, 0))], 1u);
    });
    sync_cluster<C>();  // all have counted
    for (uint32_t i = threadIdx.x; rank == 0 && i < kTopkHistogramBins; i += C.threads()) {
        uint32_t count = shared.histogram[i];
        for (uint32_t r = 1; r < C.ctas; ++r)
            count += ptx::load_cluster(ptx::map_to_rank(ptx::smem_address(&shared.histogram[i]), r));
        ptx::store_global(p.histogram + row * p.histogram_stride + i, count);
    }
    sync_cluster<C>();  // nobody reads them any more
}

/// Keys that have been passed on the way through a row: above the least one, and equal to it.
struct TopkPassed {
    uint32_t above = 0, equal = 0;
};

/// What this warp's part of the row begins with.
template <TopkConfig C>
__device__ TopkPassed passed_before(TopkShared& shared, const TopkRow<C>& row, const TopkLeast& least, uint32_t rank) {
    TopkPassed own;
    for (uint32_t round = 0; round < row.rounds(); ++round) {
        const ptx::Words4 keys = row.keys(round);
#pragma unroll
        for (uint32_t u = 0; u < 4; ++u) {
            own.above += keys.w[u] > least.key ? 1 : 0;
            own.equal += keys.w[u] == least.key ? 1 : 0;
        }
    }
    const uint32_t warp = threadIdx.x / kWarpSize, above = sum_up_to(own.above), equal = sum_up_to(own.equal);
    if (ptx::lane() == kWarpSize - 1) shared.above[warp] = above, shared.equal[warp] = equal;
    __syncthreads();  // all warps have counted
    TopkPassed before, all;
#pragma unroll
    for (uint32_t w = 0; w < C.warps(); ++w) {
        if (w == warp) before = all;
        all.above += shared.above[w], all.equal += shared.equal[w];
    }
    if (C.ctas == 1) return before;
    if (threadIdx.x == 0) shared.totals[0] = all.above, shared.totals[1] = all.equal;
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
    constexpr uint32_t kShift = 16;  // two counts in a word: at most 128 of a round
    for (uint32_t round = 0; round < row.rounds(); ++round) {
        const ptx::Words4 keys = row.keys(round);
        uint32_t counts = 0;
#pragma unroll
        for (uint32_t u = 0; u < 4; ++u)
            counts += keys.w[u] > least.key ? 1 : keys.w[u] == least.key ? 1u << kShift : 0;
        if (ptx::ballot(counts != 0) == 0) continue;
        const uint32_t up_to = sum_up_to(counts), before = up_to - counts, all = ptx::value_of(up_to, kWarpSize - 1);
        uint32_t above = passed.above + (before & 0xffff), equal = passed.equal + (before >> kShift);
#pragma unroll
        for (uint32_t u = 0; u < 4; ++u) {
            const bool is_above = keys.w[u] > least.key, is_equal = keys.w[u] == least.key;
            if (is_above || (is_equal && equal < least.equal))
                put(above + min(equal, least.equal), keys.w[u], row.column(round) + u);
            above += is_above ? 1 : 0, equal += is_equal ? 1 : 0;
        }
        passed.above += all & 0xffff, passed.equal += all >> kShift;
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

/// Writes a place of the result. kTopkNone: nothing was selected for it.
__device__ inline void store_selected(const TopkParams& p, uint32_t row, uint32_t place, uint32_t column) {
    constexpr uint32_t kMinusInfinity = 0xff800000;
    const bool none = column == static_cast<uint32_t>(kTopkNone);
    ptx::store_global(p.indices + row * p.indices_stride + place, column);
    if (!p.values) return;
    const float* const from = p.logits + row * p.logits_stride + (none ? 0 : column);
    const uint32_t value = ptx::load_global_l2_if(!none, from);
    ptx::store_global(reinterpret_cast<uint32_t*>(p.values) + row * p.values_stride + place,
                      none ? kMinusInfinity : value);
}

/// Selects from one row. In the order of columns all CTAs write; sorted, the first one does.
template <TopkConfig C>
__device__ void select_from_row(const TopkParams& p, TopkShared& shared, uint32_t row, uint32_t rank) {
    clear_counts(shared);
    if (threadIdx.x == 0) shared.list_count = 0, shared.found = {kTopkBins - 1, 0, 0};
    TopkRow<C> of(p, shared, row, rank);
    uint32_t highest = 0;
    of.load([&](const ptx::Words4& keys) {
#pragma unroll
        for (uint32_t u = 0; u < 4; ++u) highest = max(highest, keys.w[u]);
    });
    if (p.histogram) count_histogram(p, shared, of, row, rank);
    if (p.k == 0) return;
    const TopkWindow window = p.window(row);
    const uint32_t count = window.end - window.begin;
    const TopkLeast least = count <= p.k ? TopkLeast{1, ~0u} : find_least(shared, of, p.k, count, highest);
    const TopkPassed before = passed_before(shared, of, least, rank);
    if (!p.sorted) {
        put_selected(of, least, before,
                     [&](uint32_t place, uint32_t, uint32_t column) { store_selected(p, row, place, column); });
        for (uint32_t i = count + threadIdx.x; rank == 0 && i < p.k; i += C.threads())
            store_selected(p, row, i, static_cast<uint32_t>(kTopkNone));
        return sync_cluster<C>();  // others may still read this CTA's totals
    }
    uint32_t size = 4 * kWarpSize;  // whole warps
    while (size < p.k) size *= 2;
    const ptx::SmemAddr ranked = ptx::smem_address(shared.ranked);
    if (rank == 0)
        for (uint32_t i = threadIdx.x; i < size; i += C.threads()) shared.ranked[i] = 0;
    sync_cluster<C>();  // they are zero
    const ptx::SmemAddr first = C.ctas > 1 ? ptx::map_to_rank(ranked, 0) : ranked;
    put_selected(of, least, before, [&](uint32_t place, uint32_t key, uint32_t column) {
        const uint64_t x = topk_ranked(key, column);
        const auto low = static_cast<uint32_t>(x), high = static_cast<uint32_t>(x >> 32);
        if (C.ctas > 1) ptx::store_cluster_x2(first + place * 8, low, high);
        else ptx::store_shared_words_x2(first + place * 8, low, high);
    });
    sync_cluster<C>();  // all have been put there
    if (rank > 0) return;
    sort_ranked(shared.ranked, size);
    for (uint32_t i = threadIdx.x; i < p.k; i += C.threads()) store_selected(p, row, i, topk_column(shared.ranked[i]));
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
