// A GEMM as everything behind the public functions sees it. Layer engine.
#pragma once

#include <optional>

#include <finegemm/gemm.h>
#include <finegemm/gemm/params.h>

#include "plan/fields.h"
#include "plan/problem.h"

namespace finegemm {

/// Does B have scales for each row, as A has, instead of for each 128 rows? N is a multiple of 8: [N, ...] is never
/// [ceil(N/128), ...].
inline bool has_row_scales(const ConstMatrix& b, const ConstMatrix& sfb) { return sfb.rows == b.rows; }

/// Are scales exponents, four in a word, for each row and 32 of K?
inline bool is_mx(const ConstMatrix& scales) { return scales.dtype == DType::UE8M0x4; }

/// D = the sum over the matrices of two stacks of A B^T. A and B have no scales.
struct SummedGemmArgs {
    ConstStack a, b;  // [S, M, K], [S, N, K]
    Matrix d;         // [M, N]
};

/// What of a checked operand is contiguous. Only elements that have no scales may be MN-major.
inline Major major_of(const ConstMatrix& x) {
    const bool columns = x.cols > 1 && x.col_stride != 1;
    return columns && are(is_unscaled, x.dtype) ? Major::MN : Major::K;
}

/// A GEMM of any grouping. All operands are stacks: a dense product has stacks of one, groups of rows have a stack of
/// B, groups of K a stack of D, sums those of A and B. The options are borrowed.
struct Call {
    Call(const GemmArgs& args, const GemmOptions& options);
    Call(const GroupedGemmArgs& args, const GemmOptions& options);
    Call(const KGroupedGemmArgs& args, const GemmOptions& options);
    Call(const SummedGemmArgs& args, const GemmOptions& options);
    /// That call with other options.
    Call(const Call& call, const GemmOptions& options);

    ConstStack a, sfa, b, sfb;
    Stack d;          // with the columns of the product, wherever they lie
    int64_t d_width;  // columns of D that was passed
    Grouping grouping = Grouping::None;
    Groups groups{};  // of rows; of K: the offsets, and where they are
    int64_t group_count = 1;
    KLayout layout = KLayout::Columns;
    std::optional<CountedChoices> choices{};  // that groups of rows are of: a kernel may count them by itself
    uint32_t* stored = nullptr;               // as of ReportParams; null: nobody waits for single groups of rows
    bool stores_sums = false;                 // as IndexedParams::sums
    const GemmOptions& options;

    const Device& device() const { return d.matrix.device; }
    bool of_rows() const { return grouping == Grouping::Rows; }
    bool of_k() const { return grouping == Grouping::K; }
    bool summed() const { return grouping == Grouping::Sum; }
    /// Has each group of rows a matrix of its own?
    bool stacked() const { return of_rows() && (groups.form == GroupForm::Masked || groups.form == GroupForm::Whole); }
    /// Groups of K whose sizes the host knows: each launch takes them along.
    bool has_host_offsets() const { return of_k() && groups.device.type == DeviceType::Cpu; }
    /// Are elements multiplied by scales? Where not, the call has scales of 1, which only the CPU reads.
    bool scaled() const { return !are(is_unscaled, a.matrix.dtype); }
    const Epilogue& epilogue() const { return options.epilogue; }
    Finish finish() const { return plan::finish_of(epilogue()); }
    /// M: rows of the product, or of each one of a stack. A has others where numbers say which ones are taken, and D.
    int64_t rows() const { return plan::rows_of_product(epilogue(), a.matrix.rows); }
    bool row_b_scales() const { return scaled() && has_row_scales(b.matrix, sfb.matrix); }
};

/// What groups of rows begin at multiples of; 1: they begin anywhere.
int64_t row_alignment(const Groups& groups);

/// Scales that are all 1, for operands that have none: one float, repeated.
ConstStack unit_scales(const ConstStack& of);

/// What the planner may see of a call that has been checked. `batch_invariant`: of calls that do not say.
plan::Problem problem_of(const Call& call, bool batch_invariant = false);

}  // namespace finegemm
