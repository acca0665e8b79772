// finegemm bench beside cuBLASLt, on mocks that compute; its record; the shapes of --table models. Layer tests.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "cli/bench/bench_record.h"
#include "cli/bench/comparison.h"
#include "cli/bench/model_layers.h"
#include "cli/bench/shapes.h"
#include "cli/support.h"

namespace finegemm::test {
namespace {

using namespace cli;
using nlohmann::json;

/// A GPU that computes, with NVML; kernels come from the pack.
const std::string kMachine =
    "FINEGEMM_DRIVER='" FINEGEMM_MOCK_DRIVER "' FINEGEMM_MOCK_COMPUTES=1 LD_LIBRARY_PATH='" FINEGEMM_MOCK_NVML_DIR "' ";
const std::string kPeers = "bench --repeats 2 --peers --cublaslt '" FINEGEMM_MOCK_CUBLASLT "' ";

/// Skips where a mock GPU gets no kernels.
#define FINEGEMM_NEED_KERNELS()                                                                              \
    if (finegemm("bench --shapes 8x16x128 --repeats 1", kMachine).err.find("no NVRTC") != std::string::npos) \
    GTEST_SKIP() << "this build has no pack and finds no NVRTC: a mock GPU gets no kernels"

/// The text with KERNEL for each kernel's name, which depends on the planner.
std::string without_kernels(std::string text) {
    for (size_t at = 0; (at = text.find("  m64", at)) != std::string::npos;)
        text.replace(at, text.find('\n', at) - at, "  KERNEL");
    return text;
}

TEST(BenchPeers, ShowsEachTimeAndEachGapWithItsReason) {
    FINEGEMM_NEED_KERNELS();
    const Ran ran = finegemm(kPeers + "--shapes 4x128x256,5x128x256,8x136x400", kMachine);
    EXPECT_EQ(ran.code, 0) << ran.err;
    expect_golden("bench_peers", without_kernels(ran.out));
}

TEST(BenchPeers, RecordHasTimesErrorsGapsAndWhatTheGpuDid) {
    FINEGEMM_NEED_KERNELS();
    const TemporaryDirectory directory;
    const Ran ran = finegemm(
        kPeers + "--shapes 8x128x400,5x128x256 --commit abc --output '" + directory / "r.json" + "'", kMachine);
    ASSERT_EQ(ran.code, 0) << ran.err;
    const json record = json::parse(read_text(directory / "r.json"));
    EXPECT_EQ(record.at("machine").at("name"), "NVIDIA H200");
    EXPECT_EQ(record.at("machine").at("driver_version"), "580.00.01");
    EXPECT_EQ(record.at("cublaslt"), "13.0.2");
    EXPECT_EQ(record.at("commit"), "abc");
    EXPECT_EQ(record.at("baselines_us").at("no launch"), 0);
    EXPECT_FALSE(record.contains("ceilings_us")) << "nobody asked for them";
    const json& row = record.at("rows").at(0);
    EXPECT_EQ(row.at("problem"), "gemm 8x128x400 e4m3:row128 e4m3:block128 bf16");
    EXPECT_EQ(row.at("us"), json({{"finegemm", 1000}, {"cublas_tensor", 2000}, {"cublas_block", 3000}}));
    EXPECT_GT(row.at("error").at("finegemm"), 0);
    EXPECT_LE(row.at("error").at("finegemm"), 1);
    EXPECT_LE(row.at("error").at("cublas_block"), 0x1p-7);
    EXPECT_EQ(row.at("after").at("sm_mhz"), 1755);
    EXPECT_EQ(row.at("after").at("power_w"), 512);
    EXPECT_TRUE(row.at("after").at("celsius").is_null()) << "this NVML does not say";
    EXPECT_EQ(row.at("after").at("slowed_by"), json({"SW power cap"}));
    EXPECT_FALSE(record.at("rows").at(1).at("us").contains("cublas_block"));
    EXPECT_NE(record.at("rows").at(1).at("gaps").at("cublas_block").get<std::string>().find("M is 5"),
              std::string::npos);
}

TEST(BenchPeers, AWrongResultOfAPeerHasNoTime) {
    FINEGEMM_NEED_KERNELS();
    const Ran ran = finegemm(kPeers + "--json --shapes 8x128x256", kMachine + "FINEGEMM_MOCK_CUBLASLT=wrong");
    EXPECT_EQ(ran.code, 0) << ran.err;
    const json row = json::parse(ran.out).at("rows").at(0);
    EXPECT_FALSE(row.at("us").contains("cublas_block"));
    EXPECT_NEAR(row.at("error").at("cublas_block").get<double>(), 1, 1e-2) << "twice the value";
    EXPECT_NE(row.at("gaps").at("cublas_block").get<std::string>().find("differs from FineGEMM's"), std::string::npos);
}

TEST(BenchPeers, AWrongResultOfOursHasItsOwnExitCode) {
    FINEGEMM_NEED_KERNELS();
    const Ran ran =
        finegemm("bench --repeats 1 --json --shapes 8x128x256", "FINEGEMM_DRIVER='" FINEGEMM_MOCK_DRIVER "'");
    EXPECT_EQ(ran.code, 4) << ran.err;
    const json record = json::parse(ran.out);
    EXPECT_TRUE(record.at("rows").at(0).at("us").empty());
    EXPECT_NE(record.at("machine").at("note").get<std::string>().find("no NVML"), std::string::npos);
}

TEST(BenchPeers, NeedAGpuAndCublasLt) {
    const Ran without = finegemm("bench --peers");
    EXPECT_EQ(without.code, 3);
    EXPECT_NE(without.err.find("--peers needs a GPU"), std::string::npos) << without.err;
    if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL))
        GTEST_SKIP() << "this machine has a driver, so its own cuBLASLt may be found, which cannot use a mock GPU";
    const Ran unfound = finegemm("bench --peers --cublaslt '" FINEGEMM_MOCK_DRIVER "'", kMachine);
    EXPECT_EQ(unfound.code, 3);
    EXPECT_NE(unfound.err.find("no cuBLASLt found"), std::string::npos) << unfound.err;
}

