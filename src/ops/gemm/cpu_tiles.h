// One tile of D on the CPU, in each of the three numerics. Layer engine.
// Vectorised by Highway: compiled for several instruction sets, chosen when the program runs.
#pragma once

#include <cstdint>

#include <finegemm/gemm.h>

namespace finegemm {

inline constexpr int64_t kCpuTileRows = 252, kCpuTileCols = 128;  // 252: a multiple of the rows that registers hold

/// A rectangle of D, at most kCpuTileRows x kCpuTileCols.
struct CpuTile {
    const GemmArgs& args;
    int64_t row, rows, col, cols;
};

// Each writes rows x kCpuTileCols sums, row-major, before D gets them; columns past `cols` hold anything.
// docs/numerics.md has the arithmetic.
void fast_tile(const CpuTile& tile, float* sums);
void exact_tile(const CpuTile& tile, double* sums);
/// K-blocks from `first` to before `end`, every step-th.
struct BlockSteps {
    int64_t first, end, step;
};
/// The sum over these blocks, as one k-slice of a CTA of the SM90 kernel computes it. `tensor_core_scales`: as
/// in Arithmetic.
void hopper_tile(const CpuTile& tile, BlockSteps blocks, bool tensor_core_scales, float* sums);

}  // namespace finegemm
