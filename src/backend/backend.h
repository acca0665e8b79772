// Backend: what a device must be able to do. The api layer checks arguments and calls one of these.
// Layer backend.
#pragma once

#include <finegemm/context.h>
#include <finegemm/quantize.h>

#include "backend/call.h"

namespace finegemm {

/// One 1x128 scale per row and block, or one 128x128 scale per square block.
enum class ScaleShape { Rows, Blocks };

class Backend {
public:
    virtual ~Backend() = default;
    /// The call has been checked; M, N > 0. K may be 0, but for groups of rows.
    virtual void gemm(const Call& call) = 0;
    /// Throws Error(InvalidArgument) that names the first number of groups that breaks their rules, or else the first
    /// scale that is NaN, infinite or negative. Scales of rows and of k without a group may be anything.
    virtual void check_values(const Call& call) = 0;
    /// Arguments have been checked; no extent is 0.
    virtual void quantize(ScaleShape shape, const ConstMatrix& x, const Matrix& q, const Matrix& scales,
                          const QuantizeOptions& options) = 0;
};

}  // namespace finegemm
