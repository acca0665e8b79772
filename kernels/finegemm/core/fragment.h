// Which element of a tile a register holds.
// Layer core. PTX ISA, "wgmma.mma_async: register fragments and shared memory matrix layouts", and stmatrix.
#pragma once

#include <finegemm/core/base.h>

namespace finegemm {

/// Register `reg` of thread `thread` (0..127) of a warpgroup, in the f32 accumulator of wgmma.m64nNk*.
FG_HD constexpr RowCol wgmma_accumulator(uint32_t thread, uint32_t reg) {
    return {.row = thread / 32 * 16 + thread % 32 / 4 + reg / 2 % 2 * 8, .col = reg / 4 * 8 + thread % 4 * 2 + reg % 2};
}

/// The row and first column of the 16-byte piece whose address lane `thread % 32` gives to stmatrix.x4 when a warp
/// stores accumulator registers [8 * pair, 8 * pair + 8): two neighbouring 16x8 blocks, each of two 8x8 matrices.
FG_HD constexpr RowCol stmatrix_piece(uint32_t thread, uint32_t pair) {
    const uint32_t lane = thread % 32;
    return {.row = thread / 32 * 16 + lane % 16, .col = pair * 16 + lane / 16 * 8};
}

/// The row and first column of a lane's piece for stmatrix.x4.trans, which stores the transpose of those blocks: their
/// columns lie in rows.
FG_HD constexpr RowCol stmatrix_transposed_piece(uint32_t thread, uint32_t pair) {
    const uint32_t lane = thread % 32;
    return {.row = pair * 16 + lane / 16 * 8 + lane % 8, .col = thread / 32 * 16 + lane / 8 % 2 * 8};
}

}  // namespace finegemm
