// The measured choices that come with the library. Layer plan.
#include "plan/table.h"

namespace finegemm::plan {

namespace {

constexpr Operand kBf16 = unscaled(Element::BF16);
constexpr Groups kSixOf1024{Grouping::Rows, 6, 1024}, kSixOf20{Grouping::Rows, 6, 20}, kSumOf129{Grouping::Sum, 129};
constexpr Result kAdded{DType::F32, true}, kActivated{.finish = Finish::Gated};
/// The experts that one of 32 GPUs has, with rows for which none is expected to have more.
constexpr Groups of_rank(uint32_t experts) { return {Grouping::Rows, experts}; }

// Rows of the dense table, of experts in bf16, of sums and of experts of ranks where the model's choice is more than 1%
// off, and of a masked one with SwiGLU: problem, best kernel. bench/results/sweep_h200.json, sweep_h100.json,
// sweep_1d1d_bf16_h200.json, swapped_h200.json and einsum_kernels_h200.json have the times of both; of ranks
// moe_choices_h200.json has those of layers with either.
// clang-format off
constexpr ShippedEntry kMeasuredH200[] = {
    {{1, 2112, 7168}, "m64n32s7w1_splitK3_x2"},
    {{1, 576, 7168}, "m64n32s6w1_splitK8_x2"},
    {{1, 24576, 1536}, "m64n32s8w1_x2"},
    {{1, 7168, 2048}, "m64n32s8w1_x2"},
    {{8, 2112, 7168}, "m64n32s7w1_splitK3_x2"},
    {{8, 576, 7168}, "m64n32s6w1_splitK8_x2"},
    {{8, 24576, 1536}, "m64n32s8w1_x2"},
    {{16, 576, 7168}, "m64n32s6w1_splitK8_x2"},
    {{16, 24576, 1536}, "m64n32s8w1_x2"},
    {{16, 4096, 7168}, "m64n40s14w2"},
    {{32, 24576, 1536}, "m64n32s8w1_x2"},
    {{32, 32768, 512}, "m64n64s5w1_x2"},
    {{32, 7168, 2048}, "m64n32s8w1_x2"},
    {{64, 24576, 1536}, "m64n32s8w1_x2"},
    {{64, 7168, 2048}, "m64n32s8w1_x2"},
    {{128, 24576, 1536}, "m128n64s8w2"},
    {{128, 7168, 16384}, "m128n64s8w2"},
    {{256, 24576, 1536}, "m128n128s6w2"},
    {{256, 32768, 512}, "m128n128s6w2"},
    {{256, 4096, 7168}, "m128n64s8w2"},
    {{512, 24576, 1536}, "m128n192s5w2"},
    {{512, 32768, 512}, "m128n128s6w2"},
    {{1024, 24576, 1536}, "m128n192s5w2"},
    {{2048, 7168, 16384}, "m128n176s4w2"},
    {{2048, 7168, 2048}, "m128n128s5w2"},
    {{8192, 7168, 16384}, "m128n176s4w2"},
    {{16384, 4096, 7168}, "m256n128s4w2"},
    {{65536, 4096, 7168}, "m192n128s4w3"},
    {{.m = 768, .n = 4096, .k = 7168, .d = kActivated, .groups = kSixOf20}, "m64n128s4w1_shareA2_x2_grouped_gated"},
    {{.m = 1, .n = 576, .k = 7168, .b = kRowScaled}, "m64n32s6w1_splitK8_x2_1d1d"},
    {{.m = 1, .n = 24576, .k = 1536, .b = kRowScaled}, "m64n32s7w1_x2_1d1d"},
    {{.m = 8, .n = 24576, .k = 1536, .b = kRowScaled}, "m64n32s7w1_x2_1d1d"},
    {{.m = 16, .n = 24576, .k = 1536, .b = kRowScaled}, "m64n32s7w1_x2_1d1d"},
    {{.m = 32, .n = 24576, .k = 1536, .b = kRowScaled}, "m64n32s7w1_x2_1d1d"},
    {{.m = 32, .n = 7168, .k = 2048, .b = kRowScaled}, "m64n64s12w2_1d1d"},
    {{.m = 128, .n = 24576, .k = 1536, .b = kRowScaled}, "m128n64s7w2_1d1d"},
    {{.m = 8448, .n = 6144, .k = 7168, .a = kBf16, .b = kBf16, .groups = kSixOf1024}, "m256n128s4w2_grouped_bf16"},
    {{.m = 8448, .n = 4096, .k = 4096, .a = kBf16, .b = kBf16, .groups = kSixOf1024}, "m256n128s4w2_grouped_bf16"},
    {{.m = 8448, .n = 4096, .k = 2048, .a = kBf16, .b = kBf16, .groups = kSixOf1024}, "m256n128s4w2_grouped_bf16"},
    {{.m = 256, .n = 256, .k = 33024, .a = kBf16, .b = kBf16, .groups = kSumOf129}, "m64n128s8w1_bf16_f32_summed"},
    {{.m = 256, .n = 256, .k = 33024, .a = kBf16, .b = kBf16, .d = kAdded, .groups = kSumOf129},
     "m64n128s8w1_bf16_f32_summed"},
    {{.m = 512, .n = 4096, .k = 7168, .groups = of_rank(8)}, "m128n128s6w2_grouped"},
    {{.m = 1024, .n = 4096, .k = 7168, .groups = of_rank(8)}, "m192n128s4w3_grouped"},
    {{.m = 512, .n = 3072, .k = 5120, .groups = of_rank(5)}, "m128n128s6w2_grouped"},
    {{.m = 1024, .n = 3072, .k = 5120, .groups = of_rank(5)}, "m256n128s4w2_shareA2_grouped"},
    {{.m = 1024, .n = 5120, .k = 1536, .groups = of_rank(5)}, "m128n200s4w2_grouped"},
    {{.m = 64, .n = 3072, .k = 4096, .groups = of_rank(4)}, "m64n128s8w1_grouped"},
    {{.m = 128, .n = 3072, .k = 4096, .groups = of_rank(4)}, "m128n128s6w2_grouped"},
    {{.m = 512, .n = 3072, .k = 4096, .groups = of_rank(4)}, "m192n96s5w3_grouped"},
    {{.m = 512, .n = 4096, .k = 1536, .groups = of_rank(4)}, "m192n128s4w3_grouped"},
    {{.m = 1024, .n = 3072, .k = 3072, .groups = of_rank(8)}, "m192n96s5w3_grouped"},
};
constexpr ShippedEntry kMeasuredH100[] = {
    {{1, 576, 7168}, "m64n32s6w1_splitK8_x2"},
    {{1, 24576, 1536}, "m64n32s8w1_x2"},
    {{1, 32768, 512}, "m64n32s8w1_x2"},
    {{1, 7168, 2048}, "m64n64s6w1_x2"},
    {{8, 2112, 7168}, "m64n32s7w1_splitK3_x2"},
    {{8, 576, 7168}, "m64n32s6w1_splitK8_x2"},
    {{8, 24576, 1536}, "m64n32s8w1_x2"},
    {{8, 7168, 2048}, "m64n64s6w1_x2"},
    {{16, 2112, 7168}, "m64n32s7w1_splitK3_x2"},
    {{16, 24576, 1536}, "m64n32s8w1_x2"},
    {{16, 7168, 16384}, "m64n32s16w2"},
    {{16, 4096, 7168}, "m64n64s12w2"},
    {{16, 7168, 2048}, "m64n64s6w1_x2"},
    {{32, 24576, 1536}, "m64n32s8w1_x2"},
    {{32, 32768, 512}, "m64n64s5w1_x2"},
    {{32, 7168, 2048}, "m64n64s6w1_x2"},
    {{64, 24576, 1536}, "m64n32s8w1_x2"},
    {{128, 24576, 1536}, "m64n64s6w1_x2"},
    {{128, 32768, 512}, "m128n128s6w2"},
    {{128, 7168, 2048}, "m64n64s6w1_x2"},
    {{256, 24576, 1536}, "m128n96s7w2"},
    {{256, 32768, 512}, "m256n128s4w2"},
    {{256, 4096, 7168}, "m128n64s8w2"},
    {{512, 24576, 1536}, "m128n192s5w2"},
    {{512, 32768, 512}, "m128n128s6w2"},
    {{1024, 2112, 7168}, "m128n144s6w2"},
    {{1024, 24576, 1536}, "m128n192s5w2"},
    {{1024, 32768, 512}, "m128n192s5w2"},
    {{2048, 24576, 1536}, "m128n192s5w2"},
    {{2048, 32768, 512}, "m128n192s5w2"},
    {{2048, 7168, 2048}, "m128n128s6w2"},
    {{4096, 32768, 512}, "m128n192s5w2"},
    {{8192, 32768, 512}, "m128n192s5w2"},
    {{8192, 7168, 16384}, "m128n224s4w2"},
    {{8192, 4096, 7168}, "m256n128s4w2_shareA2"},
};
// clang-format on

}  // namespace

std::span<const ShippedEntry> shipped_table(const DeviceSpec& device) {
    if (device.sms != 132) return {};
    if (device.name == "h200") return kMeasuredH200;
    if (device.name == "h100") return kMeasuredH100;
    return {};
}

}  // namespace finegemm::plan
