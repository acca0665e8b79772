// Printing the sources of the kernels that are a whole layer of experts. Layer jit.
#include "ops/moe/source.h"

#include <fmt/format.h>

namespace finegemm::jit {

KernelSource source_of(const LayerConfig& c) {
    const std::string entry = fmt::format("FineGEMM_layer_m{}", c.rows);
    return {.entry = entry,
            .text = fmt::format("#define FG_WGMMA_N 16\n"
                                "#define FG_WGMMA_TOO {}\n"
                                "#define FG_WGMMA_TYPE \"bf16\"\n"
                                "#include <finegemm/device/layer/layer.cuh>\n"
                                "inline constexpr finegemm::LayerConfig kConfig{{{}}};\n"
                                "__device__ uint32_t counters[finegemm::LayerCounters::kAll];\n"
                                "extern \"C\" __global__ void __launch_bounds__(kConfig.threads(), 1)\n"
                                "{}(const __grid_constant__ finegemm::LayerParams params) {{\n"
                                "    finegemm::device::expert_layer<kConfig>(params, counters);\n"
                                "}}\n",
                                c.rows, c.rows, entry)};
}

std::vector<KernelSource> layer_sources() { return {source_of(LayerConfig{16}), source_of(LayerConfig{32})}; }

}  // namespace finegemm::jit
