// The kernel that selects from few rows, each of which a cluster keeps in shared memory. Layer device.
// Counts of the upper digit are added in all CTAs; the few keys that agree with the kth largest in it are then sent to
// all, so that each finds the other digits by itself, and how many keys the CTAs before it select.
#pragma once

#include <finegemm/device/ptx/dynamic_shared.cuh>
#include <finegemm/device/topk/few_counts.cuh>
#include <finegemm/device/topk/select.cuh>

namespace finegemm::device {

/// What a cluster selects: keys above `key`, and the first `wanted` that equal it.
struct TopkFewLeast {
    uint32_t key, wanted;
};
/// How many keys in the CTAs before this one are above that, and equal it.
struct TopkBefore {
    uint32_t above, equal;
    uint32_t listed;  // of those that this thread has seen on the list, to be added: those that equal it from bit 16 on
};
/// Sets of 32 columns of a warp up to which lanes place what is selected of a set together.
inline constexpr uint32_t kTopkFewSets = 8;

/// Bits of a lane's columns, which are 32 apart: keys above something, and keys that equal it.
struct TopkMarks {
    uint32_t above, equal;
};

/// A row and the part of it that a CTA keeps. Each warp has neighbours, up to 32 sets of 32 columns.
template <TopkConfig C>
class TopkFewRow {
public:
    __device__ TopkFewRow(TopkFewShared<C>& shared, const TopkWindow& window, uint32_t rank)
        : shared_(shared), window_(window), part_(C.part(window_, rank)) {
        static_assert(C.held() <= C.threads() * kWarpSize);
        const uint32_t each = ceil_div(part_.count, C.warps() * kWarpSize) * kWarpSize;
        begin_ = min(threadIdx.x / kWarpSize * each, part_.count), end_ = min(begin_ + each, part_.count);
    }
    __device__ uint32_t numbers() const { return window_.end - window_.begin; }
    /// Numbers in the CTAs before this one.
    __device__ uint32_t numbers_before() const { return max(part_.first, window_.begin) - window_.begin; }

    /// A lane loads four neighbours.
    __device__ void start_loading(const float* logits) const {
        const float* const from = logits + part_.first;
        const ptx::SmemAddr keys = ptx::smem_address(shared_.keys);
        const uint32_t stop = last() - part_.first;
        if (reinterpret_cast<uint64_t>(from) % 16 == 0) {
#pragma unroll 4
            for (uint32_t i = begin_ + ptx::lane() * 4; i < end_; i += 4 * kWarpSize) {
                const uint32_t count = i < stop ? min(stop - i, 4) : 0;
                ptx::copy_async_x4(keys + i * 4, count > 0 ? from + i : from, count * 4);
            }
            return;
        }
#pragma unroll 2
        for (uint32_t i = begin_ + ptx::lane() * 4; i < end_; i += 4 * kWarpSize) {
            ptx::Words4 words;
#pragma unroll
            for (uint32_t u = 0; u < 4; ++u) words.w[u] = ptx::load_global_l2_if(i + u < stop, from + i + u);
            ptx::store_shared_words_x4(keys + i * 4, words);
        }
    }
    /// Makes keys of the numbers that this thread has loaded, and calls visit(key) for each.
    template <typename Visit>
    __device__ void make_keys(const Visit& visit) const {
        const uint32_t first = window_.begin - min(window_.begin, part_.first), stop = last() - part_.first;
        const ptx::SmemAddr keys = ptx::smem_address(shared_.keys);
        ptx::wait_for_copies();
#pragma unroll 2
        for (uint32_t i = begin_ + ptx::lane() * 4; i < end_; i += 4 * kWarpSize) {
            ptx::Words4 words = ptx::load_shared_words_x4(keys + i * 4);
            if (i >= first && i + 4 <= stop) {  // all four are numbers
#pragma unroll
                for (uint32_t& word : words.w) visit(word = key_of_word(word));
            } else {
#pragma unroll
                for (uint32_t u = 0; u < 4; ++u) {
                    const bool has = i + u >= first && i + u < stop;
                    words.w[u] = has ? key_of_word(words.w[u]) : 0;
                    if (has) visit(words.w[u]);
                }
            }
            ptx::store_shared_words_x4(keys + i * 4, words);
        }
    }

