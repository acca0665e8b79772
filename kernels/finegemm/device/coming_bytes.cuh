// Asking L2 for bytes that a later kernel reads. Layer device.
#pragma once

#include <finegemm/core/coming_bytes.h>
#include <finegemm/device/ptx/tma.cuh>

namespace finegemm::device {

/// The CTAs of a grid share the bytes. Nothing is read: it matters to no result when they come, or whether.
__device__ inline void ask_for(const ComingBytes& x) {
    constexpr uint32_t kPiece = ComingBytes::kPiece;
    if (threadIdx.x > 0) return;
    for (uint64_t at = uint64_t{blockIdx.x} * kPiece; at < x.bytes; at += uint64_t{gridDim.x} * kPiece)
        ptx::bulk_prefetch(x.data + at, min(static_cast<uint32_t>(x.bytes - at), kPiece));
}

}  // namespace finegemm::device
