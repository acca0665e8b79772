// One grouped GEMM on one device, from random matrices to a timed result. Layer cli.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <finegemm/grouped.h>

#include "cli/session.h"
#include "cli/shapes.h"

namespace finegemm::cli {

/// Options --groups and --form.
struct GroupOptions {
    int64_t count = 0;  // 0: no grouped GEMM
    std::string form = "offsets";
};
/// Returns --groups.
CLI::Option* add_group_options(CLI::App& command, GroupOptions& o);

/// `m` rows, or other things, divided among groups at random. Some have none; of several groups at least one.
std::vector<int64_t> ragged_sizes(int64_t m, int64_t groups, uint64_t seed);

/// Number of groups that are not empty.
int64_t busy_groups(const std::vector<int64_t>& sizes);

/// Groups of these sizes in one form, with no more rows than it needs.
struct RaggedRows {
    GroupForm form = GroupForm::Offsets;
    int64_t rows = 0;    // of each matrix A, those of no group among them
    int64_t stacks = 1;  // matrices A
    std::vector<int32_t> numbers{};
};
inline constexpr int64_t kRowAlignment = 128;  // of groups in the forms that have one
/// `form`: a value of --form.
RaggedRows rows_in_form(const std::string& form, const std::vector<int64_t>& sizes);

/// Quantised operands and a result: where the target computes, and on the host after fetch().
class GroupedSession {
public:
    /// `shape.m`: rows of all groups together.
    GroupedSession(Context& context, const Target& target, const Shape& shape, const GroupOptions& groups,
                   uint64_t seed);

    /// Median microseconds of `repeats` runs; one more goes before them.
    double time(const GemmOptions& options, int repeats);
    /// All matrices and the numbers on the host, copied there when they are on a GPU.
    GroupedGemmArgs fetch();

    const std::vector<int64_t>& sizes() const { return sizes_; }
    /// The product's shape for the planner.
    GroupedShape shape() const;

private:
    struct Part : Mirrored {
        int64_t count;  // matrices, one below the other
    };
    Part make(DType dtype, int64_t count, int64_t rows, int64_t cols) const;
    GroupedGemmArgs args(bool on_host);

    Context& context_;
    const Target& target_;
    std::vector<int64_t> sizes_;
    RaggedRows rows_;
    Part a_, sfa_, b_, sfb_, d_;
    Mirrored numbers_;
};

}  // namespace finegemm::cli
