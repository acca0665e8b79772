// The sources of the quantisation kernels: a finite list, each with an entry of its own.
#include <gtest/gtest.h>

#include <set>

#include "ops/quantize/source.h"

namespace finegemm::jit {
namespace {

TEST(QuantizeSource, ThereIsOneKernelForEachInputTypeAndKindOfScales) {
    std::set<std::string> entries, texts;
    std::set<uint32_t> places;
    for (const QuantizeConfig& config : quantize_configs()) {
        const KernelSource source = source_of(config);
        entries.insert(source.entry);
        texts.insert(source.text);
        EXPECT_NE(source.text.find(source.entry + "("), std::string::npos) << source.text;
    }
    EXPECT_EQ(entries.size(), 27u);
    EXPECT_EQ(texts.size(), 27u);
    for (const QuantizeInput input : {QuantizeInput::F32, QuantizeInput::F16, QuantizeInput::BF16})
        for (const auto& [square_blocks, whole_rows] : {std::pair{false, false}, {true, false}, {false, true}})
            for (const QuantizeCodes codes : {QuantizeCodes::E4M3, QuantizeCodes::E5M2, QuantizeCodes::I8}) {
                const QuantizeConfig config{input, square_blocks, codes, whole_rows};
                EXPECT_TRUE(entries.contains(source_of(config).entry));
                places.insert(config.index());
            }
    EXPECT_EQ(places.size(), 27u);
    EXPECT_LT(*places.rbegin(), QuantizeConfig::kCount);
}

TEST(QuantizeSource, ColumnsHaveAKernelForEachInputType) {
    std::set<std::string> entries;
    for (const QuantizeColumnsConfig& config : quantize_columns_configs()) entries.insert(source_of(config).entry);
    EXPECT_EQ(entries,
              (std::set<std::string>{"FineGEMM_quantize_columns_F32", "FineGEMM_quantize_columns_F16",
                                     "FineGEMM_quantize_columns_BF16", "FineGEMM_quantize_columns_F32_E5M2",
                                     "FineGEMM_quantize_columns_F16_E5M2", "FineGEMM_quantize_columns_BF16_E5M2"}));
    for (const QuantizeColumnsConfig& config : quantize_columns_configs())
        EXPECT_EQ(quantize_columns_configs()[config.index()], config);
}

TEST(QuantizeSource, CodesWithExponentsHaveAKernelForEachShapeOfScales) {
    ASSERT_EQ(reencode_configs().size(), 2u);
    for (const ReencodeConfig& config : reencode_configs()) EXPECT_EQ(reencode_configs()[config.index()], config);
    EXPECT_EQ(source_of(ReencodeConfig{.square_blocks = true}).entry, "FineGEMM_reencode_blocks");
    EXPECT_EQ(source_of(ReencodeConfig{}).text,
              "#include <finegemm/device/reencode.cuh>\n"
              "inline constexpr finegemm::ReencodeConfig kConfig{false};\n"
              "extern \"C\" __global__ void __launch_bounds__(kConfig.threads(), kConfig.ctas_per_sm())\n"
              "FineGEMM_reencode_rows(const __grid_constant__ finegemm::ReencodeParams params) {\n"
              "    finegemm::device::reencode<kConfig>(params);\n"
              "}\n");
}

TEST(QuantizeSource, TheTextIsACompleteTranslationUnit) {
    EXPECT_EQ(source_of(QuantizeConfig{QuantizeInput::BF16, true}).text,
              "#include <finegemm/device/quantize.cuh>\n"
              "inline constexpr finegemm::QuantizeConfig kConfig{finegemm::QuantizeInput::BF16, true};\n"
              "extern \"C\" __global__ void __launch_bounds__(kConfig.threads(), kConfig.ctas_per_sm())\n"
              "FineGEMM_quantize_blocks_BF16(const __grid_constant__ finegemm::QuantizeParams params) {\n"
              "    finegemm::device::quantize<kConfig>(params);\n"
              "}\n");
    const auto says = [](const QuantizeConfig& config, const char* text) {
        return source_of(config).text.find(text) != std::string::npos;
    };
    EXPECT_TRUE(
        says({.codes = QuantizeCodes::I8, .whole_rows = true}, "::BF16, false, finegemm::QuantizeCodes::I8, true};"));
    EXPECT_TRUE(says({.whole_rows = true}, "::BF16, false, finegemm::QuantizeCodes::E4M3, true};"));
}

}  // namespace
}  // namespace finegemm::jit
