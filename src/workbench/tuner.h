// A table of measured choices in the making: which kernels to measure, what to keep of the times. Layer api.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <finegemm/gemm.h>

#include "plan/table.h"

namespace finegemm {

struct TimedKernel {
    std::string name;
    double us = 0;
};

/// The tuner's verdict on one shape.
struct Tuned {
    TimedKernel fastest, usual;  // usual: what is taken without a user's table
    bool recorded = false;
    double gain() const { return usual.us / fastest.us - 1; }
};

class Tuner {
public:
    /// A kernel is recorded when the usual one takes longer by more than this part: less may be noise.
    static constexpr double kLeastGain = 0.015;

    /// Goes on with the table in `file`, if there is one, without entries that cannot be used any more. Throws
    /// Error(InvalidArgument) for a table of another device, Error(Io) for a file that is none.
    Tuner(const plan::DeviceSpec& device, std::string file);

    /// Kernels that can take the shape: the usual one, then the others by the model's cost, `most` of them at most.
    /// Throws Error(Unsupported) when there is none, Error(InvalidArgument) for a shape that is none.
    std::vector<std::string> kernels(const GemmShape& shape, size_t most) const;

    /// Takes the shape's entry from the table and puts the fastest kernel there, if it is worth it. `times`: of the
    /// kernels above, in their order.
    Tuned record(const GemmShape& shape, std::span<const TimedKernel> times);

    /// Throws Error(Io). The file is the old one or the new one, never a part.
    void write() const;

private:
    plan::Problem problem_of(const GemmShape& shape) const;

    plan::DeviceSpec device_;
    std::string file_;
    plan::PlanTable table_;
};

}  // namespace finegemm
