// Biases of experts, as kernels read them. Layer device.
#pragma once

#include <finegemm/core/expert_bias.h>
#include <finegemm/device/ptx/convert.cuh>

namespace finegemm::device {

/// Eight neighbouring columns as they lie in memory, or zeros where they are not wanted: then nothing is read. There is
/// no branch, so that loads of several are on their way together.
struct BiasVector {
    ptx::Words4 low, high;  // bf16: all are in `low`

    __device__ static BiasVector load(bool wanted, const ExpertBias& biases, uint32_t expert, uint32_t col) {
        const uint8_t* const from = biases.data + expert * biases.stride + col * int64_t{biases.wide ? 4 : 2};
        return {ptx::load_global_x4_if(wanted, from), ptx::load_global_x4_if(wanted && biases.wide, from + 16)};
    }
    __device__ float at(const ExpertBias& biases, uint32_t i) const {
        const uint32_t word = low.w[i / 2], half = i % 2 == 0 ? word << 16 : word & 0xffff0000u;
        return float_of_bits(biases.wide ? (i < 4 ? low : high).w[i % 4] : half);
    }
};

}  // namespace finegemm::device
