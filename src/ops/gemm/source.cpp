// Printing the source of a GEMM kernel. Layer jit.
#include "ops/gemm/source.h"

#include <finegemm/gemm/kernel_plan.h>
#include <fmt/format.h>

#include "plan/elements.h"

namespace finegemm::jit {

namespace {

#ifdef FINEGEMM_RACECHECK
constexpr std::string_view kDefines = "#define FINEGEMM_EVERY_LANE_ARRIVES\n";  // gemm/roles.h says why
#else
constexpr std::string_view kDefines;
#endif

std::string_view enumerator(ClusterUse use) {
    switch (use) {
        case ClusterUse::None: return "None";
        case ClusterUse::ShareA: return "ShareA";
        case ClusterUse::ShareB: return "ShareB";
        case ClusterUse::SplitK: return "SplitK";
    }
    return "None";
}

std::string_view enumerator(Scaling scaling) {
    switch (scaling) {
        case Scaling::Blocks: return "Blocks";
        case Scaling::Rows: return "Rows";
        case Scaling::None: return "None";
        case Scaling::Mx: return "Mx";
    }
    return "None";
}

std::string_view enumerator(Grouping grouping) {
    switch (grouping) {
        case Grouping::None: return "None";
        case Grouping::Rows: return "Rows";
        case Grouping::K: return "K";
        case Grouping::Sum: return "Sum";
    }
    return "None";
}

// The expression that makes a field's value in C++.
std::string value(uint32_t x) { return fmt::format("{}", x); }
std::string value(ClusterUse x) { return fmt::format("finegemm::ClusterUse::{}", enumerator(x)); }
std::string value(ScaleLayout x) {
    return fmt::format("finegemm::ScaleLayout::{}", x == ScaleLayout::Rows ? "Rows" : "Any");
}
std::string value(Grouping x) { return fmt::format("finegemm::Grouping::{}", enumerator(x)); }
std::string value(Output x) { return fmt::format("finegemm::Output::{}", type_of(x).enumerator); }
std::string value(Finish x) { return fmt::format("finegemm::Finish::{}", facts_of(x).enumerator); }
std::string value(const Operand& x) {
    return fmt::format("{{.element = finegemm::Element::{}, .scaling = finegemm::Scaling::{}{}}}",
                       type_of(x.element).enumerator, enumerator(x.scaling),
                       x.major == Major::MN ? ", .major = finegemm::Major::MN" : "");
}

}  // namespace

std::string to_source(const GemmConfig& c) {
    std::string fields;
    config_fields(
        [&](const char* name, const auto& x) {
            fields += fmt::format("{}.{} = {}", fields.empty() ? "" : ", ", name, value(x));
        },
        c);
    if (c.counts_choices) fields += ", .counts_choices = true";
    if (c.reports_rows) fields += ", .reports_rows = true";
    return fmt::format("finegemm::GemmConfig{{{}}}", fields);
}

std::string gemm_entry(const GemmConfig& c, std::string_view name) {
    return fmt::format("FineGEMM_{}_gemm_{}{}", type_of(c.a.element).name, name,
                       c.summed() ? "_bmn_bnk_mn_gemm_impl" : "");
}

/// That columns are paired (gemm/config.h), and what the wrappers of wgmma must be told where operands of one byte are
/// not all e4m3.
static std::string types_of(const GemmConfig& c) {
    if (pairs_columns(c.finish)) return "#define FG_PAIRS_COLUMNS\n";
    if (c.a.element == Element::I8) return "#define FG_WGMMA_I8\n";
    if (c.a.element == c.b.element) return "";
    return fmt::format("#define FG_WGMMA_FP8 \"{}.{}\"\n", type_of(c.a.element).name, type_of(c.b.element).name);
}

KernelSource gemm_source(const GemmConfig& c, std::string_view name) {
    const std::string entry = gemm_entry(c, name);
    return {
        .entry = entry,
        .text = fmt::format("{}#define {} {}\n#define FG_WGMMA_TYPE \"{}\"\n{}"
                            "#include <finegemm/device/gemm.cuh>\n"
                            "inline constexpr auto kConfig = {};\n"
                            "extern \"C\" __global__ void __launch_bounds__(kConfig.threads(), kConfig.ctas_per_sm)\n"
                            "{}(const __grid_constant__ finegemm::KernelParams<kConfig> params) {{\n"
                            "    finegemm::device::gemm<kConfig>(params);\n"
                            "}}\n",
                            kDefines, c.swapped() ? "FG_WGMMA_SIXTEENS" : "FG_WGMMA_N", c.wgmma_cols(),
                            type_of(c.a.element).name, types_of(c), to_source(c), entry),
        .yield_interval = kernel_plan(c).yield_interval};
}

std::span<const AddPiecesConfig> add_pieces_configs() {
    static constexpr AddPiecesConfig kConfigs[AddPiecesConfig::kCount] = {{Output::BF16}, {Output::F32}, {Output::F16}};
    return kConfigs;
}

KernelSource source_of(const AddPiecesConfig& c) {
    const std::string entry = fmt::format("FineGEMM_add_pieces_{}", type_of(c.output).name);
    return {.entry = entry,
            .text = fmt::format("#include <finegemm/device/add_pieces.cuh>\n"
                                "inline constexpr finegemm::AddPiecesConfig kConfig{{{}}};\n"
                                "extern \"C\" __global__ void __launch_bounds__(kConfig.threads())\n"
                                "{}(const __grid_constant__ finegemm::AddPiecesParams params) {{\n"
                                "    finegemm::device::add_pieces<kConfig>(params);\n"
                                "}}\n",
                                value(c.output), entry)};
}

KernelSource source_of(const GroupListConfig&) {
    return {.entry = "FineGEMM_group_list",
            .text =
                "#include <finegemm/device/group_list.cuh>\n"
                "inline constexpr finegemm::GroupListConfig kConfig;\n"
                "extern \"C\" __global__ void __launch_bounds__(kConfig.threads())\n"
                "FineGEMM_group_list(const __grid_constant__ finegemm::GroupListParams params) {\n"
                "    finegemm::device::write_group_list<kConfig>(params);\n"
                "}\n"};
}

}  // namespace finegemm::jit
