// Printing the sources of the kernels for layouts of scales. Layer jit.
#include "ops/scale_layout/source.h"

#include <array>

#include <fmt/format.h>

namespace finegemm::jit {

namespace {

using enum ScaleTransform;
constexpr auto kNone = ScaleGroupKind::None, kRows = ScaleGroupKind::Rows, kK = ScaleGroupKind::K;
constexpr std::array<ScaleLayoutConfig, ScaleLayoutConfig::kCount> kConfigs = {{{Copy, kNone},
                                                                                {Copy, kRows},
                                                                                {Round, kNone},
                                                                                {Round, kRows},
                                                                                {Pack, kNone},
                                                                                {Pack, kRows},
                                                                                {Unpack, kNone},
                                                                                {Unpack, kRows},
                                                                                {Pack, kK},
                                                                                {Pack, kNone, ScaleDirect::Columns},
                                                                                {Pack, kNone, ScaleDirect::Rows}}};

constexpr std::string_view kNames[] = {"Copy", "Round", "Pack", "Unpack"};
constexpr std::string_view kGroups[] = {"None", "Rows", "K"}, kEndings[] = {"", "_grouped", "_kgrouped"};
constexpr std::string_view kDirect[] = {"", "_by_columns", "_by_rows"}, kDirectNames[] = {"None", "Columns", "Rows"};
// Programs look for the first and for the third in what a profiler saw.
constexpr std::string_view kEntries[] = {"transpose_fp32", "round_fp32", "pack_fp32_into_ue8m0", "unpack_ue8m0"};

}  // namespace

std::span<const ScaleLayoutConfig> scale_layout_configs() { return kConfigs; }

KernelSource source_of(const ScaleLayoutConfig& c) {
    const auto transform = static_cast<size_t>(c.transform);
    const auto groups = static_cast<size_t>(c.groups), direct = static_cast<size_t>(c.direct);
    const std::string entry =
        fmt::format("FineGEMM_scale_layout_{}{}{}", kEntries[transform], kEndings[groups], kDirect[direct]);
    return {
        .entry = entry,
        .text = fmt::format("#include <finegemm/device/scale_layout.cuh>\n"
                            "inline constexpr finegemm::ScaleLayoutConfig kConfig{{finegemm::ScaleTransform::{}, "
                            "finegemm::ScaleGroupKind::{}, finegemm::ScaleDirect::{}}};\n"
                            "extern \"C\" __global__ void __launch_bounds__(kConfig.threads(), kConfig.ctas_per_sm())\n"
                            "{}(const __grid_constant__ finegemm::ScaleLayoutParams params) {{\n"
                            "    finegemm::device::scale_layout<kConfig>(params);\n"
                            "}}\n",
                            kNames[transform], kGroups[groups], kDirectNames[direct], entry)};
}

}  // namespace finegemm::jit
