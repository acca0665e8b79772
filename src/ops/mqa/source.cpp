// Printing the sources of the kernels for an indexer's scores. Layer jit.
#include "ops/mqa/source.h"

#include <vector>

#include <fmt/format.h>

namespace finegemm::jit {

std::span<const MqaConfig> mqa_configs() {
    static const std::vector<MqaConfig> configs = [] {
        std::vector<MqaConfig> all;
        for (const MqaKeys keys : {MqaKeys::Rows, MqaKeys::Pages})
            for (const uint32_t heads : {8u, 16u, 32u, 64u})
                for (const uint32_t dim : {32u, 64u, 128u})
                    for (const MqaForm form : {MqaForm::Exact, MqaForm::Abs})
                        if (form == MqaForm::Exact || has_abs_form(keys, heads))
                            all.push_back({heads, dim, keys, form});
        return all;
    }();
    return configs;
}

KernelSource source_of(const MqaConfig& c) {
    const bool pages = c.keys == MqaKeys::Pages, abs = c.form == MqaForm::Abs;
    const std::string entry =
        fmt::format("FineGEMM_{}mqa_logits_h{}_d{}{}", pages ? "paged_" : "", c.heads, c.dim, abs ? "_abs" : "");
    return {.entry = entry,
            .text = fmt::format("#define FG_WGMMA_N {}\n"
                                "#define FG_WGMMA_TOO {}\n"
                                "#define FG_WGMMA_TYPE \"e4m3\"\n"
                                "#include <finegemm/device/mqa/mqa.cuh>\n"
                                "inline constexpr finegemm::MqaConfig kConfig{{{}, {}, finegemm::MqaKeys::{}, "
                                "finegemm::MqaForm::{}}};\n"
                                "extern \"C\" __global__ void __launch_bounds__(kConfig.threads(), 1)\n"
                                "{}(const __grid_constant__ finegemm::MqaParams params) {{\n"
                                "    finegemm::device::mqa_logits<kConfig>(params);\n"
                                "}}\n",
                                c.columns(), c.few_columns(), c.heads, c.dim, pages ? "Pages" : "Rows",
                                abs ? "Abs" : "Exact", entry)};
}

KernelSource source_of(const MqaScheduleConfig&) {
    return {.entry = "FineGEMM_paged_mqa_schedule",
            .text =
                "#include <finegemm/device/mqa/schedule.cuh>\n"
                "extern \"C\" __global__ void __launch_bounds__(finegemm::MqaScheduleConfig::threads(), 1)\n"
                "FineGEMM_paged_mqa_schedule(const __grid_constant__ finegemm::MqaScheduleParams params) {\n"
                "    finegemm::device::mqa_schedule(params);\n"
                "}\n"};
}

}  // namespace finegemm::jit
