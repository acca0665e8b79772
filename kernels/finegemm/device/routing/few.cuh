// Routing of few choices by each CTA for itself. Layer device.
#pragma once

#include <finegemm/device/ptx/dynamic_shared.cuh>
#include <finegemm/device/routing/choices.cuh>

namespace finegemm::device {

/// Choices that come before: those of experts below `expert`, and of it those below `number`.
__device__ inline uint32_t choices_before(const FewShared& shared, uint32_t choices, uint32_t expert, uint32_t number) {
    uint32_t before = 0;
#pragma unroll 4
    for (uint32_t i = 0; i < choices; ++i) {
        const uint32_t other = shared.experts[i];
        before += other < expert || (other == expert && i < number) ? 1 : 0;
    }
    return before;
}

/// The rows that the kernel of route gives, for this CTA. The grid shares what is written, if it `Writes`.
template <uint32_t Threads, bool Writes>
__device__ const FewShared& route_few(const RouteParams& p) {
    FewShared& shared = ptx::dynamic_shared_object<FewShared>();
    const uint32_t choices = p.choices, experts = p.places.experts;
    for (uint32_t i = threadIdx.x; i < choices; i += Threads) shared.experts[i] = load_choice(p, i, true).expert;
    __syncthreads();  // the experts of all choices are known
    for (uint32_t i = threadIdx.x; i < choices; i += Threads) {
        const uint32_t expert = shared.experts[i], row = choices_before(shared, choices, expert, i);
        shared.rows[i] = expert < experts && row < p.places.rows ? row : static_cast<uint32_t>(kNoRow);
        const uint32_t token = p.by_k.quotient(i), slot = i - token * p.by_k.divisor;
        if (!Writes || blockIdx.x > 0) continue;
        ptx::store_global(p.inverse + token * p.inverse_row_stride + slot, shared.rows[i]);
        ptx::store_global_if(p.permutation && shared.rows[i] < p.places.rows, p.permutation + shared.rows[i], i);
    }
    for (uint32_t e = blockIdx.x * Threads + threadIdx.x; Writes && e <= experts; e += gridDim.x * Threads)
        ptx::store_global(p.numbers + e, min(choices_before(shared, choices, e, 0), p.places.rows));
    __syncthreads();  // the rows of all choices are known
    return shared;
}

}  // namespace finegemm::device
