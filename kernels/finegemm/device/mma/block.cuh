// One block product: started on the tensor cores and awaited. Layer device.
// Two-level accumulation: the tensor core's FP8 accumulator keeps about 14 bits (docs/numerics.md).
#pragma once

#include <finegemm/core/wgmma_desc.h>
#include <finegemm/gemm/kernel_plan.h>
#include <finegemm/device/either.cuh>
#include <finegemm/device/pipeline/barriers.cuh>
#include <finegemm/device/pipeline/shared.cuh>
#include <finegemm/device/ptx/memory.cuh>
#include <finegemm/device/ptx/tma.cuh>
#include <finegemm/device/ptx/wgmma.cuh>

namespace finegemm::device {

/// Operands of a block for wgmma, A and B and where it multiplies scales theirs: the halves of the descriptors
/// that vary.
struct Operands {
    uint32_t a, b, sfa, sfb;
};

/// Operand transform: what is done to the operands of a stage between TMA and the tensor cores. Elements that these
/// multiply as they are stored need none.
struct NoTransform {
    template <GemmConfig C>
    __device__ static void apply(const Shared<C>&, uint32_t /*stage*/) {}
};
template <GemmConfig C>
using TransformOf = NoTransform;

/// A block product [64 x wgmma_cols], unscaled, in wgmma's fragment layout. Of integers it is an exact one: at most
/// 128 * 128 * 128, which a float holds. Of MX there are four, of 32 of K each, one behind the other.
template <GemmConfig C>
struct Block {
    static constexpr uint32_t kRegisters = C.wgmma_cols() / 2;
    using Sum = Either<C.a.element == Element::I8, int32_t, float>;
    Sum product[kPlan<C>.products() * kRegisters];
    float factor[kPlan<C>.tensor_core_scales() ? kRegisters : 1];  // for each element, by the tensor cores
};

/// One product of a k-block.
struct WholeProduct {
    template <GemmConfig C>
    __device__ static void start(Block<C>& block, uint64_t a, uint64_t b) {
        ptx::wgmma_k128(block.product, a, b);
    }
};
/// A product of each 32 of K.
struct PartProducts {
    template <GemmConfig C>
    __device__ static void start(Block<C>& block, uint64_t a, uint64_t b) {
        ptx::wgmma_k32_each(block.product, a, b);
    }
};
template <GemmConfig C>
using ProductsOf = Either<kPlan<C>.products() == 1, WholeProduct, PartProducts>;

/// What the tensor cores compute of scales beside a block product: nothing.
struct NoScaleProduct {
    template <GemmConfig C>
    __device__ static void prepare(const Shared<C>&, uint32_t /*warpgroup*/) {}
    template <GemmConfig C>
    __device__ static void add_to(Operands&, const Shared<C>&, uint32_t /*stage*/, uint32_t /*row*/,
                                  uint32_t /*warpgroup*/) {}
    __device__ static void pin(Operands&) {}
    template <GemmConfig C>
    __device__ static void start(Block<C>&, Operands) {}
    template <GemmConfig C>
    __device__ static void pin(Block<C>&, uint32_t /*reg*/) {}
};

/// What they compute of 1D1D scales: the products of all rows' and all columns' (gemm/split_scale.h).
struct ScaleProduct {
    /// Zeros that stand along K beside each SplitScale of A.
    template <GemmConfig C>
    __device__ static void prepare(const Shared<C>& smem, uint32_t warpgroup) {
        const uint32_t row = threadIdx.x % 128;
        if (row < kZeroRows) ptx::store_shared_words_x4(smem.zeros(warpgroup) + row * kSplitScaleBytes, {0, 0, 0, 0});
        ptx::fence_proxy_async_shared();
        warpgroup_barrier(warpgroup);
    }
    template <GemmConfig C>
    __device__ static void add_to(Operands& at, const Shared<C>& smem, uint32_t stage, uint32_t row,
                                  uint32_t warpgroup) {
        const uint32_t parts = smem.sfa(stage).bits + row * kSplitScaleBytes;
        at.sfa = wgmma_short_rows_low(parts, smem.zeros(warpgroup).bits - parts);
        at.sfb = wgmma_short_rows_low(smem.sfb(stage).bits, 0);
    }
    __device__ static void pin(Operands& at) {
        ptx::pin(at.sfa);
        ptx::pin(at.sfb);
    }
    template <GemmConfig C>
    __device__ static void start(Block<C>& block, Operands at) {
        ptx::wgmma_k16_bf16(block.factor, wgmma_short_rows_with(at.sfa), wgmma_short_rows_with(at.sfb));
    }
    template <GemmConfig C>
    __device__ static void pin(Block<C>& block, uint32_t reg) {
        ptx::pin(block.factor[reg]);
    }
};

template <GemmConfig C>
using ScaleProductOf = Either<kPlan<C>.tensor_core_scales(), ScaleProduct, NoScaleProduct>;

/// Has operands computed here, not where they are needed.
template <GemmConfig C>
__device__ inline void pin(Operands& at) {
    ptx::pin(at.a);
    ptx::pin(at.b);
    ScaleProductOf<C>::pin(at);
}

/// Starts A[64 x 128] * B[wgmma_cols x 128]^T: four wgmma of 32, and perhaps one for the factors.
template <GemmConfig C>
__device__ inline void start_block(Block<C>& block, Operands at) {
    ptx::wgmma_fence();
    static_assert(bytes_of(C.a.element) == 1 && bytes_of(C.b.element) == 1);
    ProductsOf<C>::start(block, wgmma_descriptor_with(at.a), wgmma_descriptor_with(at.b));
    ScaleProductOf<C>::start(block, at);
    ptx::wgmma_commit_group();
}

/// Waits until all but the youngest `Pending` groups have finished; `block` may be read after it.
template <uint32_t Pending, GemmConfig C>
__device__ inline void finish_block(Block<C>& block) {
    ptx::wgmma_wait_group<Pending>();
#pragma unroll
    for (uint32_t r = 0; r < kPlan<C>.products() * Block<C>::kRegisters; ++r) {
        ptx::pin(block.product[r]);
        ScaleProductOf<C>::pin(block, r);
    }
}

}  // namespace finegemm::device
