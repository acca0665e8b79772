// Printing the sources of the kernels for weights of 4 bits. Layer jit.
#include "ops/four_bit/source.h"

#include <fmt/format.h>

namespace finegemm::jit {

std::span<const FourBitConfig> four_bit_configs() {
    static constexpr FourBitConfig kConfigs[FourBitConfig::kCount] = {
        {FourBitCodes::Mxfp4, FourBitRows::Few},
        {FourBitCodes::Int4, FourBitRows::Few},
        {FourBitCodes::Mxfp4, FourBitRows::Many},
        {FourBitCodes::Int4, FourBitRows::Many},
    };
    return kConfigs;
}

KernelSource source_of(const FourBitConfig& c) {
#ifdef FINEGEMM_RACECHECK
    constexpr const char* kDefines = "#define FINEGEMM_EVERY_LANE_ARRIVES\n";  // gemm/roles.h says why
#else
    constexpr const char* kDefines = "";
#endif
    const char* const codes = c.codes == FourBitCodes::Mxfp4 ? "Mxfp4" : "Int4";
    const std::string entry = fmt::format("FineGEMM_four_bit_{}{}", codes, c.many() ? "_many" : "");
    return {.entry = entry,
            .text = fmt::format("{}#define FG_WGMMA_N {}\n"
                                "#define FG_WGMMA_TYPE \"bf16\"\n"
                                "{}"
                                "#include <finegemm/device/four_bit/four_bit.cuh>\n"
                                "inline constexpr finegemm::FourBitConfig kConfig{{finegemm::FourBitCodes::{}, "
                                "finegemm::FourBitRows::{}}};\n"
                                "extern \"C\" __global__ void __launch_bounds__(kConfig.threads(), 1)\n"
                                "{}(const __grid_constant__ finegemm::FourBitParams params) {{\n"
                                "    finegemm::device::four_bit<kConfig>(params);\n"
                                "}}\n",
                                kDefines, c.decodes_to_shared() ? 128 : 16,
                                c.decodes_to_shared() ? "" : "#define FG_WGMMA_A_IN_REGISTERS\n", codes,
                                c.many() ? "Many" : "Few", entry),
            .yield_interval = c.decodes_to_shared() ? 16u : 0u};  // of FP8 tiles of 256x128, too
}

}  // namespace finegemm::jit
