// Printing the sources of the quantisation kernels. Layer jit.
#include "ops/quantize/source.h"

#include <array>

#include <fmt/format.h>

namespace finegemm::jit {

namespace {

using enum QuantizeInput;
using enum QuantizeCodes;
constexpr std::array<QuantizeConfig, QuantizeConfig::kCount> kConfigs = {{{F32, false},
                                                                          {F16, false},
                                                                          {BF16, false},
                                                                          {F32, true},
                                                                          {F16, true},
                                                                          {BF16, true},
                                                                          {F32, false, E5M2},
                                                                          {F16, false, E5M2},
                                                                          {BF16, false, E5M2},
                                                                          {F32, true, E5M2},
                                                                          {F16, true, E5M2},
                                                                          {BF16, true, E5M2},
                                                                          {F32, false, I8},
                                                                          {F16, false, I8},
                                                                          {BF16, false, I8},
                                                                          {F32, true, I8},
                                                                          {F16, true, I8},
                                                                          {BF16, true, I8},
                                                                          {F32, false, E4M3, true},
                                                                          {F16, false, E4M3, true},
                                                                          {BF16, false, E4M3, true},
                                                                          {F32, false, E5M2, true},
                                                                          {F16, false, E5M2, true},
                                                                          {BF16, false, E5M2, true},
                                                                          {F32, false, I8, true},
                                                                          {F16, false, I8, true},
                                                                          {BF16, false, I8, true}}};
constexpr std::array<QuantizeColumnsConfig, QuantizeColumnsConfig::kCount> kColumnConfigs = {
    {{F32}, {F16}, {BF16}, {F32, E5M2}, {F16, E5M2}, {BF16, E5M2}}};

constexpr std::array<ReencodeConfig, ReencodeConfig::kCount> kReencodeConfigs = {{{false}, {true}}};

constexpr std::string_view kNames[] = {"F32", "F16", "BF16"};

/// What sources and names say of codes that are not e4m3.
std::string_view field_of(QuantizeCodes codes) {
    return codes == I8 ? ", finegemm::QuantizeCodes::I8" : codes == E5M2 ? ", finegemm::QuantizeCodes::E5M2" : "";
}
/// Whole rows say their codes whatever these are, as a value follows.
std::string fields_of(const QuantizeConfig& c) {
    if (!c.whole_rows) return std::string(field_of(c.codes));
    return fmt::format("{}, true", c.codes == E4M3 ? ", finegemm::QuantizeCodes::E4M3" : field_of(c.codes));
}
std::string_view kind_of(const QuantizeConfig& c) {
    return c.whole_rows ? "whole_rows" : c.square_blocks ? "blocks" : "rows";
}
std::string_view suffix_of(QuantizeCodes codes) { return codes == I8 ? "_I8" : codes == E5M2 ? "_E5M2" : ""; }

}  // namespace

std::span<const QuantizeConfig> quantize_configs() { return kConfigs; }
std::span<const QuantizeColumnsConfig> quantize_columns_configs() { return kColumnConfigs; }
std::span<const ReencodeConfig> reencode_configs() { return kReencodeConfigs; }

KernelSource source_of(const QuantizeConfig& c) {
    const std::string_view input = kNames[static_cast<size_t>(c.input)];
    const std::string entry = fmt::format("FineGEMM_quantize_{}_{}{}", kind_of(c), input, suffix_of(c.codes));
    return {
        .entry = entry,
        .text = fmt::format("#include <finegemm/device/quantize.cuh>\n"
                            "inline constexpr finegemm::QuantizeConfig kConfig{{finegemm::QuantizeInput::{}, {}{}}};\n"
                            "extern \"C\" __global__ void __launch_bounds__(kConfig.threads(), kConfig.ctas_per_sm())\n"
                            "{}(const __grid_constant__ finegemm::QuantizeParams params) {{\n"
                            "    finegemm::device::quantize<kConfig>(params);\n"
                            "}}\n",
                            input, c.square_blocks, fields_of(c), entry)};
}

KernelSource source_of(const QuantizeColumnsConfig& c) {
    const std::string_view input = kNames[static_cast<size_t>(c.input)];
    const std::string entry = fmt::format("FineGEMM_quantize_columns_{}{}", input, suffix_of(c.codes));
    return {.entry = entry,
            .text = fmt::format(
                "#include <finegemm/device/quantize_columns.cuh>\n"
                "inline constexpr finegemm::QuantizeColumnsConfig kConfig{{finegemm::QuantizeInput::{}{}}};\n"
                "extern \"C\" __global__ void __launch_bounds__(kConfig.threads(), kConfig.ctas_per_sm())\n"
                "{}(const __grid_constant__ finegemm::QuantizeColumnsParams params) {{\n"
                "    finegemm::device::quantize_columns<kConfig>(params);\n"
                "}}\n",
                input, field_of(c.codes), entry)};
}

KernelSource source_of(const ReencodeConfig& c) {
    const std::string entry = fmt::format("FineGEMM_reencode_{}", c.square_blocks ? "blocks" : "rows");
    return {
        .entry = entry,
        .text = fmt::format("#include <finegemm/device/reencode.cuh>\n"
                            "inline constexpr finegemm::ReencodeConfig kConfig{{{}}};\n"
                            "extern \"C\" __global__ void __launch_bounds__(kConfig.threads(), kConfig.ctas_per_sm())\n"
                            "{}(const __grid_constant__ finegemm::ReencodeParams params) {{\n"
                            "    finegemm::device::reencode<kConfig>(params);\n"
                            "}}\n",
                            c.square_blocks, entry)};
}

}  // namespace finegemm::jit
