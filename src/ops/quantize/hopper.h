// A quantisation as a launch. Layer engine.
#pragma once

#include <finegemm/quantize/columns.h>
#include <finegemm/quantize/reencode.h>

#include "ops/quantize/call.h"

namespace finegemm {

struct QuantizeLaunch {
    QuantizeConfig config;
    QuantizeParams params;
    uint32_t grid;
};
QuantizeLaunch launch_of(const QuantizeCall& call);

struct QuantizeColumnsLaunch {
    QuantizeColumnsConfig config;
    QuantizeColumnsParams params;
    uint32_t grid;
};
QuantizeColumnsLaunch launch_of(const QuantizeColumnsCall& call);

struct ReencodeLaunch {
    ReencodeConfig config;
    ReencodeParams params;
    uint32_t grid;
};
ReencodeLaunch launch_of(const ReencodeCall& call);

}  // namespace finegemm
