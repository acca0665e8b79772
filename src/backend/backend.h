// Backend: what a device must be able to do. The api layer checks arguments and calls one of these.
// Layer backend.
#pragma once

#include <finegemm/context.h>
#include <finegemm/gemm.h>
#include <finegemm/grouped.h>
#include <finegemm/k_grouped.h>
#include <finegemm/quantize.h>

namespace finegemm {

/// One 1x128 scale per row and block, or one 128x128 scale per square block.
enum class ScaleShape { Rows, Blocks };

/// Does B have scales for each row, as A has, instead of for each 128 rows? N is a multiple of 8: [N, ...] is never
/// [ceil(N/128), ...].
inline bool has_row_b_scales(const GemmArgs& args) { return args.sfb.rows == args.b.rows; }

class Backend {
public:
    virtual ~Backend() = default;
    /// Arguments have been checked; M, N > 0. K may be 0.
    virtual void gemm(const GemmArgs& args, const GemmOptions& options) = 0;
    /// Arguments have been checked; M, N > 0.
    virtual void grouped_gemm(const GroupedGemmArgs& args, const GemmOptions& options) = 0;
    /// Arguments have been checked; M, N > 0. K may be 0.
    virtual void k_grouped_gemm(const KGroupedGemmArgs& args, const GemmOptions& options) = 0;
    /// Arguments have been checked; no extent is 0.
    virtual void quantize(ScaleShape shape, const ConstMatrix& x, const Matrix& q, const Matrix& scales,
                          const QuantizeOptions& options) = 0;
    /// Throws Error(InvalidArgument) naming the first scale of `args` that is NaN, infinite or negative, and where it
    /// is.
    virtual void check_scales(const GemmArgs& args, const GemmOptions& options) = 0;
    /// Rejects the first number of the groups that breaks their rules, and then the first bad scale; scales of rows
    /// without a group may be anything.
    virtual void check_groups(const GroupedGemmArgs& args, const GemmOptions& options) = 0;
    /// Rejects the first offset that breaks the rules, where they are on a GPU, and then the first bad scale; scales of
    /// k without a group may be anything.
    virtual void check_k_groups(const KGroupedGemmArgs& args, const GemmOptions& options) = 0;
};

}  // namespace finegemm
