// The part of a row that a CTA selects from, and where its keys are found. Layer device.
#pragma once

#include <finegemm/topk/topk.h>
#include <finegemm/device/ptx/control.cuh>
#include <finegemm/device/ptx/convert.cuh>
#include <finegemm/device/warp.cuh>

namespace finegemm::device {

/// topk_key of a number of this type, in three instructions: -0 becomes 0, and NaN loses its sign.
__device__ inline uint32_t key_of_word(uint32_t word) {
    const uint32_t bits = float_bits(ptx::fma(float_of_bits(word), 1.0f, 0.0f));
    return bits ^ (static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31) | 0x80000000u);
}
/// The number that has this key; not of NaN.
__device__ inline float number_of_key(uint32_t key) {
    return float_of_bits(key ^ (key >> 31 != 0 ? 0x80000000u : ~0u));
}

/// Calls visit(row, window) for each row of a cluster, when the launch before has ended; the first window is
/// known by then.
template <typename Visit>
__device__ void for_windows(const TopkParams& p, uint32_t first, uint32_t clusters, const Visit& visit) {
    TopkWindow window = p.early_windows ? p.window(first) : TopkWindow{};
    ptx::grid_dependency_wait();
    if (!p.early_windows) window = p.window(first);
#pragma unroll 1
    for (uint32_t row = first; row < p.rows; row += clusters) {
        if (row != first) window = p.window(row);
        visit(row, window);
    }
}

/// Calls visit(bit) for each that is set.
template <typename Visit>
__device__ void for_bits(uint32_t bits, const Visit& visit) {
#pragma unroll 1
    for (; bits != 0; bits &= bits - 1) visit(ptx::lowest_bit(bits));
}

/// Calls visit(i) for each number below `count` that a thread of a CTA has.
template <TopkConfig C, typename Visit>
__device__ void for_numbers(uint32_t count, const Visit& visit) {
#pragma unroll C.ctas == 1 ? 4 : 2  // more would spill
    for (uint32_t i = threadIdx.x; i < count; i += C.threads()) visit(i);
}

/// Numbers that a thread loads at once: those of columns `first`, and as many threads on each.
struct TopkBatch {
    uint32_t first;
    bool inside;  // of all threads: each has its number
    uint32_t words[TopkConfig::batch()];

    __device__ uint32_t column(uint32_t u) const { return first + u * TopkConfig::threads(); }
};

template <TopkConfig C>
class TopkRow {
public:
    __device__ TopkRow(const TopkParams& p, uint32_t row, const TopkWindow& window, uint32_t rank)
        : logits_(p.logits + row * p.logits_stride), window_(window), part_(C.part(window_, rank)) {}

    __device__ const TopkWindow& window() const { return window_; }
    __device__ const TopkPart& part() const { return part_; }
    __device__ uint32_t numbers() const { return window_.end - window_.begin; }
    /// Where the first column of the part is, and from which of its columns on, and up to which, it has numbers.
    __device__ const float* of_part() const { return logits_ + part_.first; }
    __device__ uint32_t first_number() const { return max(window_.begin, part_.first) - part_.first; }
    __device__ uint32_t last_number() const {
        return max(min(window_.end, part_.first + part_.count), part_.first) - part_.first;
    }
    /// Is there a number of the part?
    __device__ bool has(uint32_t column) const {
        return column >= window_.begin && column < min(window_.end, part_.first + part_.count);
    }
    /// 0 where there is none.
    __device__ uint32_t key(uint32_t column) const {
        const uint32_t key = key_of_word(ptx::load_global_l2_if(has(column), logits_ + column));
        return has(column) ? key : 0;
    }
    /// All loads of a batch are in flight together.
    __device__ TopkBatch load(uint32_t base) const {
        constexpr uint32_t kColumns = C.batch() * C.threads();
        const uint32_t begin = part_.first + base;
        TopkBatch batch;
        batch.first = begin + threadIdx.x;
        batch.inside = begin >= window_.begin && base + kColumns <= part_.count && begin + kColumns <= window_.end;
        const float* const from = logits_ + batch.first;
        if (batch.inside) {
#pragma unroll
            for (uint32_t u = 0; u < C.batch(); ++u)
                batch.words[u] = ptx::load_global_l2_if(true, from + u * C.threads());
        } else {
#pragma unroll
            for (uint32_t u = 0; u < C.batch(); ++u)
                batch.words[u] = ptx::load_global_l2_if(has(batch.column(u)), from + u * C.threads());
        }
        return batch;
    }

private:
    const float* const logits_;
    const TopkWindow window_;
    const TopkPart part_;
};

/// Numbers on the list of a part, first as they were loaded, then as keys.
template <TopkConfig C>
struct TopkListed {
    const TopkShared<C>& shared;
    uint32_t count;

    /// Calls visit(key, column) for each.
    template <typename Visit>
    __device__ void for_each(const Visit& visit) const {
        for_numbers<C>(count, [&](uint32_t i) { visit(shared.keys[i], shared.keys[C.listed() + i]); });
    }
};

/// Keys that are loaded each time they are wanted; 0 where there is none.
template <TopkConfig C>
struct TopkLoaded {
    const TopkRow<C>& row;

    template <typename Visit>
    __device__ void for_each(const Visit& visit) const {
        const TopkPart& part = row.part();
        for_numbers<C>(part.count, [&](uint32_t i) { visit(row.key(part.first + i), part.first + i); });
    }
};

/// Keys of a source that are selected.
template <typename Source>
struct TopkSelected {
    const Source& source;
    TopkLeast least;

    template <typename Visit>
    __device__ void for_each(const Visit& visit) const {
        source.for_each([&](uint32_t key, uint32_t column) {
            if (least.selects(key, column)) visit(key, column);
        });
    }
};

}  // namespace finegemm::device