TEST(BenchRecord, SaysWhichKindOfProductIsTimed) {
    for (const auto* type : {"bf16", "f32"}) {
        const std::string kind = std::string("--row-b-scales --out-dtype ") + type;
        const Ran ran = finegemm("bench --device cpu --repeats 1 --json --shapes 20x136x400 " + kind);
        ASSERT_EQ(ran.code, 0) << ran.err;
        const json record = json::parse(ran.out), row = record.at("rows").at(0);
        EXPECT_EQ(record.at("shapes"), "--shapes " + kind);
        EXPECT_EQ(row.at("kind"), "dense");
        EXPECT_EQ(row.at("row_b_scales"), true);
        EXPECT_EQ(row.at("out_dtype"), type);
        EXPECT_LE(row.at("error").at("finegemm").get<double>(), 1);
    }
    EXPECT_NE(
        finegemm("bench --device cpu --dtype f16 --out-dtype bf16 --shapes 1x8x16").err.find("--out-dtype: is bf16"),
        std::string::npos);
}

TEST(BenchPeers, AreOfScalesOfBlocksAlone) {
    const Ran ran = finegemm("bench --peers --row-b-scales --shapes 8x16x128");
    EXPECT_NE(ran.code, 0);
    EXPECT_NE(ran.err.find("--row-b-scales excludes --peers"), std::string::npos) << ran.err;
}

TEST(BenchOnAGpu, NamesTheKernelThatOverwritesAGradientInF32) {
    FINEGEMM_NEED_KERNELS();
    const Ran ran = finegemm("bench --repeats 1 --json --shapes 40x136x400 --row-b-scales --out-dtype f32", kMachine);
    ASSERT_EQ(ran.code, 0) << ran.err;
    const json row = json::parse(ran.out).at("rows").at(0);
    EXPECT_TRUE(row.at("kernel").get<std::string>().ends_with("_1d1d_f32")) << row;
    EXPECT_FALSE(row.contains("gaps")) << row;
}

