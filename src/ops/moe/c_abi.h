// A layer of experts in C as in C++. Layer api.
#pragma once

#include <finegemm/c_api.h>
#include <finegemm/moe.h>

namespace finegemm {

MoeArgs to_args(const finegemm_moe_args& given);
FourBitWeights to_weights(const finegemm_four_bit_weights& given, const char* name);
/// A layer with weights of 4 bits.
MoeArgs to_args(const finegemm_moe_args& given, const finegemm_four_bit_weights* gate_up,
                const finegemm_four_bit_weights* down);
MoeOptions to_options(const finegemm_moe_options& caller);
MoeShape to_shape(const finegemm_moe_shape& given);

}  // namespace finegemm
