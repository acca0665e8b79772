// A part of a row whose keys a CTA keeps, and which of them are selected. Layer device.
#pragma once

#include <finegemm/device/topk/digits.cuh>

namespace finegemm::device {

/// Keys of a part that is kept which a thread has marked: bit 8 * j + u is of column u of its own in set j.
template <TopkConfig C>
struct TopkMarked {
    const TopkShared<C>& shared;
    uint32_t first;  // column of the part
    uint32_t bits;

    static constexpr uint32_t kEach = 4, kSet = kEach * C.threads(), kSets = C.held() / kSet;
    static_assert(kSets == 4);

    /// The number of the first of a thread's neighbours in set `j`.
    __device__ static uint32_t begin(uint32_t j) { return j * kSet + threadIdx.x * kEach; }
    __device__ static uint32_t number(uint32_t bit) { return begin(bit / 8) + bit % 8; }
    /// Calls visit(key, column) for each.
    template <typename Visit>
    __device__ void for_each(const Visit& visit) const {
        for_bits(bits, [&](uint32_t bit) {
            const uint32_t i = number(bit);
            visit(shared.keys[i], first + i);
        });
    }
};

/// Keys of a part that is kept, 0 where it has no number, of which a thread has four neighbours in each set of columns.
template <TopkConfig C>
class TopkKept {
public:
    using Marked = TopkMarked<C>;

    /// A thread begins to load its own numbers of all sets, each a group of copies.
    __device__ TopkKept(TopkShared<C>& shared, const TopkRow<C>& row) : shared_(shared), row_(row) {
        const uint32_t count = row.part().count, end = row.last_number();
        const float* const from = row.of_part();
        const bool aligned = reinterpret_cast<uint64_t>(from) % sizeof(ptx::Words4) == 0;
#pragma unroll
        for (uint32_t j = 0; j < Marked::kSets; ++j) {
            const uint32_t i = Marked::begin(j), numbers = i < end ? min(end - i, Marked::kEach) : 0;
            if (j * Marked::kSet < count) {
                if (aligned) {
                    ptx::copy_async_x4(address(j), numbers > 0 ? from + i : from, numbers * 4);
                } else {
                    ptx::Words4 x;
#pragma unroll
                    for (uint32_t u = 0; u < Marked::kEach; ++u)
                        x.w[u] = ptx::load_global_l2_if(u < numbers, from + i + u);
                    ptx::store_shared_words_x4(address(j), x);
                }
            }
            ptx::end_group_of_copies();
        }
    }
    /// Makes keys of the numbers as they come, and counts their first digits.
    __device__ void count(TopkCounts<C>& counts) const {
        count_set<0>(counts), count_set<1>(counts), count_set<2>(counts), count_set<3>(counts);
    }

    /// Keys that have this first digit.
    __device__ Marked with_digit(uint32_t digit) const {
        return marked(where([&](uint32_t key) { return key >> topk_digit_shift(0) == digit; }));
    }
    __device__ void select(const TopkLeast& least) {
        selected_ = where([&](uint32_t key) { return key >= least.key; });
        if (least.last == ~0u) return;  // all that equal it
        for_bits(selected_, [&](uint32_t bit) {
            const uint32_t i = Marked::number(bit);
            if (!least.selects(shared_.keys[i], part_first() + i)) selected_ &= ~(1u << bit);
        });
    }
    __device__ Marked selected() const { return marked(selected_); }

    /// Lists columns that are selected, in their order; how many there are. A set has a byte in words of a warp,
    /// and half a word in those of all.
    __device__ uint32_t list() const {
        const uint32_t warp = threadIdx.x / kWarpSize, lane = ptx::lane();
        const uint32_t own = counts_of_sets(selected_), up_to = sum_up_to(own);
        if (lane == kWarpSize - 1) shared_.sums[warp] = up_to;
        __syncthreads();  // the warps' sums are there
        const uint32_t sums = lane < C.warps() ? shared_.sums[lane % C.warps()] : 0, lower = lane < warp ? sums : 0;
        const uint32_t all_even = ptx::sum_of_lanes(sums & kHalves), all_odd = ptx::sum_of_lanes(sums >> 8 & kHalves);
        const uint32_t even = ptx::sum_of_lanes(lower & kHalves), odd = ptx::sum_of_lanes(lower >> 8 & kHalves);
        const ptx::SmemAddr selected = ptx::smem_address(shared_.placing.selected);
        uint32_t before = 0, bits = selected_, of_lanes = up_to - own;
#pragma unroll 2  // more would spill
        for (uint32_t j = 0; j < Marked::kSets; ++j, bits >>= 8, of_lanes >>= 8) {
            const uint32_t shift = j / 2 * 16, below = (j % 2 == 0 ? even : odd) >> shift & 0xffff;
            uint32_t place = before + below + (of_lanes & 0xff);
#pragma unroll
            for (uint32_t u = 0; u < Marked::kEach; ++u) {
                const uint32_t is_selected = bits >> u & 1;
                ptx::store_shared_word_if(is_selected != 0, selected + place * 4, part_first() + Marked::begin(j) + u);
                place += is_selected;
            }
            before += (j % 2 == 0 ? all_even : all_odd) >> shift & 0xffff;
        }
        __syncthreads();  // all are listed
        return before;
    }

private:
    static constexpr uint32_t kHalves = 0x00ff00ff;

    __device__ ptx::SmemAddr address(uint32_t j) const {
        return ptx::smem_address(shared_.keys) + Marked::begin(j) * 4;
    }
    __device__ uint32_t part_first() const { return row_.part().first; }
    __device__ Marked marked(uint32_t bits) const { return {shared_, part_first(), bits}; }

    template <uint32_t J>
    __device__ void count_set(TopkCounts<C>& counts) const {
        ptx::wait_for_copies_but<Marked::kSets - 1 - J>();
        if (J * Marked::kSet >= row_.part().count) return;
        const uint32_t i = Marked::begin(J), begin = row_.first_number(), end = row_.last_number();
        ptx::Words4 x = ptx::load_shared_words_x4(address(J));
        if (i >= begin && i + Marked::kEach <= end) {
#pragma unroll
            for (uint32_t& word : x.w) {
                word = key_of_word(word);
                counts.add(topk_digit(word, 0));
            }
        } else {
#pragma unroll
            for (uint32_t u = 0; u < Marked::kEach; ++u) {
                x.w[u] = i + u >= begin && i + u < end ? key_of_word(x.w[u]) : 0;
                count_first(counts, x.w[u]);
            }
        }
        ptx::store_shared_words_x4(address(J), x);
    }
    /// Bits of the keys of which it is true.
    template <typename Predicate>
    __device__ uint32_t where(const Predicate& predicate) const {
        uint32_t bits = 0;
#pragma unroll
        for (uint32_t j = 0; j < Marked::kSets; ++j) {
            if (j * Marked::kSet >= row_.part().count) break;
            const ptx::Words4 keys = ptx::load_shared_words_x4(address(j));
#pragma unroll
            for (uint32_t u = 0; u < Marked::kEach; ++u) bits |= predicate(keys.w[u]) ? 1u << (8 * j + u) : 0;
        }
        return bits;
    }
    /// How many bits each byte has, of which only the lower half is used.
    __device__ static uint32_t counts_of_sets(uint32_t bits) {
        bits -= bits >> 1 & 0x05050505;
        return (bits & 0x03030303) + (bits >> 2 & 0x03030303);
    }

    TopkShared<C>& shared_;
    const TopkRow<C>& row_;
    uint32_t selected_ = 0;
};

}  // namespace finegemm::device
