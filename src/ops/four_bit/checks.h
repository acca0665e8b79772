// Argument checks of products with weights of 4 bits. Layer api.
#pragma once

#include "ops/four_bit/call.h"

namespace finegemm {

/// Throws Error(InvalidArgument).
void check_four_bit(const FourBitCall& call);
void check_four_bit(const FourBitShape& shape);

}  // namespace finegemm