    /// Calls visit(key) for each key of the lane's columns, which are 32 apart.
    template <typename Visit>
    __device__ void for_keys(const Visit& visit) const {
#pragma unroll 4
        for (uint32_t i = begin_ + ptx::lane(); i < end_; i += kWarpSize) visit(shared_.keys[i]);
    }
    /// Marks of the lane's columns: how the upper bits of keys, but `shift`, compare with `word`.
    __device__ TopkMarks marks(uint32_t shift, uint32_t word) const {
        const uint32_t least = word << shift, most = ((word + 1) << shift) - 1;
        uint32_t bit = 1, above = 0, not_below = 0;
#pragma unroll 8
        for (uint32_t i = begin_ + ptx::lane(); i < end_; i += kWarpSize, bit <<= 1) {
            const uint32_t key = shared_.keys[i];
            if (key > most) above |= bit;
            if (key >= least) not_below |= bit;
        }
        return {above, not_below & ~above};
    }
    /// The key and the column of number `i` of the warp's.
    __device__ uint32_t key(uint32_t i) const { return shared_.keys[begin_ + i]; }
    __device__ uint32_t column(uint32_t i) const { return part_.first + begin_ + i; }
    /// Sets of 32 columns of the warp, of each of which a lane has one.
    __device__ uint32_t sets() const { return (end_ - begin_) / kWarpSize; }

private:
    __device__ uint32_t last() const { return max(min(window_.end, part_.first + part_.count), part_.first); }

