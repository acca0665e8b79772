// The kernel of products with weights of 4 bits: configuration, shared memory and parameters. Layer four_bit.
#pragma once

#include <finegemm/core/group_layout.h>
#include <finegemm/core/tensor_map.h>
#include <finegemm/four_bit/packed.h>

namespace finegemm {

/// Rows of A that a tile has at most, and of a box of TMA; columns of D that it has, 64 for each math warpgroup.
inline constexpr uint32_t kFourBitRows = 48, kFourBitBoxRows = 16, kFourBitCols = kScaleBlock;
inline constexpr uint32_t kFourBitMathWarps = kFourBitCols / 64 * 4;
/// CTAs that share an SM: as one waits for memory the other multiplies.
inline constexpr uint32_t kFourBitCtasOfSm = 2;

struct FourBitConfig {
    FourBitCodes codes;
    constexpr bool operator==(const FourBitConfig&) const = default;

    static constexpr uint32_t kCount = 2;
    FG_HD constexpr uint32_t index() const { return static_cast<uint32_t>(codes) - 1; }
    /// The last warp loads.
    FG_HD constexpr uint32_t threads() const { return (kFourBitMathWarps + 1) * kWarpSize; }
    FG_HD constexpr uint32_t stages() const { return 7; }
    FG_HD constexpr uint32_t smem_bytes() const;
};

/// Offsets in shared memory, in bytes, and sizes. A stage has a k-block: rows of A, swizzled, a block of B, and scales
/// of the rows.
struct FourBitSmemPlan {
    uint32_t a, a_stage, b, b_stage, sfa, sfa_stage;
    uint32_t d, d_warpgroup;  // rows of D on their way to memory, of a box
    uint32_t tiles;           // of each stage, 16 bytes: the tile that begins there
    uint32_t full, empty;     // mbarriers
    uint32_t total;
};

FG_HD constexpr FourBitSmemPlan four_bit_smem(const FourBitConfig& c) {
    FourBitSmemPlan p{};
    p.a_stage = kFourBitRows * kScaleBlock;
    p.d = c.stages() * p.a_stage;
    p.d_warpgroup = kFourBitBoxRows * 64 * 2;
    p.b = p.d + kFourBitCols / 64 * p.d_warpgroup;
    p.b_stage = four_bit_block_bytes(c.codes);
    p.sfa = p.b + c.stages() * p.b_stage;
    p.sfa_stage = kFourBitRows * 4;
    p.tiles = p.sfa + c.stages() * p.sfa_stage;
    p.full = p.tiles + c.stages() * 16;
    p.empty = p.full + c.stages() * 8;
    p.total = align_up(p.empty + c.stages() * 8, 16) + 1024;  // the kernel rounds its beginning up
    return p;
}
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
};

/// What a CTA computes at once: rows of A from `row` on of a matrix, with 128 columns of D.
struct FourBitTile {
    uint32_t matrix = 0, row = 0, rows = 0;  // of A and D; no rows: the end
    uint32_t n_block = 0, group = 0;         // of B
};

}  // namespace finegemm
