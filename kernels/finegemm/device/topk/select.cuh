// The kernel that selects the k largest numbers of a row: one cluster has it. Layer device.
// A part of a row that fits is kept in shared memory. Of a longer one a sample is kept first, which says what is surely
// too small; one way through the part then lists the others. The least key that is selected is found by its digits, and
// what is selected gets its place in the order of columns: no result depends on the order in which threads count.
#pragma once

#include <finegemm/device/ptx/dynamic_shared.cuh>
#include <finegemm/device/topk/kept.cuh>
#include <finegemm/device/topk/sort.cuh>

namespace finegemm::device {

/// Keeps the keys of a sample, and counts their first digits.
template <TopkConfig C>
__device__ void hold_sample(TopkShared<C>& shared, TopkCounts<C>& counts, const TopkRow<C>& row, TopkSample sample) {
    constexpr uint32_t kBatch = C.batch();
#pragma unroll 1
    for (uint32_t base = 0; base < sample.count; base += kBatch * C.threads()) {
        uint32_t words[kBatch];
        const auto number = [&](uint32_t u) { return base + u * C.threads() + threadIdx.x; };
        const auto has = [&](uint32_t u) {
            return number(u) < sample.count && row.has(row.part().first + sample.column(number(u)));
        };
#pragma unroll
        for (uint32_t u = 0; u < kBatch; ++u)  // all are in flight together
            words[u] = ptx::load_global_l2_if(has(u), row.of_part() + sample.column(number(u)));
#pragma unroll
        for (uint32_t u = 0; u < kBatch; ++u) {
            const uint32_t key = has(u) ? key_of_word(words[u]) : 0;
            if (number(u) < sample.count) shared.keys[number(u)] = key;
            count_first(counts, key);
        }
    }
}

/// Lists the numbers of the part, no keys yet, that are not less than `bound`; those of a batch for which no room is
/// left not. All are counted.
template <TopkConfig C>
__device__ void list_candidates(TopkShared<C>& shared, const TopkRow<C>& row, float bound) {
    constexpr uint32_t kMinusInfinity = 0xff800000;  // below any bound
    const ptx::SmemAddr list = ptx::smem_address(shared.keys);
#pragma unroll 1
    for (uint32_t base = 0; base < row.part().count; base += C.batch() * C.threads()) {
        TopkBatch batch = row.load(base);
        if (!batch.inside)
#pragma unroll
            for (uint32_t u = 0; u < C.batch(); ++u)
                batch.words[u] = row.has(batch.column(u)) ? batch.words[u] : kMinusInfinity;
        float most = float_of_bits(batch.words[0]);
#pragma unroll
        for (uint32_t u = 1; u < C.batch(); ++u) most = ptx::max_or_nan(most, float_of_bits(batch.words[u]));
        if (most < bound) continue;  // as of most threads
        uint32_t count = 0;          // NaN is not less
#pragma unroll
        for (uint32_t u = 0; u < C.batch(); ++u) count += float_of_bits(batch.words[u]) < bound ? 0 : 1;
        const uint32_t place = atomicAdd(&shared.listed, count);
        if (place + count > C.listed()) continue;
        ptx::SmemAddr to = list + place * 4;
#pragma unroll
        for (uint32_t u = 0; u < C.batch(); ++u) {
            const bool chosen = !(float_of_bits(batch.words[u]) < bound);
            ptx::store_shared_word_if(chosen, to, batch.words[u]);
            ptx::store_shared_word_if(chosen, to + C.listed() * 4, batch.column(u));
            to = to + (chosen ? 4 : 0);
        }
    }
}

/// What the CTAs of a cluster have listed: how many numbers, and whether each had room for its own.
struct TopkListing {
    uint32_t total;
    bool fits;
};

/// All threads of the cluster have the same answer.
template <TopkConfig C>
__device__ TopkListing listing_of(const TopkShared<C>& shared) {
    if (C.ctas == 1) return {shared.listed, shared.listed <= C.listed()};
    TopkListing of{0, true};
#pragma unroll 1
    for (uint32_t r = 0; r < C.ctas; ++r) {
        const uint32_t listed = ptx::load_cluster(ptx::map_to_rank(ptx::smem_address(&shared.listed), r));
        of.total += listed, of.fits = of.fits && listed <= C.listed();
    }
    return of;
}

/// Lists what may be selected. False where samples have misled: too few are listed, or too many.
template <TopkConfig C>
__device__ bool list_part(TopkShared<C>& shared, TopkCounts<C>& counts, const TopkRow<C>& row, uint32_t k) {
    const TopkSample sample = C.sample(row.window(), row.part().count);
    const TopkListed<C> sampled{shared, sample.count};  // the lower digits of a bound do not matter
    uint32_t wanted = sample.wanted(k);
#pragma unroll 1
    for (uint32_t tries = 0; tries < 2; ++tries) {
        hold_sample(shared, counts, row, sample);
        const TopkFound first = counts.find(wanted);
        const uint32_t bound = find_behind(counts, first, wanted, TopkKeyWords<TopkListed<C>>{sampled}, 0, 2).least();
        if (bound <= topk_key(0xff800000u)) return false;  // minus infinity, which marks what is no number
        list_candidates(shared, row, number_of_key(bound));
        sync_cluster<C>();  // all have listed
        const TopkListing listing = listing_of(shared);
        if (listing.fits && listing.total >= k) return true;
        // What is listed says how far the sample has misled; more than half of it gives no bound.
        wanted = wanted * (k + k / 2) / max(listing.total, 1) + 1;
        if (wanted > row.numbers() / (2 * sample.stride / TopkSample::kNear)) return false;
        sync_cluster<C>();  // all have read what is listed
        if (threadIdx.x == 0) shared.listed = 0;
    }
    return false;
}

/// A histogram as the first digits have it.
template <TopkConfig C>
__device__ TopkFound find_first(const TopkParams& p, TopkShared<C>& shared, TopkCounts<C>& counts, uint32_t row) {
    if (!p.histogram) return counts.find(p.k);
    const bool first_cta = C.ctas == 1 || ptx::cluster_rank() == 0;
    const TopkFound found = counts.find(p.k, [&](uint32_t digit, uint32_t of_digit) {
        if (of_digit > 0) atomicAdd(&shared.histogram[topk_histogram_bin(digit)], of_digit);
    });
    if (first_cta && threadIdx.x < kTopkHistogramBins)
        ptx::store_global(p.histogram + row * p.histogram_stride + threadIdx.x, shared.histogram[threadIdx.x]);
    __syncthreads();  // its memory is free
    return found;
}

/// How many numbers CTAs of lower ranks of a cluster select, where this thread has selected `own`.
template <TopkConfig C>
__device__ uint32_t selected_before(TopkShared<C>& shared, uint32_t own) {
    own = ptx::sum_of_lanes(own);
    if (ptx::lane() == 0 && own > 0) atomicAdd(&shared.total, own);
    sync_cluster<C>();  // all have added
    uint32_t before = 0;
#pragma unroll 1
    for (uint32_t r = 0; r < ptx::cluster_rank(); ++r)
        before += ptx::load_cluster(ptx::map_to_rank(ptx::smem_address(&shared.total), r));
    return before;
}

/// How many a thread has.
template <typename Selected>
__device__ uint32_t count_of(const Selected& selected) {
    uint32_t own = 0;
    selected.for_each([&](uint32_t, uint32_t) { ++own; });
    return own;
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
    /// `key`: of the number, so that only zeros and NaN are looked up.
    __device__ void store(uint32_t place, uint32_t column, uint32_t key) const {
        if (key == topk_key(0u) || key == ~0u) return store(place, column);
        ptx::store_global(indices + place, column);
        if (values) ptx::store_global(values + place, float_bits(number_of_key(key)));
    }
};

/// Stores columns that are listed in shared memory.
template <TopkConfig C>
__device__ void store_listed(const TopkRowResult& result, uint32_t place, const uint32_t* listed, uint32_t count) {
    int32_t* const to = result.indices + place;
    uint32_t done = 0;
    if (!result.values && reinterpret_cast<uint64_t>(to) % sizeof(ptx::Words4) == 0) {
        const ptx::SmemAddr from = ptx::smem_address(listed);
        done = count / 4 * 4;
        for (uint32_t i = threadIdx.x * 4; i < done; i += C.threads() * 4)
            ptx::store_global_x4(to + i, ptx::load_shared_words_x4(from + i * 4));
    }
    for (uint32_t i = done + threadIdx.x; i < count; i += C.threads()) result.store(place + i, listed[i]);
}

/// Stores what is selected of a part that is kept, in the order of columns.
template <TopkConfig C>
__device__ void store_kept(const TopkRowResult& result, TopkShared<C>& shared, const TopkKept<C>& kept) {
    const uint32_t before = C.ctas > 1 ? selected_before<C>(shared, ptx::count_bits(kept.selected().bits)) : 0;
    const uint32_t count = kept.list();
    store_listed<C>(result, before, shared.placing.selected, count);
}

/// Stores what is selected in the order of columns, which are listed where counts were: nobody reads these any more.
template <TopkConfig C, typename Selected>
__device__ void store_in_order(const TopkRowResult& result, TopkShared<C>& shared, TopkCounts<C>& counts,
                               const TopkPart& part, const Selected& selected) {
    const uint32_t warp = threadIdx.x / kWarpSize, lane = ptx::lane();
    uint32_t* const listed = &shared.placing.counts[0][0];
    uint32_t place = C.ctas > 1 ? selected_before<C>(shared, count_of(selected)) : 0;
#pragma unroll 1
    for (uint32_t from = 0; from < part.count; from += kTopkMarked) {
        const uint32_t words = (min(from + kTopkMarked, part.count) - from) / kWarpSize;
        const uint32_t each = ceil_div(words, C.threads()), begin = threadIdx.x * each;
        uint32_t* const own = &shared.placing.marks[begin];  // of a thread, neighbours
        for (uint32_t u = 0; u < each; ++u) own[u] = 0;
        __syncthreads();  // marks are zero, and what was listed before has been stored
        selected.for_each([&](uint32_t, uint32_t column) {
            const uint32_t at = column - part.first - from;
            if (at < kTopkMarked) atomicOr(&shared.placing.marks[at / kWarpSize], 1u << at % kWarpSize);
        });
        __syncthreads();  // all are marked
        uint32_t count = 0;
        for (uint32_t u = 0; u < each; ++u) count += ptx::count_bits(own[u]);
        const uint32_t up_to = sum_up_to(count);
        if (lane == kWarpSize - 1) shared.sums[warp] = up_to;
        __syncthreads();  // the warps' sums are there
        const uint32_t sums = lane < C.warps() ? shared.sums[lane % C.warps()] : 0, all = ptx::sum_of_lanes(sums);
        uint32_t at = ptx::sum_of_lanes(lane < warp ? sums : 0) + up_to - count;
        for (uint32_t u = 0; u < each; ++u)
            for_bits(own[u], [&](uint32_t bit) { listed[at++] = part.first + from + (begin + u) * kWarpSize + bit; });
        __syncthreads();  // all are listed
        store_listed<C>(result, place, listed, all);
        place += all;
    }
    __syncthreads();  // all is stored
    counts.clear();
}

/// Stores what is selected, the largest first: the first CTA sorts it.
template <TopkConfig C, typename Selected>
__device__ void store_sorted(const TopkParams& p, const TopkRowResult& result, TopkShared<C>& shared,
                             TopkCounts<C>& counts, const Selected& selected) {
    const uint32_t rank = C.ctas > 1 ? ptx::cluster_rank() : 0;
    uint32_t size = 4 * kWarpSize;  // whole warps
    while (size < p.k) size *= 2;
    const ptx::SmemAddr ranked = ptx::smem_address(shared.ranked);
    sync_cluster<C>();  // counts, which lie there, have been read
    if (rank == 0)
        for (uint32_t i = threadIdx.x; i < size; i += C.threads()) shared.ranked[i] = 0;
    if (threadIdx.x == 0) shared.listed = 0;  // from here on, what has been put
    const uint32_t before = C.ctas > 1 ? selected_before<C>(shared, count_of(selected)) : 0;
    if (C.ctas == 1) __syncthreads();  // they are zero, as others know by the barrier of a cluster
    const ptx::SmemAddr to = C.ctas > 1 ? ptx::map_to_rank(ranked, 0) : ranked;
    selected.for_each([&](uint32_t key, uint32_t column) {
        const uint32_t place = before + atomicAdd(&shared.listed, 1u);
        const uint64_t x = topk_ranked(key, column);
        const auto low = static_cast<uint32_t>(x), high = static_cast<uint32_t>(x >> 32);
        if (C.ctas > 1) ptx::store_cluster_x2(to + place * 8, low, high);
        else ptx::store_shared_words_x2(to + place * 8, low, high);
    });
    sync_cluster<C>();  // all have been put there
    if (rank > 0) return;
    sort_ranked(shared.ranked, size);
    for (uint32_t i = threadIdx.x; i < p.k; i += C.threads()) result.store(i, topk_column(shared.ranked[i]));
    __syncthreads();  // all is stored
    counts.clear();   // which lie there
}

/// Finds the least key that is selected of those of a part, whose first digits have been counted; stores what is.
template <TopkConfig C, typename Source>
__device__ void select_from(const TopkParams& p, TopkShared<C>& shared, TopkCounts<C>& counts, uint32_t row,
                            const TopkPart& part, const Source& source) {
    const TopkFound first = counts.find(p.k);
    const TopkSelected<Source> selected{source, find_least<C>(shared, counts, source, first, p.k)};
    const TopkRowResult result(p, row);
    if (p.sorted) store_sorted<C>(p, result, shared, counts, selected);
    else store_in_order<C>(result, shared, counts, part, selected);
}

/// Selects from a row of which each CTA keeps its part.
template <TopkConfig C>
__device__ void select_from_kept(const TopkParams& p, TopkShared<C>& shared, TopkCounts<C>& counts, uint32_t row,
                                 const TopkRow<C>& of) {
    TopkKept<C> kept(shared, of);
    kept.count(counts);
    const TopkFound first = find_first(p, shared, counts, row);
    if (p.k == 0) return;
    const uint32_t numbers = of.numbers();
    if (numbers > p.k) kept.select(find_least<C>(shared, counts, kept.with_digit(first.digit), first, p.k));
    else kept.select({1, ~0u});
    const TopkRowResult result(p, row);
    if (p.sorted) return store_sorted<C>(p, result, shared, counts, kept.selected());
    store_kept<C>(result, shared, kept);
    if (C.ctas > 1 && ptx::cluster_rank() > 0) return;
    for (uint32_t i = numbers + threadIdx.x; i < p.k; i += C.threads())
        result.store(i, static_cast<uint32_t>(kTopkNone));
}

/// Selects from one row. In the order of columns all CTAs write; sorted, the first one does.
template <TopkConfig C>
__device__ void select_from_row(const TopkParams& p, TopkShared<C>& shared, TopkCounts<C>& counts, uint32_t row,
                                const TopkWindow& window, uint32_t rank) {
    const TopkRow<C> of(p, row, window, rank);
    if (threadIdx.x < kTopkHistogramBins) shared.histogram[threadIdx.x] = 0;
    if (threadIdx.x == 0) shared.listed = 0, shared.total = 0, shared.gathered = 0;
    __syncthreads();  // they are zero
    if (C.holds(of.window())) return select_from_kept<C>(p, shared, counts, row, of);
    const TopkLoaded<C> loaded{of};
    const auto count_loaded = [&] { loaded.for_each([&](uint32_t key, uint32_t) { count_first(counts, key); }); };
    if (p.histogram) {
        count_loaded();
        find_first(p, shared, counts, row);
        if (p.k == 0) return;
    }
    if (list_part(shared, counts, of, p.k)) {
        const uint32_t count = shared.listed;
        for_numbers<C>(count, [&](uint32_t i) {
            shared.keys[i] = key_of_word(shared.keys[i]);
            count_first(counts, shared.keys[i]);
        });
        return select_from<C>(p, shared, counts, row, of.part(), TopkListed<C>{shared, count});
    }
    count_loaded();
    select_from<C>(p, shared, counts, row, of.part(), loaded);
}

/// A cluster takes one row after another.
template <TopkConfig C>
__device__ void topk_select(const TopkParams& p) {
    TopkShared<C>& shared = ptx::dynamic_shared_object<TopkShared<C>>();
    TopkCounts<C> counts(shared);
    ptx::grid_launch_dependents();
    const uint32_t rank = C.ctas > 1 ? ptx::cluster_rank() : 0;
    for_windows(p, blockIdx.x / C.ctas, gridDim.x / C.ctas, [&](uint32_t row, const TopkWindow& window) {
        select_from_row<C>(p, shared, counts, row, window, rank);
        sync_cluster<C>();  // what it left in shared memory has been read
    });
}

}  // namespace finegemm::device