    TopkFewShared<C>& shared_;
    const TopkWindow window_;
    const TopkPart part_;
    uint32_t begin_, end_;  // of the warp, in the part
};

/// Lists keys that are marked as equal.
template <TopkConfig C>
__device__ void list_equal(TopkFewShared<C>& shared, const TopkFewRow<C>& row, uint32_t equal) {
    uint32_t at = take_places(shared.listed, ptx::count_bits(equal));
    const uint32_t lane = ptx::lane();
    for_bits(equal, [&](uint32_t bit) { shared.lists.own[at++] = row.key(bit * kWarpSize + lane); });
}

/// What a thread has of the list of all CTAs.
template <TopkConfig C>
class TopkFewListed {
public:
    __device__ TopkFewListed(const TopkFewShared<C>& shared, uint32_t total) : total_(total) {
#pragma unroll
        for (uint32_t u = 0; u < kEach; ++u) {
            const uint32_t i = u * C.threads() + threadIdx.x;
            keys_[u] = i < total ? shared.lists.all[i] : 0;
        }
    }
    /// Calls visit(key) for those whose upper bits, but `shift`, are `word`.
    template <typename Visit>
    __device__ void for_agreeing(uint32_t shift, uint32_t word, const Visit& visit) const {
#pragma unroll
        for (uint32_t u = 0; u < kEach; ++u) {
            if (u * C.threads() + threadIdx.x / kWarpSize * kWarpSize >= total_) break;  // of the whole warp
            if (keys_[u] >> shift == word) visit(keys_[u]);
        }
    }
    /// Calls visit(key) for those of the first `count` on the list.
    template <typename Visit>
    __device__ void for_first(uint32_t count, const Visit& visit) const {
#pragma unroll
        for (uint32_t u = 0; u < kEach; ++u)
            if (u * C.threads() + threadIdx.x < count) visit(keys_[u]);
    }

private:
    static constexpr uint32_t kEach = ceil_div(kTopkFewListed, C.threads());
    const uint32_t total_;
    uint32_t keys_[kEach];  // 0 is none
};

/// Finds what is selected of more than k numbers, whose first digits have been counted, how many keys before, and
/// which are marked.
template <TopkConfig C>
__device__ void find_few(TopkFewShared<C>& shared, TopkFewCounts<C>& counts, const TopkFewRow<C>& row,
                         TopkFewFound found, uint32_t k, TopkFewLeast& least, TopkBefore& before, TopkMarks& marks) {
    const uint32_t rank = ptx::cluster_rank(), lane = ptx::lane();
    TopkWord word{found.digit, k - found.before, found.count};
    TopkFewListing own{found.own_before, found.own_count};
    uint32_t shift = topk_digit_shift(0);
    const auto next = [&](uint32_t bits, const TopkFound& digit) {
        word = {word.word << bits | digit.digit, word.wanted - digit.before, digit.count};
        shift -= bits;
    };
#pragma unroll 1
    while (shift > 0 && word.equal > kTopkFewListed - 4 * C.ctas) {
        const uint32_t bits = min(shift, kTopkFewBits);
        row.for_keys([&](uint32_t key) {
            if (key >> shift == word.word) counts.add(key >> (shift - bits) & ((1u << bits) - 1));
        });
        found = counts.find_in_cluster(word.wanted, false, [](uint32_t, uint32_t) {});
        next(bits, found);
        own.above += found.own_before, own.listed = found.own_count;
    }
    counts.tell(own);
    marks = row.marks(shift, word.word);
    if (shift > 0) {
        list_equal(shared, row, marks.equal);
        if (own.listed + threadIdx.x < align_up(own.listed, 4)) shared.lists.own[own.listed + threadIdx.x] = 0;
        __syncthreads();  // all is listed
    }
    const TopkFewListing listing = counts.told();
    before.above = ptx::sum_of_lanes(lane < rank ? listing.above : 0);
    least = {word.word, word.wanted};
    if (shift == 0) {
        before.equal = ptx::sum_of_lanes(lane < rank ? listing.listed : 0);
        return;
    }
    const uint32_t listed = align_up(listing.listed, 4), at = ptx::sum_of_lanes(lane < rank ? listed : 0);
    const uint32_t total = ptx::sum_of_lanes(listed);
    counts.send(align_up(own.listed, 4), at, total);
    const TopkFewListed<C> list(shared, total);
#pragma unroll 1
    for (uint32_t i = 0; shift > 0 && word.wanted < word.equal; ++i) {
        if (word.equal <= kTopkGathered) {
            list.for_agreeing(shift, word.word, [&](uint32_t key) { counts.gather(key); });
            __syncthreads();  // all are there
            const TopkFound key = counts.find_gathered(word.equal, word.wanted);
            word = {key.digit, word.wanted - key.before, key.count}, shift = 0;
            break;
        }
        const uint32_t bits = min(shift, kTopkFewBits);
        list.for_agreeing(shift, word.word,
                          [&](uint32_t key) { counts.add_listed(i, key >> (shift - bits) & ((1u << bits) - 1)); });
        __syncthreads();  // all is counted
        next(bits, counts.find_listed(i, word.wanted));
    }
    // Where all that have these upper bits are selected, the others do not matter.
    if (word.wanted < word.equal) least = {word.word, word.wanted};
    else least = {(word.word << shift) - 1, 0};
    list.for_first(at, [&](uint32_t key) { before.listed += key > least.key ? 1 : key == least.key ? 1u << 16 : 0; });
}

/// Calls store(is_selected, place, i) for columns of the warp.
template <TopkConfig C, typename Store>
__device__ void place_few(TopkFewCounts<C>& counts, const TopkFewRow<C>& row, const TopkFewLeast& least,
                          TopkBefore before, const TopkMarks& marks, const Store& store) {
    const uint32_t lane = ptx::lane(), sets = row.sets();
    TopkMarks exact{marks.above, 0};
    for_bits(marks.equal, [&](uint32_t bit) {
        const uint32_t key = row.key(bit * kWarpSize + lane);
        exact.above |= key > least.key ? 1u << bit : 0;
        exact.equal |= key == least.key ? 1u << bit : 0;
    });
    uint32_t warps = ptx::count_bits(exact.above) | ptx::count_bits(exact.equal) << 16;
    counts.sum_before(warps, before.listed);
    uint32_t above = before.above + (before.listed & 0xffff) + (warps & 0xffff);
    uint32_t equal = before.equal + (before.listed >> 16) + (warps >> 16);
    const uint32_t lower = (1u << lane) - 1;
    if (least.wanted == 0 && sets > kTopkFewSets) {  // most have few: a lane goes through one
        uint32_t own = 0;
#pragma unroll 8
        for (uint32_t j = 0; j < sets; ++j) {
            const uint32_t all = ptx::ballot((exact.above >> j & 1) != 0);
            if (lane == j) own = all;
        }
        const uint32_t count = ptx::count_bits(own);
        above += sum_up_to(count) - count;
        for_bits(own, [&](uint32_t bit) { store(true, above++, lane * kWarpSize + bit); });
        return;
    }
    if (least.wanted == 0) {
#pragma unroll 4
        for (uint32_t j = 0; j < sets; ++j) {
            const bool selected = (exact.above >> j & 1) != 0;
            const uint32_t all = ptx::ballot(selected);
            store(selected, above + ptx::count_bits(all & lower), j * kWarpSize + lane);
            above += ptx::count_bits(all);
        }
        return;
    }
#pragma unroll 1
    for (uint32_t j = 0; j < sets; ++j) {
        const bool is_above = (exact.above >> j & 1) != 0, is_equal = (exact.equal >> j & 1) != 0;
        const uint32_t aboves = ptx::ballot(is_above), equals = ptx::ballot(is_equal);
        const uint32_t equal_at = equal + ptx::count_bits(equals & lower);
        const uint32_t place = above + ptx::count_bits(aboves & lower) + min(equal_at, least.wanted);
        store(is_above || (is_equal && equal_at < least.wanted), place, j * kWarpSize + lane);
        above += ptx::count_bits(aboves), equal += ptx::count_bits(equals);
    }
}

/// Selects from one row. `last`: no other row follows.
template <TopkConfig C>
__device__ void select_few(const TopkParams& p, TopkFewShared<C>& shared, TopkFewCounts<C>& counts, uint32_t row,
                           const TopkWindow& window, bool last) {
    const uint32_t rank = ptx::cluster_rank();
    const TopkFewRow<C> of(shared, window, rank);
    const uint32_t numbers = of.numbers();
    of.start_loading(p.logits + row * p.logits_stride);
    counts.clear_listed();
    if (threadIdx.x == 0) shared.listed = 0;
    if (p.histogram && threadIdx.x < kTopkHistogramBins) shared.histogram[threadIdx.x] = 0;
    of.make_keys([&](uint32_t key) { counts.add(topk_digit(key, 0)); });
    const TopkFewFound found = counts.find_in_cluster(p.k, p.histogram, [&](uint32_t digit, uint32_t count) {
        if (p.histogram && count > 0) atomicAdd(&shared.histogram[topk_histogram_bin(digit)], count);
    });
    if (p.histogram) {
        if (rank == 0 && threadIdx.x < kTopkHistogramBins)
            ptx::store_global(p.histogram + row * p.histogram_stride + threadIdx.x, shared.histogram[threadIdx.x]);
        __syncthreads();  // its memory is free
    }
    TopkFewLeast least{0, 0};
    TopkBefore before{of.numbers_before(), 0, 0};
    TopkMarks marks;
    if (numbers > p.k && p.k > 0) find_few<C>(shared, counts, of, found, p.k, least, before, marks);
    else marks = of.marks(0, 0);
    const TopkRowResult result(p, row);
    if (!p.sorted) {
        place_few<C>(counts, of, least, before, marks, [&](bool selected, uint32_t place, uint32_t i) {
            if (result.values) {
                if (selected && p.k > 0) result.store(place, of.column(i), of.key(i));
            } else {
                ptx::store_global_if(selected && p.k > 0, result.indices + place, of.column(i));
            }
        });
        for (uint32_t i = numbers + rank * C.threads() + threadIdx.x; i < p.k; i += C.ctas * C.threads())
            result.store(i, static_cast<uint32_t>(kTopkNone));
        // What others have sent has come, so that a CTA may end when it likes, and has been read: the barrier orders
        // nothing else.
        if (last) return;
        ptx::cluster_arrive_relaxed();
        ptx::cluster_wait();
        return;
    }
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();            // lists are free
    uint32_t size = 4 * kWarpSize;  // whole warps
    while (size < p.k) size *= 2;
    const ptx::SmemAddr ranked = ptx::map_to_rank(ptx::smem_address(shared.ranked), 0);
    if (rank == 0)
        for (uint32_t i = min(numbers, p.k) + threadIdx.x; i < size; i += C.threads()) shared.ranked[i] = 0;
    place_few<C>(counts, of, least, before, marks, [&](bool selected, uint32_t place, uint32_t i) {
        if (!selected) return;
        const uint64_t x = topk_ranked(of.key(i), of.column(i));
        ptx::store_cluster_x2(ranked + place * 8, static_cast<uint32_t>(x), static_cast<uint32_t>(x >> 32));
    });
    sync_ctas();  // all have been put there
    if (rank > 0) return;
    sort_ranked(shared.ranked, size);
    for (uint32_t i = threadIdx.x; i < p.k; i += C.threads()) result.store(i, topk_column(shared.ranked[i]));
    __syncthreads();  // all is stored
}

/// A cluster takes one row after another.
template <TopkConfig C>
__device__ void topk_select_few(const TopkParams& p) {
    TopkFewShared<C>& shared = ptx::dynamic_shared_object<TopkFewShared<C>>();
    TopkFewCounts<C> counts(shared);
    ptx::cluster_arrive();
    ptx::grid_launch_dependents();
    ptx::cluster_wait();  // counts of all are zero
    const uint32_t clusters = gridDim.x / C.ctas;
    for_windows(p, blockIdx.x / C.ctas, clusters, [&](uint32_t row, const TopkWindow& window) {
        select_few<C>(p, shared, counts, row, window, row + clusters >= p.rows);
    });
}

}  // namespace finegemm::device
