// A change of scales' layout as a launch. Layer engine.
#pragma once

#include "ops/scale_layout/call.h"

namespace finegemm {

struct ScaleLayoutLaunch {
    ScaleLayoutConfig config;
    ScaleLayoutParams params;
    uint32_t grid;
};
/// The tiles of all matrices, which a launch numbers by 31 bits.
int64_t scale_tiles(const ScaleLayoutCall& call);

ScaleLayoutLaunch launch_of(const ScaleLayoutCall& call);

}  // namespace finegemm
