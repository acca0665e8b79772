// Products with weights of 4 bits of many rows: warps that decode blocks of B to shared memory, and warpgroups that
// multiply rows of A by them. Layer device.
#pragma once

#include <finegemm/core/fp8.h>
#include <finegemm/core/fragment.h>
#include <finegemm/core/ring.h>
#include <finegemm/gemm/roles.h>
#include <finegemm/gemm/store_layout.h>
#include <finegemm/device/four_bit/decode.cuh>
#include <finegemm/device/four_bit/shared.cuh>
#include <finegemm/device/ptx/control.cuh>
#include <finegemm/device/ptx/tma.cuh>
#include <finegemm/device/ptx/wgmma.cuh>

namespace finegemm::device {

/// Decodes each k-block's block of B to where wgmma reads it, by `warp` of kDecodeWarps. A unit is what a warp has in
/// 16 bytes of each lane: 64 of K of 16 rows.
template <FourBitConfig C>
    requires(C.decodes_to_shared())
__device__ void prepare_blocks(const FourBitShared<C>& smem, uint32_t warp) {
    constexpr uint32_t kUnits = 16, kMost = ceil_div(kUnits, C.kDecodeWarps), kUnitBytes = kFourBitCodeBytes / kUnits;
    const uint32_t lane = threadIdx.x % kWarpSize, row = lane / 4;
    const uint32_t in_unit =
        row * kScaleBlock + (row * 16 + lane % 4 * 4);  // row r's pieces of 16 bytes are xored by r
    const auto exists = [warp](uint32_t i) {
        return (i + 1) * C.kDecodeWarps <= kUnits || i * C.kDecodeWarps + warp < kUnits;
    };
    auto slot = RingCursor<C.decoded_blocks()>::producer();
    for (auto at = RingCursor<C.stages()>::consumer();; ++at, ++slot) {
        wait(smem.full(at.stage), at.parity);
        const uint32_t rows_of_tile = ptx::load_shared_words_x4(smem.tile(at.stage)).w[2];
        const SmemAddr b = smem.b(at.stage, 0), to = smem.decoded(slot.stage);
        ptx::Words4 codes[kMost];
        uint32_t shifts[kMost];
#pragma unroll
        for (uint32_t i = 0; i < kMost; ++i) {
            const uint32_t unit = i * C.kDecodeWarps + warp;
            if (!exists(i)) continue;
            codes[i] = ptx::load_shared_words_x4(b + (unit * kUnitBytes + lane * 16));
            if (C.codes == FourBitCodes::Mxfp4)
                shifts[i] = ptx::load_shared_word(b + (kFourBitCodeBytes + ((unit / 8 * 4 + unit % 4) * 8 + row) * 4));
        }
        if (rows_of_tile == 0) return;
        wait(smem.free(slot.stage), slot.parity);
#pragma unroll
        for (uint32_t i = 0; i < kMost; ++i) {
            const uint32_t unit = i * C.kDecodeWarps + warp, far_half = unit / 4 % 2;
            if (!exists(i)) continue;
            const uint32_t at_row = (unit / 8 * 4 + unit % 4) * 16 * kScaleBlock + (in_unit ^ far_half * 64);
#pragma unroll
            for (uint32_t w = 0; w < 4; ++w) {
                const uint32_t step = w / 2, lower = w % 2;
                FourBitPair pair;
                if (C.codes == FourBitCodes::Mxfp4)
                    pair = decode_mxfp4(codes[i].w[w], shifts[i] >> (lower * 16 + far_half * 8 + step * 4) & 15);
                else pair = decode_int4(codes[i].w[w]);
                const SmemAddr of_row = to + lower * 8 * kScaleBlock;
                ptx::store_shared_word(of_row + (at_row ^ step * 32), pair.near);
                ptx::store_shared_word(of_row + (at_row ^ (step * 32 + 16)), pair.far);
            }
        }
        ptx::fence_proxy_async_shared();  // tensor cores read what threads have written
        __syncwarp();
        if (lane < kLanesArrive) ptx::mbarrier_arrive(smem.is_decoded(slot.stage));
    }
}

/// What a product is multiplied by: scales of a thread's two rows times that of the block.
struct FourBitFactors {
    float upper, lower;

