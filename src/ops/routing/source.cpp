// Printing the sources of the kernels for routing. Layer jit.
#include "ops/routing/source.h"

#include <fmt/format.h>

namespace finegemm::jit {

namespace {

/// A kernel that calls `body` with its parameters. `config`: how its configuration is made.
KernelSource kernel(std::string_view entry, std::string_view file, std::string_view config, std::string_view params,
                    std::string_view body, uint32_t ctas_per_sm) {
    return {.entry = std::string(entry),
            .text = fmt::format("#include <finegemm/device/routing/{}.cuh>\n"
                                "inline constexpr finegemm::{} kConfig{};\n"
                                "extern \"C\" __global__ void __launch_bounds__(kConfig.threads(), {})\n"
                                "{}(const __grid_constant__ finegemm::{} params) {{\n"
                                "    finegemm::device::{}(params);\n"
                                "}}\n",
                                file, config.substr(0, config.find('{')), config.substr(config.find('{')), ctas_per_sm,
                                entry, params, body)};
}

}  // namespace

KernelSource source_of(const RouteConfig& c) {
    return kernel(c.ctas > 1 ? "FineGEMM_routing_route_cluster" : "FineGEMM_routing_route", "route",
                  fmt::format("RouteConfig{{{}}}", c.ctas), "RouteParams", "route<kConfig>", 1);
}

KernelSource source_of(const PermuteConfig& c) {
    return kernel(
        fmt::format("FineGEMM_routing_permute{}{}", c.quantizes ? "_quantize" : "", c.routes ? "_routed" : ""),
        "permute", fmt::format("PermuteConfig{{{}, {}}}", c.quantizes, c.routes), "PermuteParams",
        "permute_rows<kConfig>", c.ctas_per_sm());
}

KernelSource source_of(const CombineConfig& c) {
    return kernel(fmt::format("FineGEMM_routing_combine{}{}", c.routes ? "_routed" : "", c.biased ? "_biased" : ""),
                  "combine", fmt::format("CombineConfig{{{}, {}}}", c.routes, c.biased), "CombineParams",
                  "combine<kConfig>", c.ctas_per_sm());
}

std::vector<KernelSource> routing_sources() {
    return {
        source_of(RouteConfig{1}),      source_of(RouteConfig{RouteConfig::kMostCtas}), source_of(PermuteConfig{false}),
        source_of(PermuteConfig{true}), source_of(PermuteConfig{true, true}),           source_of(CombineConfig{}),
        source_of(CombineConfig{true}), source_of(CombineConfig{false, true})};
}

}  // namespace finegemm::jit
