// Backend: what a device must be able to do. The api layer checks arguments and calls one of these.
// Layer engine.
#pragma once

#include <string>
#include <vector>

#include <finegemm/context.h>

#include "ops/gemm/call.h"
#include "ops/operation.h"
#include "plan/problem.h"

namespace finegemm {

/// What computes a product, in words: a kernel by its name, and where it came from.
struct Computing {
    std::string kernel, origin;
};

class Backend {
public:
    virtual ~Backend() = default;
    /// The call has been checked; M, N > 0. K may be 0, but for groups of rows. What is returned lives as long as the
    /// backend.
    virtual const Computing& gemm(const Call& call) = 0;
    /// Throws Error(InvalidArgument) that names the first number of groups that breaks their rules, or else the first
    /// scale that is NaN, infinite or negative. Scales of rows and of k without a group may be anything.
    virtual void check_values(const Call& call) = 0;
    /// The call has been checked; no extent is 0.
    virtual void run(const Operation& operation) = 0;
    /// Problems of calls that named no kernel; none where there is nothing to choose.
    virtual std::vector<plan::Problem> problems() const { return {}; }
};

}  // namespace finegemm
