// One block product: started on the tensor cores and awaited. Layer device.
// Two-level accumulation: the tensor core's FP8 accumulator keeps about 14 bits (docs/numerics.md).
#pragma once

#include <finegemm/core/wgmma_desc.h>
#include <finegemm/gemm/kernel_plan.h>
#include <finegemm/device/ptx/memory.cuh>
#include <finegemm/device/ptx/wgmma.cuh>

namespace finegemm::device {

using ptx::SmemAddr;

/// Operands of a block for wgmma, A and B and where it multiplies scales theirs: the halves of the descriptors
/// that vary.
struct Operands {
    uint32_t a, b, sfa, sfb;
};

/// Computed here, not where it is needed.
template <GemmConfig C>
__device__ inline void pin(Operands& at) {
    ptx::pin(at.a);
    ptx::pin(at.b);
    if constexpr (kPlan<C>.tensor_core_scales()) {
        ptx::pin(at.sfa);
        ptx::pin(at.sfb);
    }
}

/// A block product [64 x tile_n], unscaled, in wgmma's fragment layout.
template <GemmConfig C>
struct Block {
    static constexpr uint32_t kRegisters = C.tile_n / 2;
    float product[kRegisters];
    float factor[kPlan<C>.tensor_core_scales() ? kRegisters : 1];  // for each element, by the tensor cores
};

/// Starts A[64 x 128] * B[tile_n x 128]^T: four wgmma of 32, and perhaps one for the factors.
template <GemmConfig C>
__device__ inline void start_block(Block<C>& block, Operands at) {
    ptx::wgmma_fence();
    ptx::wgmma_k128_e4m3(block.product, wgmma_descriptor_with(at.a), wgmma_descriptor_with(at.b));
    if constexpr (kPlan<C>.tensor_core_scales())
        ptx::wgmma_k16_bf16(block.factor, wgmma_short_rows_with(at.sfa), wgmma_short_rows_with(at.sfb));
    ptx::wgmma_commit_group();
}

/// Waits until all but the youngest `Pending` groups have finished; `block` may be read after it.
template <uint32_t Pending, GemmConfig C>
__device__ inline void finish_block(Block<C>& block) {
    ptx::wgmma_wait_group<Pending>();
#pragma unroll
    for (uint32_t r = 0; r < Block<C>::kRegisters; ++r) {
        ptx::pin(block.product[r]);
        if constexpr (kPlan<C>.tensor_core_scales()) ptx::pin(block.factor[r]);
    }
}

}  // namespace finegemm::device
