// A quantisation as everything behind the public functions sees it. Layer engine.
#pragma once

#include <finegemm/quantize.h>

namespace finegemm {

/// One 1x128 scale per row and block, or one 128x128 scale per square block.
enum class ScaleShape { Rows, Blocks };

/// Matrices and options of one quantisation. The options are borrowed.
struct QuantizeCall {
    ScaleShape shape;
    ConstMatrix x;
    Matrix q, scales;
    const QuantizeOptions& options;
};

}  // namespace finegemm
