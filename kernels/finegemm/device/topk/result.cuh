// A row of what is selected. Layer device.
#pragma once

#include <finegemm/device/topk/row.cuh>

namespace finegemm::device {

/// A row of the result, and the numbers that it is of.
struct TopkRowResult {
    const float* logits;
    int32_t* indices;
    uint32_t* values;  // null: not wanted

    __device__ TopkRowResult(const TopkParams& p, uint32_t row)
        : logits(p.logits + row * p.logits_stride),
          indices(p.indices + row * p.indices_stride),
          values(p.values ? reinterpret_cast<uint32_t*>(p.values) + row * p.values_stride : nullptr) {}

    /// kTopkNone: nothing was selected for that place.
    __device__ void store(uint32_t place, uint32_t column) const {
        constexpr uint32_t kMinusInfinity = 0xff800000;
        const bool none = column == static_cast<uint32_t>(kTopkNone);
        ptx::store_global(indices + place, column);
        if (!values) return;
        const uint32_t value = ptx::load_global_l2_if(!none, logits + (none ? 0 : column));
        ptx::store_global(values + place, none ? kMinusInfinity : value);
    }
    /// `key`: of the number, so that only zeros and NaN are looked up.
    __device__ void store(uint32_t place, uint32_t column, uint32_t key) const {
        if (key == topk_key(0u) || key == ~0u) return store(place, column);
        ptx::store_global(indices + place, column);
        if (values) ptx::store_global(values + place, float_bits(number_of_key(key)));
    }
};

}  // namespace finegemm::device
