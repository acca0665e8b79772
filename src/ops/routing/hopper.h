// Calls of routing as launches. Layer engine.
#pragma once

#include <finegemm/gemm/params.h>

#include "ops/routing/call.h"

namespace finegemm {

struct RouteLaunch {
    RouteConfig config;
    RouteParams params;
    uint32_t grid;
};
RouteLaunch launch_of(const RouteCall& call);
/// What kernels that find rows by themselves are told.
RouteParams route_params(const RouteCall& call);
/// What a product's kernel counts of the same choices.
CountedChoices counted_choices(const RouteCall& call);
/// The kernel for so many choices.
RouteConfig route_config(int64_t choices);

struct PermuteLaunch {
    PermuteConfig config;
    PermuteParams params;
    uint32_t grid;
};
PermuteLaunch launch_of(const PermuteCall& call);

struct CombineLaunch {
    CombineConfig config;
    CombineParams params;
    uint32_t grid;
};
CombineLaunch launch_of(const CombineCall& call);

}  // namespace finegemm
