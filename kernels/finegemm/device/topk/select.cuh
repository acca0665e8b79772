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

    /// Rounds in which a warp has 128 columns, and each lane four of them, that are as far apart as there are lanes.
    __device__ uint32_t rounds() const { return ceil_div(quads_.count, kWarpSize); }
    /// The first of a lane's columns in a round.
    __device__ uint32_t column(uint32_t round) const { return first_column(round) + ptx::lane(); }

    /// Calls visit(keys) once for each round, and keeps keys. 0: of no number.
    template <typename Visit>
    __device__ void load(const Visit& visit) {
        const uint32_t copied = vectors_ ? min(rounds(), C.held()) : 0;
        for (uint32_t round = 0; round < copied; ++round) {
            const uint32_t quad = round * kWarpSize + ptx::lane(), first = (quads_.first + quad) * 4;
            const uint32_t bytes = quad < quads_.count ? min(width_ - first, 4) * 4 : 0;
            ptx::copy_async_x4(ptx::smem_address(held(round) + ptx::lane() * 4), logits_ + (bytes > 0 ? first : 0),
                               bytes);
        }
        ptx::wait_for_copies();
        __syncwarp();  // other lanes' copies are there
        for (uint32_t round = 0; round < rounds(); ++round) {
            const ptx::Words4 keys = round < copied ? keys_of(words_held(round), round) : keys_loaded(round);
            if (round < C.held())
#pragma unroll
                for (uint32_t u = 0; u < 4; ++u) held(round)[u * kWarpSize + ptx::lane()] = keys.w[u];
            visit(keys);
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
        return &shared_.keys[round][threadIdx.x / kWarpSize * kWarpSize][0];
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
    const uint32_t width_;
    const bool vectors_;
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

/// Finds the bin of the `wanted`th largest key from counts of all CTAs; what was found before stays if they are fewer.
/// Ends when all threads know.
template <TopkConfig C, uint32_t Bins>
__device__ TopkFound find_bin(TopkShared& shared, uint32_t wanted) {
    constexpr uint32_t kEach = Bins / TopkConfig::threads();
    static_assert(kEach == 1 || kEach == 4);
    const uint32_t first = Bins - (threadIdx.x + 1) * kEach;  // thread 0 has the largest
    const uint32_t rank = C.ctas > 1 ? ptx::cluster_rank() : 0;
    sync_cluster<C>();  // all have counted
    const ptx::SmemAddr own = ptx::smem_address(&shared.counts[first]);
    uint32_t counts[kEach] = {}, sum = 0;
#pragma unroll
    for (uint32_t i = 0; i < C.ctas; ++i) {
        const uint32_t from = (i + rank) % C.ctas;  // not all at once from one
        if (kEach == 1) {
            counts[0] += C.ctas > 1 ? ptx::load_cluster(ptx::map_to_rank(own, from)) : shared.counts[first];
        } else {
            const ptx::Words4 of_cta =
                C.ctas > 1 ? ptx::load_cluster_x4(ptx::map_to_rank(own, from)) : ptx::load_shared_words_x4(own);
#pragma unroll
            for (uint32_t u = 0; u < kEach; ++u) counts[u] += of_cta.w[u];
        }
    }
#pragma unroll
    for (uint32_t u = 0; u < kEach; ++u) sum += counts[u];
    uint32_t before = topk_sum_before(sum, shared);
#pragma unroll
    for (uint32_t u = kEach; u-- > 0;) {
        if (before < wanted && wanted <= before + counts[u]) shared.found = {first + u, before, counts[u]};
        before += counts[u];
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
    const uint32_t from = bracket.lower + (found.bin << bracket.shift), last = (1u << bracket.shift) - 1;
    for_keys(row, [&](uint32_t key) {
        if (key - from <= last) shared.listed[atomicAdd(&shared.list_count, 1u)] = key;
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
        const TopkFound found = find_bin<C, kTopkBins>(shared, wanted);
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
    above = ptx::sum_of_lanes(above);
    if (ptx::lane() == 0 && above > 0) atomicAdd(&shared.counts[kTopkBracketBins - 1], above);
    const TopkFound found = find_bin<C, kTopkBracketBins>(shared, k);
    if (found.bin == kTopkBracketBins - 1 || found.count > kTopkList) return least_by_digits(shared, row, k);
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
    clear_counts(shared);
    if (threadIdx.x == 0) shared.list_count = 0, shared.found = {kTopkBracketBins - 1, 0, 0};
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