    template <FourBitConfig C>
    __device__ static FourBitFactors of(const FourBitShared<C>& smem, uint32_t stage, uint32_t row) {
        const SmemAddr rows = smem.row_scales(stage) + row * 4;
        const float of_block = ptx::load_shared(smem.block_scale(stage, 0));
        return {ptx::load_shared(rows) * of_block, ptx::load_shared(rows + 8 * 4) * of_block};
    }
    /// Known when all has been loaded.
    __device__ uint32_t bits() const { return float_bits(upper) | float_bits(lower); }
    __device__ float of_register(uint32_t i) const { return i / 2 % 2 == 0 ? upper : lower; }
};

/// A math warpgroup: of each 128 rows of a tile 64, one after the other of which are a part.
template <FourBitConfig C>
class FourBitSharedMath {
public:
    __device__ FourBitSharedMath(const FourBitParams& p, const FourBitShared<C>& smem)
        : p_(p),
          smem_(smem),
          warpgroup_(ptx::broadcast(threadIdx.x / 128)),
          row_(threadIdx.x / 128 * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4) {}

    __device__ void run() {
        FourBitTile tile = next();
        while (tile.rows > 0) {
            const uint32_t parts = parts_of(tile);
            if (parts == 2) tile = multiply<2>(tile);
            else if (parts == 1) tile = multiply<1>(tile);
            else tile = pass();
        }
    }

private:
    static constexpr uint32_t kCols = kScaleBlock, kSums = kCols / 2;

    struct Operands {
        uint32_t a, b;  // halves of descriptors that vary
    };

    /// The loading warp tells with the first k-block of a tile which one it is. Shuffled: so the compiler knows that
    /// all lanes have the same.
    __device__ FourBitTile next() const {
        wait(smem_.full(at_.stage), at_.parity);
        const ptx::Words4 told = ptx::load_shared_words_x4(smem_.tile(at_.stage));
        return {ptx::broadcast(told.w[0]), ptx::broadcast(told.w[1]), ptx::broadcast(told.w[2]),
                ptx::broadcast(told.w[3])};
    }
    /// Parts of which this warpgroup has rows.
    __device__ uint32_t parts_of(const FourBitTile& tile) const {
        return (tile.rows > warpgroup_ * 64 ? 1 : 0) + (tile.rows > 128 + warpgroup_ * 64 ? 1 : 0);
    }
    /// A tile without rows for this warpgroup.
    __device__ FourBitTile pass() {
#pragma unroll 1
        for (uint32_t left = p_.k_blocks; left > 0; --left) {
            wait(smem_.full(at_.stage), at_.parity);
            wait(smem_.is_decoded(slot_.stage), slot_.parity);
            release(smem_.free(slot_.stage), 0);
            release(smem_.empty(at_.stage), 0);
            ++at_, ++slot_;
        }
        return next();
    }
    __device__ static void release(SmemAddr barrier, uint32_t loaded) {
        __syncwarp();
        if (threadIdx.x % kWarpSize < kLanesArrive) ptx::mbarrier_arrive_having(barrier, loaded);
    }

    __device__ Operands operands(uint32_t part) const {
        const SmemAddr a = smem_.a(at_.stage) + (part * 128 + warpgroup_ * 64) * kScaleBlock;
        return {wgmma_descriptor_low(a.bits), wgmma_descriptor_low(smem_.decoded(slot_.stage).bits)};
    }
    __device__ static void start(float (&product)[kSums], Operands at) {
        ptx::wgmma_fence();
        ptx::wgmma_k128(product, wgmma_descriptor_with(at.a), wgmma_descriptor_with(at.b));
        ptx::wgmma_commit_group();
    }
    __device__ FourBitFactors factors(uint32_t stage, uint32_t part) const {
        return FourBitFactors::of(smem_, stage, part * 128 + row_);
    }
    __device__ static uint32_t add_scaled(float (&sum)[kSums], const float (&product)[kSums], const FourBitFactors& f) {
#pragma unroll
        for (uint32_t i = 0; i < kSums; ++i) sum[i] = ptx::fma(product[i], f.of_register(i), sum[i]);
        return f.bits();
    }

    /// Adds the product that is in flight to `sum`, and starts the next one, whose operands are there. The way from
    /// the end of a product to the start of the next one is short: all else is done before. `finished` is called when
    /// the product is there.
    template <typename Finished>
    __device__ static uint32_t step(float (&sum)[kSums], float (&product)[kSums], const FourBitFactors& f, Operands at,
                                    Finished&& finished) {
        ptx::pin(at.a);
        ptx::pin(at.b);
        ptx::wgmma_wait_group<0>();
#pragma unroll
        for (float& x : product) ptx::pin(x);
        finished();
        // The condition always holds. ptxas moves no instruction across the branch: it would else mix the sums with the
        // code that starts the next product (mma/mainloop.cuh).
        uint32_t loaded = 0;
        if (at.a != at.b) loaded = add_scaled(sum, product, f);
        start(product, at);
        return loaded;
    }

