// NumberedRowScales: rows of A that are found by numbers, with their scales, by asynchronous copies. Layer device.
#pragma once

#include <finegemm/core/tma_box.h>
#include <finegemm/device/load/scales_async.cuh>

namespace finegemm::device {

/// Rows of A that are found by numbers, with their scales, copied row by row: TMA would take a box for each. A row that
/// is not in A becomes zeros, and its scale.
template <GemmConfig C>
struct NumberedRows {
    static constexpr uint32_t kRows = C.tile_m / kWarpSize;  // of a lane
    static constexpr uint32_t kPieces = kRowBytes / 16,
                              kAtOnce = kWarpSize / kPieces;  // pieces of a row, rows of a warp
    const KernelParams<C>& p;
    uint32_t lane, existing, kb;
    uint32_t of_a[kRows];  // rows of A of the lane's rows of the tile

    __device__ NumberedRows(const Params<C>& params, const Tile& tile, uint32_t first_block)
        : p(static_cast<const KernelParams<C>&>(params)),
          lane(threadIdx.x % kWarpSize),
          existing(tile.rows),
          kb(first_block) {
#pragma unroll
        for (uint32_t i = 0; i < kRows; ++i) {
            const uint32_t row = tile.row + min(i * kWarpSize + lane, existing - 1);
            of_a[i] = static_cast<uint32_t>(p.finish.numbers_of_a[row]);
        }
    }

    /// Starts the copies into an empty stage.
    __device__ void issue(const Shared<C>& smem, uint32_t stage) const {
#pragma unroll
        for (uint32_t i = 0; i < kRows; ++i) {
            const uint32_t row = i * kWarpSize + lane;
            const bool is_row = of_a[i] < p.finish.a_count;
            const float* const from = p.sfa.data + (is_row ? of_a[i] * p.sfa.mn_stride + kb * p.sfa.k_stride : 0);
            if (row < existing) ptx::copy_async(smem.sfa(stage) + row * 4, from, is_row ? 4 : 0);
        }
        copy_codes(smem.a(stage));
    }
    __device__ void advance(uint32_t k_blocks) { kb += k_blocks; }

private:
    /// Eight lanes copy a row in pieces of 16 bytes, each to where the swizzle has it, and four rows go at once.
    __device__ void copy_codes(SmemAddr to) const {
        const uint32_t piece = lane % kPieces, k = kb * C.tile_k() + piece * 16;
        const uint8_t* const codes = p.finish.a + k;
#pragma unroll
        for (uint32_t i = 0; i < kRows; ++i) {
            const uint32_t end = min(existing, (i + 1) * kWarpSize);
#pragma unroll(kRows > 4 ? 1 : 2)  // more would take spilled registers
            for (uint32_t first = i * kWarpSize; first < end; first += kAtOnce) {
                const uint32_t row = first + lane / kPieces, from = ptx::value_of(of_a[i], row % kWarpSize);
                const bool is_there = from < p.finish.a_count && k < p.finish.k;
                const uint8_t* const at = is_there ? codes + from * p.finish.a_row_stride : p.finish.a;
                ptx::copy_async_x4(to + swizzled(row * kRowBytes + piece * 16, Swizzle::B128),
                                   reinterpret_cast<const float*>(at), is_there ? 16 : 0);
            }
        }
    }
};

/// What ScaleCopies are for other kernels.
template <GemmConfig C>
struct NumberedRowScales {
    NumberedRows<C> a;
    BlockCopies b;

    __device__ NumberedRowScales(const Params<C>& p, const Tile& tile, uint32_t kb)
        : a(p, tile, kb), b(ScaleCopies<C>::copies_of_b(p, tile, kb)) {}
    __device__ void load() {}
    /// Starts the copies into an empty stage. wgmma reads codes through another proxy than copies write them: each lane
    /// waits for its own and orders them before. The other warps have copies of other stages on their way meanwhile.
    __device__ void fill(const Shared<C>& smem, uint32_t stage) const {
        a.issue(smem, stage);
        b.issue(smem.sfb(stage));
        ptx::wait_for_copies();
        ptx::fence_proxy_async_shared();
        ptx::mbarrier_arrive(smem.full(stage));
    }
    __device__ void advance(const Params<C>& p, uint32_t k_blocks = 1) {
        a.advance(k_blocks);
        b.advance(p.sfb, k_blocks);
    }
};

}  // namespace finegemm::device
