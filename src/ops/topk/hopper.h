// Selections as launches. Layer engine.
#pragma once

#include <finegemm/topk/topk.h>

#include "cuda/driver.h"
#include "ops/topk/call.h"

namespace finegemm {

struct TopkLaunch {
    TopkConfig config;
    TopkParams params;
    uint32_t grid;
    bool overlaps;        // with the launch before it
    uint32_t smem_bytes;  // of a CTA
};

/// Columns that a CTA selects from where clusters are not as large as they can be: a sixteenth of them fits, as a
/// sample.
inline constexpr int64_t kTopkMostColumns = 1 << 17;

/// The kernel for so many rows of so many columns. `sms`: that may be used.
TopkConfig topk_config(int64_t rows, int64_t width, uint32_t sms);

TopkLaunch launch_of(const TopkCall& call, const cuda::Driver& driver, uint32_t sms);

}  // namespace finegemm
