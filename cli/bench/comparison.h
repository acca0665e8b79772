// One product on a GPU by FineGEMM and by cuBLASLt: the same operands, checked, then timed in turn. Layer cli.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <finegemm/context.h>

#include "cli/bench/shapes.h"
#include "cli/files/files.h"
#include "peers/cublaslt.h"
#include "workbench/gpu.h"

namespace finegemm::cli {

/// One implementation's part of a comparison.
struct Entry {
    std::string name{};              // "finegemm", "cublas_tensor", "cublas_block"
    double us = 0;                   // the median
    std::optional<double> spread{};  // the range of the middle half of the times, over the median
    /// FineGEMM's largest error over its bound (docs/numerics.md); for others the root mean square of the
    /// difference from FineGEMM, over that of the values.
    std::optional<double> error{};
    std::string gap{};  // why there is no time; empty when there is one
};

struct ComparisonOptions {
    std::string config;  // FineGEMM's kernel; empty: the planner's choice
    int repeats = 50;
    const cublaslt::Library* cublas = nullptr;  // null: FineGEMM alone
};

/// Largest allowed `Entry::error` for a mode of cuBLASLt when it computes the same product.
double allowed_difference(cublaslt::Mode mode, int64_t k);

/// Microseconds of what bounds any kernel on this GPU, and of launches that do next to nothing: what events around a
/// single launch add to it.
struct Baselines {
    double nothing = 0, small_kernel = 0;  // no launch between the events; one that quantises 128 numbers
    double copy = 0;                       // kCopyBytes read and as many written
    double cublas_tensor = 0;              // kCeilingExtent in M, N and K
};
inline constexpr size_t kCopyBytes = size_t{1} << 32;
inline constexpr int64_t kCeilingExtent = 8192;

/// Why there is no time where the GPU quantises otherwise than the CPU.
std::string wrong_operands_text(int64_t wrong);

class Comparison {
public:
    Comparison(Context& context, Gpu& gpu, ComparisonOptions options);

    /// FineGEMM is the first.
    std::vector<Entry> of(const Shape& shape);
    /// `ceilings`: measure `copy` and, with cuBLASLt, `cublas_tensor`.
    Baselines baselines(bool ceilings);

private:
    struct Case;
    Entry check_finegemm(Case& products, std::vector<std::function<void()>>& calls);
    Entry check_cublas(Case& products, cublaslt::Mode mode, std::vector<std::function<void()>>& calls);

    Context& context_;
    Gpu& gpu_;
    const ComparisonOptions options_;
    const HostMatrix values_;  // random, for all operands
};

}  // namespace finegemm::cli
