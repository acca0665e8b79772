// Biases of experts: where kernels find them. Layer core.
#pragma once

#include <finegemm/core/base.h>

namespace finegemm {

/// A row for each expert; columns are contiguous, and eight of them begin at a multiple of 16 bytes.
struct ExpertBias {
    const uint8_t* data = nullptr;
    int64_t stride = 0;  // bytes from an expert to the next
    uint32_t wide = 0;   // f32; else bf16
};

}  // namespace finegemm
