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

/// Sorts so many, a power of two, the largest first, by a bitonic network. All threads of a CTA call it: each has kEach
/// that are neighbours, so that most steps are within a warp.
template <uint32_t kEach>
__device__ void sort_ranked(uint64_t* ranked, uint32_t count) {
    const uint32_t begin = threadIdx.x * kEach;
    uint64_t x[kEach], y[kEach];
#pragma unroll
    for (uint32_t i = 0; i < kEach; ++i) x[i] = ranked[begin + i];
    for (uint32_t size = 2; size <= count; size *= 2)
        for (uint32_t distance = size / 2; distance > 0; distance /= 2) {
            const bool falls = (begin & size) == 0;
            if (distance < kEach) {
#pragma unroll
                for (uint32_t d = 1; d < kEach; d *= 2)
                    if (distance == d)
#pragma unroll
                        for (uint32_t i = 0; i < kEach; ++i)
                            if ((i & d) == 0) put_in_order(x[i], x[i | d], (i & size) == 0 && falls);
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
