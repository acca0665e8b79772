// The GEMM on the CPU, and what tests need beside it. Layer engine.
#pragma once

#include <vector>

#include <finegemm/gemm/arithmetic.h>

#include "engine/thread_pool.h"
#include "ops/gemm/call.h"
#include "ops/gemm/cpu_tiles.h"
#include "ops/gemm/groups.h"
#include "plan/plan.h"

namespace finegemm {

/// `batch_invariant`: of calls that do not say.
void cpu_gemm(const Call& call, ThreadPool& pool, bool batch_invariant = false);

/// The arithmetic of the kernel named `config`; without a name, of the kernel that the planner takes on an H200. Throws
/// Error(InvalidArgument) for a kernel that cannot take the problem there, however many rows it has.
Arithmetic arithmetic_of(const plan::Problem& problem, const std::string& config);

// For any order of tiles, of several GEMMs perhaps.
int64_t cpu_tiles_of(const GemmArgs& args, Numerics numerics);
/// Tile i of D. Keeps a reference to `args`.
CpuTile cpu_tile_at(const GemmArgs& args, Numerics numerics, int64_t i);
/// Computes a tile and stores it in D. `kernel`: for Numerics::Hopper.
void cpu_gemm_tile(const CpuTile& tile, Numerics numerics, Arithmetic kernel, bool accumulate = false,
                   const ProductEpilogue& epilogue = {});

/// A product whose rows of A, or of D, are found by numbers: rows are copied before and after.
void cpu_found_rows(const Call& call, ThreadPool& pool, bool batch_invariant);

/// Quantises the SwiGLU of pairs of sums, as tiles have them, of 128 columns of the product's left half.
void store_pairs(const CpuTile& left, const std::vector<float>& gates, const std::vector<float>& ups,
                 const Epilogue& arguments);
void store_pairs(const CpuTile& left, const std::vector<double>& gates, const std::vector<double>& ups,
                 const Epilogue& arguments);

/// The result in double, before it is rounded: rows x cols, row-major. args.d gives the extents only.
void cpu_gemm_exact(const GemmArgs& args, ThreadPool& pool, double* d);

/// Bound for the tensor core's truncations in one 128-block, relative to the sum of its products' magnitudes:
/// 31 addends and the result in the first of four steps, 32 and the result in the others, each less than 2^-13.
inline constexpr double kTensorCoreLoss = 131 * 0x1p-13;

/// Bound for the error of the tensor cores' product of two scales, in roundings of FP32: five addends each less than
/// 2^-25 of it, the sum 2^-23, and one product of nine.
inline constexpr int64_t kFactorRoundings = 5;

/// Bound for the rounding error of a sum, before it is rounded to the type of D (docs/numerics.md).
/// `absolute`: as below.
double sum_bound(double absolute, int64_t k_blocks, Numerics numerics = Numerics::Hopper);

/// Bound for the rounding error of a sum of `k` products without scales, on a GPU and on the CPU. docs/numerics.md,
/// "Without scales", derives it. `absolute`: the sum of the products' magnitudes.
double unscaled_sum_bound(double absolute, int64_t k);

/// Bound for the distance of an element of D in bf16 from the sum `exact` (docs/numerics.md derives it). `absolute`:
/// the sum of the terms' magnitudes |A * sfa * B * sfb|, where subnormal codes count as 2^-6. Numerics::Hopper stands
/// for the GPU as well. Holds where nothing is NaN or overflows.
double error_bound(double absolute, double exact, int64_t k_blocks, Numerics numerics = Numerics::Hopper);

}  // namespace finegemm
