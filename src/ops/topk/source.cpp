// Printing the sources of the kernels that select. Layer jit.
#include "ops/topk/source.h"

#include <fmt/format.h>

namespace finegemm::jit {

KernelSource source_of(const TopkConfig& c) {
    const std::string entry = fmt::format("FineGEMM_topk_c{}", c.ctas);
    return {.entry = entry,
            .text = fmt::format("#include <finegemm/device/topk/select.cuh>\n"
                                "inline constexpr finegemm::TopkConfig kConfig{{{}}};\n"
                                "extern \"C\" __global__ void __launch_bounds__(kConfig.threads(), {})\n"
                                "{}(const __grid_constant__ finegemm::TopkParams params) {{\n"
                                "    finegemm::device::topk_select<kConfig>(params);\n"
                                "}}\n",
                                c.ctas, c.ctas_per_sm(), entry)};
}

std::vector<KernelSource> topk_sources() {
    std::vector<KernelSource> sources;
    for (uint32_t ctas = 1; ctas <= TopkConfig::kMostCtas; ctas *= 2) sources.push_back(source_of(TopkConfig{ctas}));
    return sources;
}

}  // namespace finegemm::jit
