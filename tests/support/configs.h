// Kernel configurations of every kind, for tests that need them when they are compiled. Layer tests.
#pragma once

#include <array>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include <finegemm/gemm/config.h>

namespace finegemm::test {

// tile_m, tile_n, stages, math_warpgroups, cluster, cluster_use, ctas_per_sm, scales, grouping, a, b, output, finish
inline constexpr auto kConfigs = std::to_array<GemmConfig>({
    {64, 16, 3, 1, 1, ClusterUse::None, 2},
    {64, 32, 8, 1, 1, ClusterUse::None, 2},
    {64, 96, 6, 1, 1, ClusterUse::None, 1},
    {128, 128, 6, 2, 1, ClusterUse::None, 1},
    {128, 192, 4, 2, 1, ClusterUse::None, 1},
    {128, 144, 4, 2, 1, ClusterUse::None, 1},
    {128, 112, 4, 2, 1, ClusterUse::None, 1},
    {128, 48, 6, 2, 1, ClusterUse::None, 1},
    {128, 136, 5, 2, 1, ClusterUse::None, 1},
    {128, 224, 4, 2, 1, ClusterUse::None, 1},
    {128, 176, 5, 2, 1, ClusterUse::None, 1},
    {256, 128, 4, 2, 1, ClusterUse::None, 1},
    {256, 112, 4, 2, 2, ClusterUse::ShareA, 1},
    {192, 80, 4, 3, 1, ClusterUse::None, 1},
    {128, 128, 6, 2, 2, ClusterUse::ShareB, 1},
    {128, 160, 4, 2, 2, ClusterUse::ShareB, 1},
    {128, 96, 5, 2, 2, ClusterUse::ShareA, 1},
    {192, 128, 4, 3, 2, ClusterUse::ShareA, 1},
    {256, 128, 4, 2, 2, ClusterUse::ShareA, 1},
    {64, 128, 5, 1, 4, ClusterUse::ShareB, 1},
    {64, 32, 7, 1, 2, ClusterUse::SplitK, 2},
    {64, 64, 5, 1, 5, ClusterUse::SplitK, 2},
    {128, 64, 5, 2, 3, ClusterUse::SplitK, 1},
    {128, 96, 6, 2, 2, ClusterUse::SplitK, 1},
    {64, 32, 6, 1, 8, ClusterUse::SplitK, 2},
    {64, 64, 12, 2, 1, ClusterUse::None, 1},
    {64, 80, 6, 2, 1, ClusterUse::None, 1},
    {64, 40, 14, 2, 1, ClusterUse::None, 1},
    {64, 16, 10, 2, 1, ClusterUse::None, 2},
    {64, 64, 4, 2, 2, ClusterUse::ShareA, 1},
    {64, 32, 10, 2, 2, ClusterUse::SplitK, 1},
    {128, 32, 8, 2, 1, ClusterUse::None, 1, ScaleLayout::Rows},
    {128, 64, 5, 2, 2, ClusterUse::SplitK, 1, ScaleLayout::Rows},
    {192, 128, 4, 3, 2, ClusterUse::ShareA, 1, ScaleLayout::Rows},
    {64, 128, 4, 1, 1, ClusterUse::None, 2, ScaleLayout::Any, Grouping::Rows},
    {128, 128, 6, 2, 1, ClusterUse::None, 1, ScaleLayout::Rows, Grouping::Rows},
    {128, 192, 5, 2, 1, ClusterUse::None, 1, ScaleLayout::Rows, Grouping::Rows},
    {128, 200, 5, 2, 1, ClusterUse::None, 1, ScaleLayout::Rows, Grouping::Rows},
    {256, 128, 4, 2, 2, ClusterUse::ShareA, 1, ScaleLayout::Any, Grouping::Rows},
    {128, 128, 5, 2, 1, ClusterUse::None, 1, ScaleLayout::Any, Grouping::None, {}, kRowScaled, Output::F32},
    {128, 128, 4, 2, 1, ClusterUse::None, 1, ScaleLayout::Any, Grouping::None, {}, kRowScaled, Output::F32},
    {128, 136, 5, 2, 1, ClusterUse::None, 1, ScaleLayout::Any, Grouping::None, {}, kRowScaled, Output::F32},
    {128, 136, 5, 2, 1, ClusterUse::None, 1, ScaleLayout::Rows, Grouping::None, {}, kRowScaled, Output::F32},
    {128, 48, 6, 2, 1, ClusterUse::None, 1, ScaleLayout::Any, Grouping::None, {}, kRowScaled, Output::F32},
    {256, 128, 4, 2, 1, ClusterUse::None, 1, ScaleLayout::Any, Grouping::None, {}, kRowScaled, Output::BF16},
    {128, 128, 5, 2, 1, ClusterUse::None, 1, ScaleLayout::Any, Grouping::K, {}, kRowScaled, Output::F32},
    {128, 192, 4, 2, 1, ClusterUse::None, 1, ScaleLayout::Any, Grouping::K, {}, kRowScaled, Output::F32},
    {64, 64, 5, 1, 1, ClusterUse::None, 2, ScaleLayout::Any, Grouping::K, {}, kRowScaled, Output::F32},
    {128,
     160,
     5,
     2,
     1,
     ClusterUse::None,
     1,
     ScaleLayout::Any,
     Grouping::None,
     {},
     kBlockScaled,
     Output::BF16,
     Finish::Affine},
    {64,
     64,
     6,
     1,
     1,
     ClusterUse::None,
     2,
     ScaleLayout::Any,
     Grouping::Rows,
     {},
     kBlockScaled,
     Output::F16,
     Finish::Affine},
    {128,
     128,
     4,
     2,
     1,
     ClusterUse::None,
     1,
     ScaleLayout::Any,
     Grouping::None,
     {},
     kBlockScaled,
     Output::F32,
     Finish::Affine},
});

inline std::string describe(const GemmConfig& c) {
    constexpr const char* kUses[] = {"", " shareA ", " shareB ", " splitK "};
    return "tile " + std::to_string(c.tile_m) + "x" + std::to_string(c.tile_n) + ", stages " +
           std::to_string(c.stages) + ", warpgroups " + std::to_string(c.math_warpgroups) +
           kUses[static_cast<uint32_t>(c.cluster_use)] + (c.cluster > 1 ? std::to_string(c.cluster) : "") +
           (c.scales == ScaleLayout::Rows ? " rows" : "") + (c.row_groups() ? " grouped" : "") +
           (c.k_groups() ? " k-grouped" : "") + (c.row_b_scales() ? " 1d1d" : "") +
           (c.output == Output::F32 ? " f32" : "") + " " + facts_of(c.finish).name;
}

/// Calls body.operator()<C>() for each.
template <typename Body>
void for_each_config(const Body& body) {
    const auto one = [&]<GemmConfig C>() {
        SCOPED_TRACE(describe(C));
        body.template operator()<C>();
    };
    [&]<size_t... I>(std::index_sequence<I...>) {
        (one.template operator()<kConfigs[I]>(), ...);
    }(std::make_index_sequence<kConfigs.size()>());
}

}  // namespace finegemm::test
