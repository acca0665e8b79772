// Bytes that a later kernel reads first. Layer core.
#pragma once

#include <finegemm/core/base.h>

namespace finegemm {

/// They come to L2 while this kernel waits for the one before it, as memory is idle then.
struct ComingBytes {
    const uint8_t* data;
    uint64_t bytes;  // a multiple of 16 below 2^32; 0: none

    /// What one request asks for.
    static constexpr uint32_t kPiece = 16384;
};

}  // namespace finegemm
