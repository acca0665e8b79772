// The kernel that selects the k largest numbers of a row: one cluster has it. Layer device.
// A part of a row that fits is kept in shared memory. Of a longer one a sample is kept first, which says what is surely
// too small; one way through the part then lists the others. The least key that is selected is found by its digits, and
// what is selected gets its place in the order of columns: no result depends on the order in which threads count.
#pragma once

#include <finegemm/device/ptx/dynamic_shared.cuh>
#include <finegemm/device/topk/digits.cuh>
#include <finegemm/device/topk/sort.cuh>

namespace finegemm::device {

/// Keeps the keys of a part, and counts their first digits.
template <TopkConfig C>
__device__ void hold_part(TopkShared<C>& shared, TopkCounts<C>& counts, const TopkRow<C>& row) {
    const uint32_t count = row.part().count;
#pragma unroll 1
    for (uint32_t base = 0; base < count; base += C.batch() * C.threads()) {
        const TopkBatch batch = row.load(base);
        uint32_t* const keys = &shared.keys[base + threadIdx.x];
        if (batch.inside) {
#pragma unroll
            for (uint32_t u = 0; u < C.batch(); ++u) {
                const uint32_t key = key_of_word(batch.words[u]);
                keys[u * C.threads()] = key;
                counts.add(topk_digit(key, 0));
            }
            continue;
        }
#pragma unroll 1
        for (uint32_t u = 0; u < C.batch() && base + u * C.threads() + threadIdx.x < count; ++u) {
            const uint32_t key = row.key(batch.column(u));
            keys[u * C.threads()] = key;
            count_first(counts, key);
        }
    }
}

/// Keeps the keys of a sample, and counts their first digits.
template <TopkConfig C>
__device__ void hold_sample(TopkShared<C>& shared, TopkCounts<C>& counts, const TopkRow<C>& row, TopkSample sample) {
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < sample.count; i += C.threads()) {
        const uint32_t key = row.key(row.part().first + sample.column(i));
        shared.keys[i] = key;
        count_first(counts, key);
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
        uint32_t count = 0;  // NaN is not less
#pragma unroll
        for (uint32_t u = 0; u < C.batch(); ++u) count += float_of_bits(batch.words[u]) < bound ? 0 : 1;
        const uint32_t place = take_places(shared.listed, count);
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
    const TopkHeld<C> sampled{shared, 0, sample.count, false};
    uint32_t wanted = sample.wanted(k);
#pragma unroll 1
    for (uint32_t tries = 0; tries < 2; ++tries) {
        hold_sample(shared, counts, row, sample);
        const TopkFound first = counts.find(wanted);
        if (threadIdx.x == 0) shared.listed = 0;  // all have read what was
        const uint32_t bound = find_behind(counts, first, wanted, TopkKeyWords<C, TopkHeld<C>>{sampled}).word;
        if (bound <= topk_key(0xff800000u)) return false;  // minus infinity, which marks what is no number
        list_candidates(shared, row, number_of_key(bound));
        sync_cluster<C>();  // all have listed
        const TopkListing listing = listing_of(shared);
        if (listing.fits && listing.total >= k) return true;
        // What is listed says how far the sample has misled; more than half of it gives no bound.
        wanted = wanted * (k + k / 2) / max(listing.total, 1) + 1;
        if (wanted > row.numbers() / (2 * sample.stride / TopkSample::kNear)) return false;
    }
    return false;
}

/// A histogram as the first digits have it.
template <TopkConfig C>
__device__ TopkFound find_first(const TopkParams& p, TopkShared<C>& shared, TopkCounts<C>& counts, uint32_t row) {
    if (!p.histogram) return counts.find(p.k);
    const bool first_cta = C.ctas == 1 || ptx::cluster_rank() == 0;
    const TopkFound found = counts.find(p.k, [&](uint32_t digit, uint32_t of_digit) {
        if (of_digit > 0) atomicAdd(&shared.placing.histogram[topk_histogram_bin(digit)], of_digit);
    });
    if (first_cta && threadIdx.x < kTopkHistogramBins)
        ptx::store_global(p.histogram + row * p.histogram_stride + threadIdx.x, shared.placing.histogram[threadIdx.x]);
    __syncthreads();  // its memory is free
    return found;
}

/// The sum over the threads of CTAs of lower ranks.
template <TopkConfig C>
__device__ uint32_t sum_of_lower_ranks(TopkShared<C>& shared, uint32_t own) {
    own = ptx::sum_of_lanes(own);
    if (ptx::lane() == 0 && own > 0) atomicAdd(&shared.total, own);
    sync_cluster<C>();  // all have added
    uint32_t before = 0;
#pragma unroll 1
    for (uint32_t r = 0; r < ptx::cluster_rank(); ++r)
        before += ptx::load_cluster(ptx::map_to_rank(ptx::smem_address(&shared.total), r));
    return before;
}

/// How many numbers CTAs of lower ranks select.
template <TopkConfig C, typename Source>
__device__ uint32_t selected_before(TopkShared<C>& shared, const Source& source, const TopkLeast& least) {
    if (C.ctas == 1) return 0;
    uint32_t own = 0;
    for_keys<C>(0, source.count, [&](uint32_t i) { own += least.selects(source.key(i), source.column(i)) ? 1 : 0; });
    return sum_of_lower_ranks(shared, own);
}

/// Marks which of kTopkMarked columns of a part are selected, from its column `from` on. How many words that takes.
template <TopkConfig C, typename Source>
__device__ uint32_t mark_selected(TopkShared<C>& shared, const TopkPart& part, const Source& source,
                                  const TopkLeast& least, uint32_t from) {
    const uint32_t end = min(from + kTopkMarked, part.count), words = (end - from) / kWarpSize;
    if (!source.listed) {
        for_keys<C>(from, end, [&](uint32_t i) {
            const uint32_t mark = ptx::ballot(least.selects(source.key(i), source.column(i)));
            if (ptx::lane() == 0) shared.placing.marks[(i - from) / kWarpSize] = mark;
        });
    } else {
        for_keys<C>(0, words, [&](uint32_t i) { shared.placing.marks[i] = 0; });
        __syncthreads();  // they are zero
        for_keys<C>(0, source.count, [&](uint32_t i) {
            const uint32_t column = source.column(i), at = column - part.first - from;
            if (at < end - from && least.selects(source.key(i), column))
                atomicOr(&shared.placing.marks[at / kWarpSize], 1u << at % kWarpSize);
        });
    }
    __syncthreads();  // all are marked
    return words;
}

/// Lists columns that are marked, in their order; `column`: that of the first mark. How many there are.
template <TopkConfig C>
__device__ uint32_t list_marked(TopkShared<C>& shared, uint32_t words, uint32_t column) {
    const uint32_t warp = threadIdx.x / kWarpSize, lane = ptx::lane();
    const uint32_t each = align_up(ceil_div(words, C.warps()), kWarpSize);
    const uint32_t begin = min(warp * each, words), end = min(begin + each, words);
    uint32_t own = 0;
    for (uint32_t i = begin + lane; i < end; i += kWarpSize) own += ptx::count_bits(shared.placing.marks[i]);
    own = ptx::sum_of_lanes(own);
    if (lane == 0) shared.sums[warp] = own;
    __syncthreads();  // the warps' sums are there
    const uint32_t of_warp = lane < C.warps() ? shared.sums[lane % C.warps()] : 0;
    uint32_t place = ptx::sum_of_lanes(lane < warp ? of_warp : 0);
#pragma unroll 1
    for (uint32_t base = begin; base < end; base += kWarpSize) {
        uint32_t marks = base + lane < end ? shared.placing.marks[base + lane] : 0;
        const uint32_t count = ptx::count_bits(marks), up_to = sum_up_to(count);
        for (uint32_t at = place + up_to - count; marks != 0; marks &= marks - 1)
            shared.placing.selected[at++] = column + (base + lane) * kWarpSize + ptx::lowest_bit(marks);
        place += ptx::value_of(up_to, kWarpSize - 1);
    }
    __syncthreads();  // all are listed
    return ptx::sum_of_lanes(of_warp);
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

/// Stores what is selected in the order of columns.
template <TopkConfig C, typename Source>
__device__ void store_in_order(const TopkRowResult& result, TopkShared<C>& shared, const TopkPart& part,
                               const Source& source, const TopkLeast& least) {
    uint32_t place = selected_before<C>(shared, source, least);
#pragma unroll 1
    for (uint32_t from = 0; from < part.count; from += kTopkMarked) {
        const uint32_t words = mark_selected<C>(shared, part, source, least, from);
        const uint32_t count = list_marked<C>(shared, words, part.first + from);
        for (uint32_t i = threadIdx.x; i < count; i += C.threads()) result.store(place + i, shared.placing.selected[i]);
        place += count;
        __syncthreads();  // all is stored
    }
}

/// Stores what is selected, the largest first: the first CTA sorts it.
template <TopkConfig C, typename Source>
__device__ void store_sorted(const TopkParams& p, const TopkRowResult& result, TopkShared<C>& shared,
                             TopkCounts<C>& counts, const Source& source, const TopkLeast& least) {
    const uint32_t rank = C.ctas > 1 ? ptx::cluster_rank() : 0;
    uint32_t size = 4 * kWarpSize;  // whole warps
    while (size < p.k) size *= 2;
    const ptx::SmemAddr ranked = ptx::smem_address(shared.ranked);
    sync_cluster<C>();  // counts, which lie there, have been read
    if (rank == 0)
        for (uint32_t i = threadIdx.x; i < size; i += C.threads()) shared.ranked[i] = 0;
    if (threadIdx.x == 0) shared.listed = 0;  // from here on, what has been put
    const uint32_t before = selected_before<C>(shared, source, least);
    if (C.ctas == 1) __syncthreads();  // they are zero, as others know by the barrier of a cluster
    const ptx::SmemAddr to = C.ctas > 1 ? ptx::map_to_rank(ranked, 0) : ranked;
    for_keys<C>(0, source.count, [&](uint32_t i) {
        const uint32_t key = source.key(i), column = source.column(i);
        if (!least.selects(key, column)) return;
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

/// Marks keys of a part above those with this first digit, and sifts those that have it: their second digits are
/// counted.
template <TopkConfig C>
__device__ TopkSifted<C> sift(TopkShared<C>& shared, TopkCounts<C>& counts, const TopkHeld<C>& keys, uint32_t digit) {
    static_assert(C.held() <= C.threads() * kWarpSize);  // a bit for each key of a thread
    const uint32_t least = digit << topk_digit_shift(0), most = ((digit + 1) << topk_digit_shift(0)) - 1;
    uint32_t bit = 1, equal = 0;
    for_keys<C>(0, keys.count, [&](uint32_t i) {
        const uint32_t key = keys.key(i), above = ptx::ballot(key > most);
        if (ptx::lane() == 0) shared.placing.marks[i / kWarpSize] = above;
        equal |= key >= least && key <= most ? bit : 0;
        bit <<= 1;
    });
    uint32_t place = take_places(shared.sifted, ptx::count_bits(equal));
#pragma unroll 1
    for (; equal != 0; equal &= equal - 1) {
        const uint32_t i = ptx::lowest_bit(equal) * C.threads() + threadIdx.x;
        shared.placing.selected[place++] = i;
        counts.add(topk_digit(keys.key(i), 1));
    }
    __syncthreads();  // all are sifted
    return {shared, keys.first, shared.sifted};
}

/// Stores what is selected in the order of columns, of a part that is held: what is sifted is not marked yet.
template <TopkConfig C>
__device__ void store_sifted(const TopkRowResult& result, TopkShared<C>& shared, const TopkHeld<C>& keys,
                             const TopkSifted<C>& sifted, const TopkLeast& least) {
    const uint32_t words = keys.count / kWarpSize;
    for_keys<C>(0, sifted.count, [&](uint32_t i) {
        const uint32_t column = sifted.column(i), at = column - keys.first;
        if (least.selects(sifted.key(i), column)) atomicOr(&shared.placing.marks[at / kWarpSize], 1u << at % kWarpSize);
    });
    __syncthreads();  // all are marked
    uint32_t place = 0;
    if (C.ctas > 1) {
        uint32_t own = 0;
        for_keys<C>(0, words, [&](uint32_t i) { own += ptx::count_bits(shared.placing.marks[i]); });
        place = sum_of_lower_ranks(shared, own);
    }
    const uint32_t count = list_marked<C>(shared, words, keys.first);
    for (uint32_t i = threadIdx.x; i < count; i += C.threads()) result.store(place + i, shared.placing.selected[i]);
}

template <TopkConfig C, typename Source>
__device__ void store_selected(const TopkParams& p, TopkShared<C>& shared, TopkCounts<C>& counts, uint32_t row,
                               const TopkRow<C>& of, const Source& source, const TopkLeast& least) {
    const TopkRowResult result(p, row);
    if (p.sorted) return store_sorted<C>(p, result, shared, counts, source, least);
    store_in_order<C>(result, shared, of.part(), source, least);
    if (C.ctas > 1 && ptx::cluster_rank() > 0) return;
    for (uint32_t i = of.numbers() + threadIdx.x; i < p.k; i += C.threads())
        result.store(i, static_cast<uint32_t>(kTopkNone));
}

/// Finds the least key that is selected of those of a part, whose first digits have been counted; stores what is.
template <TopkConfig C, typename Source>
__device__ void select_from(const TopkParams& p, TopkShared<C>& shared, TopkCounts<C>& counts, uint32_t row,
                            const TopkRow<C>& of, const Source& source) {
    const TopkFound first = counts.find(p.k);
    store_selected<C>(p, shared, counts, row, of, source, find_least<C>(counts, source, first, p.k));
}

/// Selects from one row. In the order of columns all CTAs write; sorted, the first one does.
template <TopkConfig C>
__device__ void select_from_row(const TopkParams& p, TopkShared<C>& shared, TopkCounts<C>& counts, uint32_t row,
                                const TopkWindow& window, uint32_t rank) {
    const TopkRow<C> of(p, row, window, rank);
    const TopkPart part = of.part();
    if (threadIdx.x < kTopkHistogramBins) shared.placing.histogram[threadIdx.x] = 0;
    if (threadIdx.x == 0) shared.total = 0, shared.sifted = 0;
    __syncthreads();  // they are zero
    if (C.holds(of.window())) {
        hold_part(shared, counts, of);
        const TopkFound first = find_first(p, shared, counts, row);
        if (p.k == 0) return;
        const TopkHeld<C> keys{shared, part.first, part.count, false};
        if (of.numbers() <= p.k) return store_selected<C>(p, shared, counts, row, of, keys, TopkLeast{1, ~0u});
        if (p.sorted || first.count > kTopkMost)
            return store_selected<C>(p, shared, counts, row, of, keys, find_least<C>(counts, keys, first, p.k));
        const TopkSifted<C> sifted = sift(shared, counts, keys, first.digit);
        const TopkLeast least = find_least<C>(counts, sifted, first, p.k, 1);
        return store_sifted<C>(TopkRowResult(p, row), shared, keys, sifted, least);
    }
    const TopkLoaded<C> loaded{of, part.first, part.count};
    if (p.histogram) {
        for_keys<C>(0, loaded.count, [&](uint32_t i) { count_first(counts, loaded.key(i)); });
        find_first(p, shared, counts, row);
        if (p.k == 0) return;
    }
    if (list_part(shared, counts, of, p.k)) {
        const TopkHeld<C> list{shared, part.first, shared.listed, true};
        for_keys<C>(0, list.count, [&](uint32_t i) {
            shared.keys[i] = key_of_word(shared.keys[i]);
            count_first(counts, shared.keys[i]);
        });
        return select_from<C>(p, shared, counts, row, of, list);
    }
    for_keys<C>(0, loaded.count, [&](uint32_t i) { count_first(counts, loaded.key(i)); });
    select_from<C>(p, shared, counts, row, of, loaded);
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
