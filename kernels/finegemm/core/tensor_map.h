// What TMA is told of a matrix. Layer core.
#pragma once

#include <finegemm/core/base.h>

namespace finegemm {

/// The driver's CUtensorMap: opaque, 128 bytes, aligned to 64.
struct alignas(64) TensorMap {
    uint64_t words[16];
};

}  // namespace finegemm
