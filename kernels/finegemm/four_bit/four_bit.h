// The kernel of products with weights of 4 bits: configuration, shared memory and parameters. Layer four_bit.
#pragma once

#include <finegemm/core/group_layout.h>
#include <finegemm/core/tensor_map.h>
#include <finegemm/four_bit/packed.h>

namespace finegemm {

/// Rows of A that a tile has at most, and of a box of TMA. Columns of D that it has: 64 for each math warpgroup.
inline constexpr uint32_t kFourBitRows = 48, kFourBitBoxRows = 16;
inline constexpr uint32_t kFourBitMathWarpgroups = 4, kFourBitCols = kFourBitMathWarpgroups * 64;
inline constexpr uint32_t kFourBitMathWarps = kFourBitMathWarpgroups * 4;
/// Blocks of B that a stage has.
inline constexpr uint32_t kFourBitBlocks = kFourBitCols / kScaleBlock;

struct FourBitConfig {
    FourBitCodes codes;
    constexpr bool operator==(const FourBitConfig&) const = default;

    static constexpr uint32_t kCount = 2;
    FG_HD constexpr uint32_t index() const { return static_cast<uint32_t>(codes) - 1; }
    /// The last warp loads.
    FG_HD constexpr uint32_t threads() const { return (kFourBitMathWarps + 1) * kWarpSize; }
    FG_HD constexpr uint32_t smem_bytes() const;
};

/// Offsets in shared memory, in bytes, and sizes. A stage has a k-block: rows of A, swizzled, blocks of B, and scales
/// of the rows and of the blocks.
struct FourBitSmemPlan {
    uint32_t a, a_stage, b, scales, scales_stage;
    uint32_t d, d_warpgroup;  // rows of D on their way to memory, of a box
    uint32_t tiles;           // of each stage, 16 bytes: the tile that begins there
    uint32_t full, empty;     // mbarriers
    uint32_t stages, total;
};

FG_HD constexpr FourBitSmemPlan four_bit_smem() {
    constexpr uint32_t kMost = 232448 - 1024;  // the driver aligns to 16 only; the kernel rounds up
    constexpr uint32_t kTileBytes = 16, kBarriersBytes = 2 * 8;
    FourBitSmemPlan p{};
    p.a_stage = kFourBitRows * kScaleBlock;
    p.scales_stage = align_up((kFourBitRows + kFourBitBlocks) * 4, 16);
    p.d_warpgroup = kFourBitBoxRows * 64 * 2;
    const uint32_t d_bytes = kFourBitMathWarpgroups * p.d_warpgroup;
    p.stages = (kMost - d_bytes) /
               (p.a_stage + kFourBitBlocks * kFourBitBlockBytes + p.scales_stage + kTileBytes + kBarriersBytes);
    p.d = p.stages * p.a_stage;
    p.b = p.d + d_bytes;
    p.scales = p.b + p.stages * kFourBitBlocks * kFourBitBlockBytes;
    p.tiles = p.scales + p.stages * p.scales_stage;
    p.full = p.tiles + p.stages * kTileBytes;
    p.empty = p.full + p.stages * 8;
    p.total = p.empty + p.stages * 8 + 1024;
    return p;
}
inline constexpr uint32_t kFourBitStages = four_bit_smem().stages;
FG_HD constexpr uint32_t FourBitConfig::smem_bytes() const { return four_bit_smem().total; }

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

    FG_HD constexpr uint32_t n_tiles() const { return ceil_div(n_blocks, kFourBitBlocks); }
};

/// What a CTA computes at once: rows of A from `row` on of a matrix, with 256 columns of D.
struct FourBitTile {
    uint32_t matrix = 0, row = 0, rows = 0;  // of A and D; no rows: the end
    uint32_t n_tile = 0, group = 0;          // of B
};

}  // namespace finegemm
