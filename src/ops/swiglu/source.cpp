// Printing the sources of the kernels of SwiGLU with quantisation. Layer jit.
#include "ops/swiglu/source.h"

#include <fmt/format.h>

namespace finegemm::jit {

std::span<const SwigluConfig> swiglu_configs() {
    static constexpr SwigluConfig kConfigs[SwigluConfig::kCount] = {{QuantizeInput::F32},
                                                                    {QuantizeInput::BF16},
                                                                    {QuantizeInput::BF16, true},
                                                                    {QuantizeInput::BF16, false, true},
                                                                    {QuantizeInput::BF16, true, false, true}};
    return kConfigs;
}

KernelSource source_of(const SwigluConfig& c) {
    const char* const input = c.input == QuantizeInput::F32 ? "F32" : "BF16";
    const std::string entry = fmt::format("FineGEMM_swiglu_quantize_{}{}{}{}", input, c.few ? "_few" : "",
                                          c.biased ? "_biased" : "", c.awaits ? "_awaiting" : "");
    return {.entry = entry,
            .text = fmt::format(
                "#include <finegemm/device/swiglu_quantize.cuh>\n"
                "inline constexpr finegemm::SwigluConfig kConfig{{finegemm::QuantizeInput::{}, {}, {}, {}}};\n"
                "extern \"C\" __global__ void __launch_bounds__(kConfig.threads(), kConfig.ctas_per_sm())\n"
                "{}(const __grid_constant__ finegemm::SwigluParams params) {{\n"
                "    finegemm::device::swiglu_quantize<kConfig>(params);\n"
                "}}\n",
                input, c.few, c.biased, c.awaits, entry)};
}

}  // namespace finegemm::jit
