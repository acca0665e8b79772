// One K-grouped GEMM on one device, from random matrices to a timed result. Layer cli.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <finegemm/k_grouped.h>

#include "cli/session.h"
#include "cli/shapes.h"

namespace finegemm::cli {

/// Options --k-groups and --layout.
struct KGroupOptions {
    int64_t count = 0;  // 0: no K-grouped GEMM
    std::string layout = "columns";
};
/// Returns --k-groups.
CLI::Option* add_k_group_options(CLI::App& command, KGroupOptions& o);

/// Quantised operands and a result: where the target computes, and on the host after fetch(). Sizes are on the device
/// where the layout allows it.
class KGroupedSession {
public:
    /// `shape.k`: of all groups together.
    KGroupedSession(Context& context, const Target& target, const Shape& shape, const KGroupOptions& groups,
                    uint64_t seed);

    /// Median microseconds of `repeats` runs; one more goes before them.
    double time(const GemmOptions& options, int repeats);
    /// All matrices on the host, copied there when they are on a GPU.
    KGroupedGemmArgs fetch();

    /// The k of each group, multiples of 128.
    const std::vector<int64_t>& sizes() const { return sizes_; }
    /// The product's shape for the planner.
    KGroupedShape shape() const;

private:
    void quantize(const HostMatrix& random, int64_t first, Mirrored& q, Mirrored& scales);
    KGroupedGemmArgs args(bool on_host);

    Context& context_;
    const Target& target_;
    const KLayout layout_;
    std::vector<int64_t> sizes_;
    std::vector<int32_t> offsets_;
    Mirrored a_, sfa_, b_, sfb_, d_;  // d: the groups' matrices one below the other
    Mirrored numbers_;                // the offsets
};

/// Bytes that a K-grouped product takes: each matrix once.
double traffic_bytes(const KGroupedShape& shape);

}  // namespace finegemm::cli