TEST(BenchRecord, AFileThatCannotBeWrittenIsKnownBeforeTheFirstRow) {
    const Ran ran = finegemm("bench --output /nonexistent/r.json");
    EXPECT_EQ(ran.code, 1);
    EXPECT_NE(ran.err.find("/nonexistent/r.json: cannot be written"), std::string::npos) << ran.err;
}

TEST(BenchRecord, ItsShapesCanBeTimedAgain) {
    const TemporaryDirectory directory;
    const std::string file = "'" + directory / "r.json" + "'";
    ASSERT_EQ(finegemm("bench --repeats 1 --shapes 8x16x128,1x64x256 --output " + file).code, 0);
    const Ran again = finegemm("bench --repeats 1 --json --file " + file);
    ASSERT_EQ(again.code, 0) << again.err;
    EXPECT_EQ(json::parse(again.out).at("rows").at(1).at("shape"), json({1, 64, 256}));
}

TEST(AllowedDifference, GrowsWithKOnlyWhereAllOfKStaysInTheTensorCore) {
    EXPECT_EQ(allowed_difference(cublaslt::Mode::Block, 256), allowed_difference(cublaslt::Mode::Block, 16384));
    EXPECT_EQ(allowed_difference(cublaslt::Mode::Tensor, 32) + 1 * 0x1p-13,
              allowed_difference(cublaslt::Mode::Tensor, 64));
    EXPECT_LT(allowed_difference(cublaslt::Mode::Tensor, 18432), 0.1) << "another product's is above 1";
}

TEST(ModelsTable, HasAtLeast300ShapesThatFineGemmTakes) {
    for (const uint64_t seed : {1, 2, 77}) {
        const auto shapes = models_table(seed);
        EXPECT_EQ(shapes.size(), 417u) << "as --help says";
        for (const Shape& s : shapes) {
            EXPECT_TRUE(s.m >= 1 && s.m <= 8192) << text_of(s);
            EXPECT_TRUE(s.n >= 64 && s.n <= 36864 && s.n % 8 == 0) << text_of(s);
            EXPECT_TRUE(s.k >= 256 && s.k <= 18432 && s.k % 16 == 0) << text_of(s);
        }
    }
}

TEST(ModelsTable, HasEveryKindOfShape) {
    const auto shapes = models_table(1);
    const auto count = [&](auto kind) { return std::count_if(shapes.begin(), shapes.end(), kind); };
    EXPECT_GE(count([](const Shape& s) { return s.m % 2 != 0; }), 30);
    EXPECT_GE(count([](const Shape& s) { return s.n % 16 == 8; }), 30);
    EXPECT_GE(count([](const Shape& s) { return s.k % 128 != 0; }), 30);
    EXPECT_GE(count([](const Shape& s) { return !source_of(s).empty(); }), 300);
    EXPECT_GE(count([](const Shape& s) { return s.m > 4096; }), 20);
    EXPECT_GE(count([](const Shape& s) { return s.m <= 16; }), 20);
}

TEST(ModelsTable, IsDrawnByItsSeedAlone) {
    const auto texts = [](uint64_t seed) {
        std::vector<std::string> all;
        for (const Shape& s : models_table(seed)) all.push_back(text_of(s));
        return all;
    };
    EXPECT_EQ(texts(1), texts(1));
    EXPECT_NE(texts(1), texts(2));
    EXPECT_EQ(texts(1).front(), "41x2112x7168") << "records name the seed: another engine would make them lie";
}

TEST(ModelLayers, AreEachThereOnce) {
    std::set<std::pair<int64_t, int64_t>> seen;
    for (const ModelLayer& layer : model_layers()) {
        EXPECT_TRUE(seen.emplace(layer.n, layer.k).second) << layer.models << ": " << layer.n << " x " << layer.k;
        EXPECT_EQ(source_of({1, layer.n, layer.k}), layer.models);
    }
    EXPECT_EQ(source_of({1, 8, 16}), "");
}

}  // namespace
}  // namespace finegemm::test
