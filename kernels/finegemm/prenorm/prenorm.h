// The kernel of the product before a norm: configuration, parameters, shared memory, and who computes what.
// Layer prenorm. docs/prenorm_kernel.md has the picture.
#pragma once

#include <finegemm/core/divide.h>
#include <finegemm/core/tensor_map.h>
#include <finegemm/core/tma_box.h>
#include <finegemm/prenorm/arithmetic.h>

namespace finegemm {

inline constexpr uint32_t kPrenormMostClusterLog2 = 3;

struct PrenormConfig {
    uint32_t rows;  // of a tile: 64 or 128, a math warpgroup for each 64
    uint32_t cols;  // of B, at most: 24 or 32
    constexpr bool operator==(const PrenormConfig&) const = default;

    /// Blocks of K in a stage: what is done once for a stage counts for half.
    FG_HD constexpr uint32_t blocks() const { return 2; }
    FG_HD constexpr uint32_t warpgroups() const { return rows / 64; }
    /// Warps that add squares.
    FG_HD constexpr uint32_t squarers() const { return 4; }
    /// Warps that split the B of a stage, four of its rows each. Crews of them have every second place of the ring, or
    /// every third, as one is not fast enough.
    FG_HD constexpr uint32_t splitters() const { return cols / 4; }
    FG_HD constexpr uint32_t crews() const { return rows == 64 && cols == 24 ? 3 : 2; }
    /// Two more warps: one loads, one stores zeros.
    FG_HD constexpr uint32_t warps() const { return warpgroups() * 4 + squarers() + 2 + crews() * splitters(); }
    FG_HD constexpr uint32_t threads() const { return warps() * kWarpSize; }
    /// Columns that tensor cores multiply by: two for each.
    FG_HD constexpr uint32_t wgmma_cols() const { return cols * 2; }
    FG_HD constexpr uint32_t stages() const;
    FG_HD constexpr uint32_t smem_bytes() const;
};

/// A block of 64 rows of A in shared memory, and one of B.
inline constexpr uint32_t kPrenormRowsBytes = 64 * kPrenormBlock * 2;
FG_HD constexpr uint32_t prenorm_b_bytes(const PrenormConfig& c) { return c.cols * kPrenormBlock * 4; }

/// What the CTAs of a cluster send each other: a row of sums, and four partial sums of squares behind it. Rows lie so
/// that vectors of eight rows are in different banks.
FG_HD constexpr uint32_t prenorm_pitch(const PrenormConfig& c) { return c.cols + kPrenormPartials; }

/// Offsets in shared memory, in bytes, and sizes.
struct PrenormSmemPlan {
    uint32_t stage_bytes;
    uint32_t a, b;  // of a stage, for each block: rows x 64 bf16; 2 x cols x 32 f32, then 2 * cols x 64 bf16 there
    uint32_t parts, parts_bytes;  // for each warpgroup: what its share of 64 rows is summed from
    uint32_t loaded, split, empty, parts_full, parts_free;  // mbarriers
    uint32_t stages, total;
};

FG_HD constexpr PrenormSmemPlan prenorm_smem(const PrenormConfig& c) {
    constexpr uint32_t kMost = 232448 - 1024;  // the driver aligns to 16 only; the kernel rounds up
    constexpr uint32_t kBarriers = 1024;
    PrenormSmemPlan p{};
    p.a = 0;
    p.b = c.blocks() * c.warpgroups() * kPrenormRowsBytes;
    p.stage_bytes = p.b + c.blocks() * prenorm_b_bytes(c);
    p.parts_bytes = 64 * prenorm_pitch(c) * 4;
    const uint32_t room = kMost - c.warpgroups() * p.parts_bytes - kBarriers;
    p.stages = min(room / p.stage_bytes, 16);
    p.parts = p.stages * p.stage_bytes;
    p.loaded = p.parts + c.warpgroups() * p.parts_bytes;
    p.split = p.loaded + p.stages * 8;
    p.empty = p.split + p.stages * 8;
    p.parts_full = p.empty + p.stages * 8;
    p.parts_free = p.parts_full + c.warpgroups() * 8;
    p.total = align_up(p.parts_free + c.warpgroups() * 8, 16) + 1024;
    return p;
}

FG_HD constexpr uint32_t PrenormConfig::stages() const { return prenorm_smem(*this).stages; }
FG_HD constexpr uint32_t PrenormConfig::smem_bytes() const { return prenorm_smem(*this).total; }

/// How K is cut: parts of as many stages, to one. Part `rank + cluster * slice` is that of a CTA of a cluster, whose
/// parts make a slice.
struct PrenormParts {
    uint32_t each, longer;  // stages of a part; how many parts, the first ones, have one more