    /// This warpgroup's parts of a tile and of those behind it with as many. Returns the first one with others. Sums
    /// are stored while tensor cores multiply the first k-block of the next tile.
    template <uint32_t Parts>
    __device__ FourBitTile multiply(FourBitTile tile) {
        float sum[Parts][kSums] = {}, product[kSums];
        uint32_t left = p_.k_blocks;
        wait(smem_.is_decoded(slot_.stage), slot_.parity);
        start(product, operands(0));
#pragma unroll 1
        for (;;) {
            const uint32_t stage = at_.stage, slot = slot_.stage;
            uint32_t loaded = 0;
#pragma unroll
            for (uint32_t part = 0; part + 1 < Parts; ++part) {
                const FourBitFactors f = factors(stage, part);
                loaded |= step(sum[part], product, f, operands(part + 1), [] {});
            }
            const FourBitFactors f = factors(stage, Parts - 1);
            const auto release_operands = [&] {
                release(smem_.free(slot), 0);
                release(smem_.empty(stage), loaded | f.bits());
            };
            ++at_, ++slot_;
            const bool ends = --left == 0;
            const FourBitTile following = ends ? next() : tile;
            if (ends && parts_of(following) != Parts) {
                ptx::wgmma_wait_group<0>();
#pragma unroll
                for (float& x : product) ptx::pin(x);
                release_operands();
                loaded |= add_scaled(sum[Parts - 1], product, f);
                store<Parts>(sum, tile);
                return following;
            }
            if (!ends) wait(smem_.full(at_.stage), at_.parity);
            wait(smem_.is_decoded(slot_.stage), slot_.parity);
            loaded |= step(sum[Parts - 1], product, f, operands(0), release_operands);
            if (ends) {
                store<Parts>(sum, tile);
#pragma unroll
                for (uint32_t part = 0; part < Parts; ++part)
#pragma unroll
                    for (float& x : sum[part]) x = 0;
                tile = following;
                left = p_.k_blocks;
            }
        }
    }

    /// Rows of D: each warp 64 columns of its 16 rows of a part at once.
    template <uint32_t Parts>
    __device__ void store(const float (&sum)[Parts][kSums], const FourBitTile& tile) const {
        constexpr uint32_t kStripCols = 64;
        const uint32_t lane = threadIdx.x % kWarpSize, warp = ptx::broadcast(threadIdx.x / kWarpSize);
        const SmemAddr strip = smem_.d(0) + warp * (16 * kStripCols * 2);
        const uint32_t row = lane / 8, col = tile.n_tile * kCols + lane % 8 * 8;
#pragma unroll
        for (uint32_t part = 0; part < Parts; ++part) {
            const uint32_t first = part * 128 + warp * 16 + row;
            uint16_t* const d = p_.d + tile.matrix * p_.d_stride + (tile.row + first) * p_.d_row_stride + col;
#pragma unroll
            for (uint32_t cols = 0; cols < kCols; cols += kStripCols) {
                __syncwarp();  // all lanes have read what the strip had before
#pragma unroll
                for (uint32_t i = 0; i < kStripCols / 16; ++i) {
                    const float* const r = &sum[part][cols / 2 + i * 8];
                    ptx::stmatrix_x4(strip + panel_offset(kStripCols, stmatrix_piece(lane, i)),
                                     ptx::pack_bf16(r[0], r[1]), ptx::pack_bf16(r[2], r[3]), ptx::pack_bf16(r[4], r[5]),
                                     ptx::pack_bf16(r[6], r[7]));
                }
                __syncwarp();
#pragma unroll 1  // unrolled, all addresses are computed before, and registers are spilled
                for (uint32_t i = 0; i < 16; i += 4)
                    // N is a multiple of 8: a piece exists or it does not.
                    ptx::store_global_x4_if(
                        first + i < tile.rows && col + cols < p_.n, d + i * p_.d_row_stride + cols,
                        ptx::load_shared_words_x4(strip + panel_offset(kStripCols, {row + i, lane % 8 * 8})));
            }
        }
    }

    const FourBitParams& p_;
    const FourBitShared<C>& smem_;
    uint32_t warpgroup_, row_;  // row: of a part the upper one of this thread's two
    RingCursor<C.stages()> at_ = RingCursor<C.stages()>::consumer();
    RingCursor<C.decoded_blocks()> slot_ = RingCursor<C.decoded_blocks()>::consumer();
};

}  // namespace finegemm::device
