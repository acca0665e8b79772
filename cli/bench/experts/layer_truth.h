// What experts add to a token in double, without any rounding. Layer cli.
#pragma once

#include <vector>

#include "workbench/accuracy.h"

namespace finegemm::cli {

/// Adds up the experts of one token.
class LayerTruth {
public:
    /// [1, H]
    explicit LayerTruth(const ConstMatrix& x);
    /// Rows of an expert's biases, [1, 2 I] and [1, H]; without pointers: none.
    struct Biases {
        ConstMatrix gate_up, down;
    };
    /// `gate_up` [2 I, H], `down` [H, I]: e4m3 with scales of 128x128 blocks.
    void add(const Values& gate_up, const Values& down, double weight, const Biases& biases = {});
    /// How far a row of what a layer writes is off, of its length.
    double relative_error(const ConstMatrix& out) const;

private:
    std::vector<double> x_, out_;
};

/// What that may be: x, as gates and as ups have it, and the activation are rounded to e4m3, 2.4% of a value in root
/// mean square; twice what the three make together is left for chance.
inline constexpr double kLayerError = 2 * 1.733 * 0.024;

}  // namespace finegemm::cli