    FG_HD static constexpr PrenormParts of(uint32_t stages, uint32_t parts) { return {stages / parts, stages % parts}; }
    FG_HD constexpr uint32_t first(uint32_t part) const { return part * each + min(part, longer); }
    FG_HD constexpr uint32_t count(uint32_t part) const { return each + (part < longer ? 1 : 0); }
    constexpr bool operator==(const PrenormParts&) const = default;
};

/// Where a lane splits four by four elements of B in place, so that neither its loads nor its stores share a bank with
/// others: of each eight lanes four are in a row and four in another one, whose swizzles differ in bits 0 and 2.
/// A warp has four rows, of eight the first or the last two pairs.
struct PrenormPiece {
    uint32_t row;    // of B
    uint32_t piece;  // of 8 columns: f32 in two neighbouring chunks of 16 bytes, later bf16 in one chunk of each half
    constexpr bool operator==(const PrenormPiece&) const = default;
};
FG_HD constexpr PrenormPiece prenorm_piece(uint32_t splitter, uint32_t lane) {
    const uint32_t pair = splitter % 2 * 2 + lane / 16, first = lane % 8 < 4 ? pair : pair ^ 5;
    return {splitter / 2 * 8 + first, lane / 8 % 2 * 4 + lane % 4};
}
/// Where, from the beginning of a stage's B, its f32 begin, the first four and the others; and where the eight bf16 of
/// either half go. Rows of 128 bytes, swizzled: of 32 f32 first, those of columns 32 to 63 behind all others; then of
/// 64 bf16, the second half of pairs behind all first ones.
FG_HD constexpr uint32_t prenorm_b_place(uint32_t row, uint32_t chunk) {
    return swizzled(row * 128 + chunk * 16, Swizzle::B128);
}
FG_HD constexpr uint32_t prenorm_b_f32(uint32_t cols, const PrenormPiece& at, uint32_t half) {
    return prenorm_b_place(at.piece / 4 * cols + at.row, at.piece % 4 * 2 + half);
}
FG_HD constexpr uint32_t prenorm_b_bf16(uint32_t cols, const PrenormPiece& at, uint32_t half) {
    return prenorm_b_place(half * cols + at.row, at.piece);
}

/// A kernel as the device holds it: with a cluster that its launches have.
struct PrenormKernel {
    PrenormConfig config;
    uint32_t cluster_log2;
    constexpr bool operator==(const PrenormKernel&) const = default;

    static constexpr uint32_t kCount = 2 * 2 * 4;
    FG_HD constexpr uint32_t index() const {
        return ((config.rows == 128 ? 2 : 0) + (config.cols == 32 ? 1 : 0)) * 4 + cluster_log2;
    }
    FG_HD constexpr uint32_t cluster() const { return 1u << cluster_log2; }
    FG_HD constexpr uint32_t threads() const { return config.threads(); }
    FG_HD constexpr uint32_t smem_bytes() const { return config.smem_bytes(); }
};

/// One launch.
struct PrenormParams {
    TensorMap a, b;
    float* d;
    int64_t d_slice_stride, d_row_stride;  // elements
    float* squares;
    int64_t squares_stride;  // elements, from a slice to the next
    uint32_t rows, cols;     // of A, and of B
    uint32_t slices;         // that are written
    Divider real_slices;     // that are not zero: a cluster computes a tile of one
    uint32_t items;          // tiles of all real slices
    uint32_t cluster_log2;   // of its CTAs
    PrenormParts parts;
    uint32_t vectors;   // 1: rows of D lie at multiples of 16 bytes
    uint64_t a_policy;  // of L2, for the loads of A

    FG_HD constexpr uint32_t tile(uint32_t item) const { return real_slices.quotient(item); }
    FG_HD constexpr uint32_t slice(uint32_t item) const { return item - tile(item) * real_slices.divisor; }
    FG_HD constexpr uint32_t cluster() const { return 1u << cluster_log2; }
    /// A CTA of a cluster adds up so many of each 64 rows, in the order of ranks.
    FG_HD constexpr uint32_t share() const { return 64u >> cluster_log2; }
    FG_HD constexpr uint32_t owner(uint32_t row) const { return row >> (6 - cluster_log2); }
};

}  // namespace finegemm
