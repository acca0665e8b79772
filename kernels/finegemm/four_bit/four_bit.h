// The kernels of products with weights of 4 bits: configuration, shared memory and parameters. Layer four_bit.
#pragma once

#include <finegemm/core/group_layout.h>
#include <finegemm/core/tensor_map.h>
#include <finegemm/four_bit/packed.h>

namespace finegemm {

/// How many rows of a group a kernel is for. Few: a weight is decoded for up to 48 rows, to registers. Many: for up to
/// 256, which tensor cores take in two parts; INT4 to registers, MXFP4 to shared memory.
enum class FourBitRows : uint32_t { Few = 1, Many = 2 };

struct FourBitConfig {
    FourBitCodes codes;
    FourBitRows rows = FourBitRows::Few;
    constexpr bool operator==(const FourBitConfig&) const = default;

    static constexpr uint32_t kCount = 4;
    FG_HD constexpr bool many() const { return rows == FourBitRows::Many; }
    /// Warps of their own decode to shared memory. Of INT4 that takes longer (docs/ladder.md).
    FG_HD constexpr bool decodes_to_shared() const { return many() && codes == FourBitCodes::Mxfp4; }
    FG_HD constexpr uint32_t index() const {
        return (static_cast<uint32_t>(codes) - 1) + (static_cast<uint32_t>(rows) - 1) * 2;
    }
    /// Rows of A that a tile has at most, and of a box of TMA.
    FG_HD constexpr uint32_t tile_rows() const { return many() ? 256 : 48; }
    FG_HD constexpr uint32_t box_rows() const { return many() ? 32 : 16; }
    /// Rows of D that a warpgroup stores at once: one behind the other those of its warps, or 16 of each.
    FG_HD constexpr uint32_t strip_rows() const { return many() ? 64 : 16; }
    /// Scales that the rows of a tile have: of MXFP4 for each block, by whose scale they are multiplied.
    FG_HD constexpr uint32_t scale_sets() const { return codes == FourBitCodes::Mxfp4 ? blocks() : 1; }
    /// Floats of a set. Those that a thread needs lie one behind the other, so that it loads four at once: a run for
    /// each of the four threads that share rows, in banks of its own.
    FG_HD constexpr uint32_t thread_scales() const {
        return tile_rows() / 4 + (tile_rows() % 128 == 0 && !decodes_to_shared() ? 4 : 0);
    }
    FG_HD constexpr uint32_t scale_places() const { return 4 * thread_scales(); }
    FG_HD constexpr uint32_t scale_place(uint32_t row) const {
        return row % 8 / 2 * thread_scales() + row / 8 * 2 + row % 2;
    }
    /// Columns of D that a tile has: 64 for each math warpgroup.
    FG_HD constexpr uint32_t math_warpgroups() const { return many() ? 2 : 4; }
    FG_HD constexpr uint32_t math_warps() const { return math_warpgroups() * 4; }
    FG_HD constexpr uint32_t cols() const { return math_warpgroups() * 64; }
    /// Blocks of B that a stage has.
    FG_HD constexpr uint32_t blocks() const { return cols() / kScaleBlock; }
    /// Behind the warps that multiply are one that loads and one that orders scales, or seven that decode. For many
    /// rows they are of whole warpgroups, whose registers others take.
    FG_HD constexpr uint32_t threads() const {
        return (math_warps() + (decodes_to_shared() ? 8 : many() ? 4 : 2)) * kWarpSize;
    }
    static constexpr uint32_t kDecodeWarps = 7;
    /// Decoded blocks of B that there is room for.
    FG_HD constexpr uint32_t decoded_blocks() const { return decodes_to_shared() ? 2 : 0; }
    FG_HD constexpr uint32_t stages() const;
    FG_HD constexpr uint32_t smem_bytes() const;
};

/// Registers of threads for many rows, of those that multiply and of all others; at launch all have as many.
struct FourBitRegisters {
    uint32_t math, others;
};
FG_HD constexpr FourBitRegisters four_bit_registers(FourBitConfig c) {
    return c.decodes_to_shared() ? FourBitRegisters{208, 48} : FourBitRegisters{240, 24};
}
static_assert(2 * 208 + 2 * 48 == 4 * 128 && 2 * 240 + 24 == 3 * 168);

/// Bytes of a decoded block: 128 rows, swizzled.
inline constexpr uint32_t kDecodedBytes = kScaleBlock * kScaleBlock;

/// Offsets in shared memory, in bytes, and sizes. A stage has a k-block: rows of A, swizzled, blocks of B, and scales
/// of the rows and of the blocks.
struct FourBitSmemPlan {
    uint32_t a, a_stage, decoded, b, scales, scales_stage;
    uint32_t d, d_warpgroup;                         // strips: rows of D on their way to memory
    uint32_t tiles;                                  // of each stage, 16 bytes: the tile that begins there
    uint32_t full, scaled, empty, is_decoded, free;  // mbarriers; the last two of decoded blocks
    uint32_t stages, total;
};

FG_HD constexpr FourBitSmemPlan four_bit_smem(FourBitConfig c) {
    constexpr uint32_t kMost = 232448 - 1024;  // the driver aligns to 16 only; the kernel rounds up
    constexpr uint32_t kTileBytes = 16, kBarriersBytes = 3 * 8;
    FourBitSmemPlan p{};
    p.a_stage = c.tile_rows() * kScaleBlock;
    p.scales_stage = align_up((c.scale_sets() * c.scale_places() + c.blocks()) * 4, 16);
    p.d_warpgroup = c.strip_rows() * 64 * 2;
    const uint32_t d_bytes = c.math_warpgroups() * p.d_warpgroup;
    const uint32_t decoded_bytes = c.decoded_blocks() * (kDecodedBytes + 2 * 8);
    p.stages = (kMost - d_bytes - decoded_bytes) /
               (p.a_stage + c.blocks() * kFourBitBlockBytes + p.scales_stage + kTileBytes + kBarriersBytes);
    p.decoded = p.stages * p.a_stage;
    p.d = p.decoded + c.decoded_blocks() * kDecodedBytes;
    p.b = p.d + d_bytes;
    p.scales = p.b + p.stages * c.blocks() * kFourBitBlockBytes;
    p.tiles = p.scales + p.stages * p.scales_stage;
    p.full = p.tiles + p.stages * kTileBytes;
    p.scaled = p.full + p.stages * 8;
    p.empty = p.scaled + p.stages * 8;
    p.is_decoded = p.empty + p.stages * 8;
    p.free = p.is_decoded + c.decoded_blocks() * 8;
    p.total = p.free + c.decoded_blocks() * 8 + 1024;
    return p;
}
FG_HD constexpr uint32_t FourBitConfig::stages() const { return four_bit_smem(*this).stages; }
FG_HD constexpr uint32_t FourBitConfig::smem_bytes() const { return four_bit_smem(*this).total; }

/// One launch.
struct FourBitParams {
    TensorMap a;
    const uint8_t* b;
    const float* sfa;
    uint16_t* d;
    int64_t sfa_row_stride, sfa_col_stride, sfa_stride;  // elements; the last one from matrix to matrix
    int64_t d_row_stride, d_stride;
    GroupLayout groups;
    uint32_t n, n_blocks, k_blocks;  // columns of D, and blocks of B

    FG_HD constexpr uint32_t n_tiles(FourBitConfig c) const { return ceil_div(n_blocks, c.blocks()); }
};

/// What a CTA computes at once: rows of A from `row` on of a matrix, with columns of D.
struct FourBitTile {
    uint32_t matrix = 0, row = 0, rows = 0;  // of A and D; no rows: the end
    uint32_t n_tile = 0, group = 0;          // of B
};

}  // namespace finegemm
