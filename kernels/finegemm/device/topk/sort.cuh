// Sorting what has been selected. Layer device.
#pragma once

#include <finegemm/topk/topk.h>
#include <finegemm/device/ptx/control.cuh>
#include <finegemm/device/ptx/convert.cuh>

namespace finegemm::device {

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

}  // namespace finegemm::device
