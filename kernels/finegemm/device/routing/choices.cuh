// Choices of tokens, a lane each. Layer device.
#pragma once

#include <finegemm/routing/routing.h>
#include <finegemm/device/ptx/convert.cuh>

namespace finegemm::device {

struct Choice {
    uint32_t number, token, slot, expert;
};

/// `experts` as the expert of what is no choice.
__device__ inline Choice load_choice(const RouteParams& p, uint32_t number, bool exists) {
    const uint32_t token = p.by_k.quotient(number), slot = number - token * p.by_k.divisor;
    const int64_t element = token * p.ids_row_stride + slot;
    const uint8_t* const from = p.ids + element * (p.wide ? 8 : 4);
    const uint32_t low = ptx::load_global_if(exists, from);
    const uint32_t high =
        p.wide ? ptx::load_global_if(exists, from + 4) : static_cast<uint32_t>(static_cast<int32_t>(low) >> 31);
    const int64_t id = static_cast<int64_t>(static_cast<uint64_t>(high) << 32 | low);
    return {number, token, slot, exists ? p.places.expert(id, p.first) : p.places.experts};
}

}  // namespace finegemm::device
