// Which product weights of 4 bits take on a GPU: theirs, or that of the FP8 that they are. Layer engine.
#pragma once

#include <finegemm/four_bit.h>
#include <finegemm/four_bit/four_bit.h>

#include "ops/four_bit/call.h"
#include "plan/plan.h"

namespace finegemm {

/// The FP8 product of a shape's weights, with scales of blocks for MXFP4 and of rows for INT4. No kernel of it has sums
/// in another order than that for 4 bits, whatever its rows; those of rows multiply scales on the tensor cores.
GemmShape fp8_shape(const FourBitShape& shape);
FourBitFormat format_of(const plan::Problem& fp8);

/// Predicted microseconds and tiles of a kernel for weights of 4 bits. `fp8`: the same product.
struct FourBitCost {
    FourBitRows rows;
    double us;
    uint32_t tiles, ctas;
};
FourBitCost four_bit_cost(const plan::Problem& fp8, const plan::DeviceSpec& device, FourBitRows rows);
/// What the faster kernel is expected to take: both give the same bits.
FourBitCost four_bit_cost(const plan::Problem& fp8, const plan::DeviceSpec& device);

/// The kernel of the FP8 product, and what it is expected to take. `user`: a table that was loaded for this device, or
/// null.
struct Fp8Cost {
    GemmConfig config;
    double us;
};
Fp8Cost fp8_cost(const plan::Problem& fp8, const plan::DeviceSpec& device, const plan::PlanTable* user = nullptr);
/// Whether that is less.
bool is_fp8_faster(const plan::Problem& fp8, const plan::DeviceSpec& device, const plan::PlanTable* user = nullptr);

}  // namespace finegemm
