// Checks of what becomes of a product. Layer api.
#pragma once

#include <array>

#include "api/argument.h"
#include "ops/gemm/call.h"

namespace finegemm {

/// What an epilogue asks of a call, before its operands are checked: it says which columns D has.
void check_finish(const Call& call);
/// The matrices of an epilogue, beside operands that have been checked. `inputs`: A, B and their scales.
void check_epilogue_operands(const Call& call, const Argument& d, const std::array<Argument, 4>& inputs);

}  // namespace finegemm
