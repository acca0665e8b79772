// Words that the threads of a CTA keep in registers. Layer device.
#pragma once

#include <finegemm/topk/topk.h>
#include <finegemm/device/ptx/control.cuh>
#include <finegemm/device/ptx/convert.cuh>
#include <finegemm/device/warp.cuh>

namespace finegemm::device {

/// Up to 32 words of each thread. What is counted or marked is added as float: adders of these are idle, those of
/// integers have to compare.
struct TopkOwnWords {
    static constexpr bool kSmall = true;
    static constexpr uint32_t kVectors = 8, kEach = 4 * kVectors;
    uint32_t words[kEach];
    uint32_t vectors;  // of four words that each thread has; warps take turns

    __device__ static uint32_t vectors_of(uint32_t count) { return ceil_div(count, kTopkRowThreads * 4); }
    /// From the words of a vector to those of the next one.
    __device__ static constexpr uint32_t step() { return 4 * kTopkRowThreads; }
    /// The index of the first word of vector i.
    __device__ static uint32_t index(uint32_t i) { return i * step() + threadIdx.x * 4; }
    __device__ static uint32_t index_of(uint32_t j) { return index(j / 4) + j % 4; }
    __device__ uint32_t total() const { return align_up(vectors, 2) * step(); }
    __device__ uint32_t own() const { return align_up(vectors, 2) * 4; }

    /// One word of each thread, from all over but the last vector, of which warps have not the same.
    __device__ uint32_t sample() const {
        const uint32_t which = vectors > 1 ? ptx::lane() % (vectors - 1) : 0;
        uint32_t word = words[0];
#pragma unroll
        for (uint32_t i = 1; i < kVectors - 1; ++i) word = i == which ? words[4 * i + i % 4] : word;
        return word;
    }

    /// Calls visit(j, word) for each word of this thread.
    template <typename Visit>
    __device__ void for_each(const Visit& visit) const {
#pragma unroll
        for (uint32_t i = 0; i < kVectors; ++i) {
            if (i % 2 == 0 && i >= vectors) break;  // others are 0
#pragma unroll
            for (uint32_t u = 0; u < 4; ++u) visit(4 * i + u, words[4 * i + u]);
        }
    }
    template <typename Change>
    __device__ void change(const Change& change) {
#pragma unroll
        for (uint32_t i = 0; i < kVectors; ++i) {
            if (i % 2 == 0 && i >= vectors) break;  // others are 0
#pragma unroll
            for (uint32_t u = 0; u < 4; ++u) words[4 * i + u] = change(4 * i + u, words[4 * i + u]);
        }
    }

    /// How many are not less than x, and how many not less than y.
    __device__ void count(uint32_t x, uint32_t y, uint32_t& of_x, uint32_t& of_y) const {
        float a = 0, b = 0;
        for_each([&](uint32_t, uint32_t word) {
            if (word >= x) a += 1;
            if (word >= y) b += 1;
        });
        of_x = static_cast<uint32_t>(a), of_y = static_cast<uint32_t>(b);
    }
    /// A bit for each word that is not less than x.
    __device__ uint32_t marks(uint32_t x) const {
        float low = 0, high = 0;
        for_each([&](uint32_t j, uint32_t word) {
            if (word >= x) (j < kEach / 2 ? low : high) += static_cast<float>(1u << j % (kEach / 2));
        });
        return static_cast<uint32_t>(low) | static_cast<uint32_t>(high) << (kEach / 2);
    }
    /// Stores those from `low` up to `low` + width one behind the other.
    __device__ void gather(uint32_t low, uint32_t width, ptx::SmemAddr to) const {
        for_each([&](uint32_t, uint32_t word) {
            const bool in = word - low <= width;
            ptx::store_shared_word_if(in, to, word);
            if (in) to = to + 4;
        });
    }
};

/// Of marks of what each lane has, those of 32 neighbours for each lane: of vector lane / 4, and of its lanes those
/// from lane % 4 * 8 on.
__device__ inline uint32_t marks_in_order(uint32_t marks) {
    const uint32_t lane = ptx::lane();
    const auto exchange = [&](uint32_t distance, uint32_t low) {  // nibbles of 8 lanes are transposed
        const uint32_t other = ptx::shuffle_xor(marks, distance);
        marks = (lane & distance) ? (marks & ~low) | (other & ~low) >> (4 * distance)
                                  : (marks & low) | (other & low) << (4 * distance);
    };
    exchange(4, 0x0000ffff);
    exchange(2, 0x00ff00ff);
    exchange(1, 0x0f0f0f0f);
    return ptx::value_of(marks, lane % 4 * 8 + lane / 4);
}

}  // namespace finegemm::device
