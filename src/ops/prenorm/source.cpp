// Printing the sources of the kernels for the product before a norm. Layer jit.
#include "ops/prenorm/source.h"

#include <fmt/format.h>

namespace finegemm::jit {

std::span<const PrenormConfig> prenorm_configs() {
    static constexpr PrenormConfig kConfigs[] = {{64, 24}, {128, 24}, {64, 32}, {128, 32}};
    return kConfigs;
}

KernelSource source_of(const PrenormConfig& c) {
#ifdef FINEGEMM_RACECHECK
    constexpr const char* kDefines = "#define FINEGEMM_EVERY_LANE_ARRIVES\n";  // gemm/roles.h says why
#else
    constexpr const char* kDefines = "";
#endif
    const std::string entry = fmt::format("FineGEMM_prenorm_{}x{}_tf32_hc_prenorm_gemm", c.rows, c.cols);
    return {.entry = entry,
            .text = fmt::format("{}#define FG_WGMMA_N {}\n"
                                "#define FG_WGMMA_TYPE \"bf16\"\n"
                                "#include <finegemm/device/prenorm/prenorm.cuh>\n"
                                "inline constexpr finegemm::PrenormConfig kConfig{{{}, {}}};\n"
                                "extern \"C\" __global__ void __launch_bounds__(kConfig.threads(), 1)\n"
                                "{}(const __grid_constant__ finegemm::PrenormParams params) {{\n"
                                "    finegemm::device::prenorm<kConfig>(params);\n"
                                "}}\n",
                                kDefines, c.wgmma_cols(), c.rows, c.cols, entry)};
}

}  // namespace finegemm::jit
