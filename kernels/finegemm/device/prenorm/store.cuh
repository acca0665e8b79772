// Storing sums. Layer device.
#pragma once

#include <finegemm/prenorm/prenorm.h>
#include <finegemm/device/ptx/convert.cuh>

namespace finegemm::device {

/// Four neighbouring columns of a row of D.
__device__ inline void store_four(const PrenormParams& p, float* to, const ptx::Float4& v) {
    if (p.vectors) {
        ptx::store_global_x4(
            to, {{float_bits(v.part[0]), float_bits(v.part[1]), float_bits(v.part[2]), float_bits(v.part[3])}});
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) ptx::store_global(to + i, v.part[i]);
}

}  // namespace finegemm::device
