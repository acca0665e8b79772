// Printing the sources of the kernels that select. Layer jit.
#include "ops/topk/source.h"

#include <fmt/format.h>

namespace finegemm::jit {

KernelSource source_of(const TopkConfig& c) {
    const std::string entry = fmt::format("FineGEMM_topk_{}c{}", c.few ? "few_" : "", c.ctas);
    const char* const file = c.few ? "few" : c.whole_row() ? "whole_row" : "select";
    const char* const call = c.few           ? "topk_select_few<kConfig>"
                             : c.whole_row() ? "topk_select_rows"
                                             : "topk_select<kConfig>";
    return {.entry = entry,
            .text = fmt::format("#include <finegemm/device/topk/{}.cuh>\n"
                                "inline constexpr finegemm::TopkConfig kConfig{{{}{}}};\n"
                                "extern \"C\" __global__ void __launch_bounds__(kConfig.threads(), {})\n"
                                "{}(const __grid_constant__ finegemm::TopkParams params) {{\n"
                                "    finegemm::device::{}(params);\n"
                                "}}\n",
                                file, c.ctas, c.few ? ", true" : "", c.ctas_per_sm(), entry, call)};
}

std::vector<KernelSource> topk_sources() {
    std::vector<KernelSource> sources;
    for (uint32_t ctas = 1; ctas <= TopkConfig::kMostCtas; ctas *= 2) {
        sources.push_back(source_of(TopkConfig{ctas}));
        if (ctas > 1) sources.push_back(source_of(TopkConfig{ctas, true}));
    }
    return sources;
}

}  // namespace finegemm::jit
