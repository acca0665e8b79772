// Tokens' choices of groups, so few that each CTA counts them by itself. Layer core.
#pragma once

#include <finegemm/core/divide.h>

namespace finegemm {

/// So many choices a warp counts in the ids of their experts: a lane has one. With two 64 choices took longer than with
/// kernels that read sizes.
inline constexpr uint32_t kCountedChoices = kWarpSize;

/// Groups are experts, and have their rows by offsets: as route says it.
struct CountedChoices {
    const uint8_t* ids;  // [tokens, k]; no kernel that the one that counts may overlap with writes them
    int64_t row_stride;
    int64_t first;  // id of the first expert
    uint32_t count;
    uint32_t wide;  // ids have 64 bits
    Divider by_k;
};

}  // namespace finegemm
