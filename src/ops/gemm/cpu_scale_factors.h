// A model of the tensor cores where they multiply scales (gemm/split_scale.h), to the bit. Layer engine.
// docs/numerics.md, "Scale products", states it and has the experiment.
#pragma once

#include <cstdint>

namespace finegemm {

/// The parts of a scale, high ones first: mantissa * 2^(exponent - 7), the mantissa of 0 to 255 with the sign.
struct FactorOperand {
    int32_t mantissa[3], exponent[3];
    bool finite;
};
FactorOperand factor_operand(float scale);

/// The product of the two scales as the tensor cores leave it.
float wgmma_factor(const FactorOperand& a, const FactorOperand& b);

}  // namespace finegemm
