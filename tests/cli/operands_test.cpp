// What run and bench make of operands: those that a GPU quantises wrongly, and what quantisation costs. Layer tests.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/support.h"

namespace finegemm::test {
namespace {

using nlohmann::json;

/// It keeps what is copied to it, but computes nothing.
const std::string kIdleGpu = "FINEGEMM_DRIVER='" FINEGEMM_MOCK_DRIVER "'";
const std::string kGpu = kIdleGpu + " FINEGEMM_MOCK_COMPUTES=1";

#define FINEGEMM_NEED_KERNELS()                            \
    if (!has("pack", kIdleGpu) && !has("nvrtc", kIdleGpu)) \
    GTEST_SKIP() << "this build has no pack and finds no NVRTC: a mock GPU gets no kernels"

TEST(Operands, AGpuThatComputesNothingIsWrong) {
    FINEGEMM_NEED_KERNELS();
    for (const char* product : {"", " --row-b-scales --out-dtype f32", " --groups 3", " --groups 3 --form masked",
                                " --k-groups 2", " --k-groups 2 --layout blocks"}) {
        const Ran ran = finegemm(std::string("run 64 136 256 --repeats 1") + product, kIdleGpu);
        EXPECT_EQ(ran.code, 4) << product << ran.err;
        EXPECT_NE(ran.out.find("device   cuda:0, NVIDIA H200"), std::string::npos) << ran.out;
        EXPECT_NE(ran.out.find("codes and scales are not what the CPU quantises\n"), std::string::npos) << ran.out;
        EXPECT_NE(ran.out.find("\nresult   WRONG"), std::string::npos) << ran.out;
    }
    for (const char* product : {"", " --row-b-scales"}) {
        const Ran ran = finegemm(std::string("bench --shapes 64x136x256 --repeats 1") + product, kIdleGpu);
        EXPECT_EQ(ran.code, 4) << ran.err;
        EXPECT_NE(ran.out.find(" WRONG "), std::string::npos) << ran.out;
    }
}

TEST(Operands, CodesOfAFileAreTheReferenceThemselves) {
    FINEGEMM_NEED_KERNELS();
    const TemporaryDirectory directory;
    write_text(directory / "a.npy", npy("|u1", "64, 256", std::string(64 * 256, '\x38')));
    write_text(directory / "b.npy", npy("|u1", "64, 256", std::string(64 * 256, '\x38')));
    const std::string run = "run --json --a '" + directory / "a.npy" + "' --b '" + directory / "b.npy" + "'";
    const Ran ran = finegemm(run, kIdleGpu);
    EXPECT_EQ(ran.code, 4) << ran.err;
    EXPECT_EQ(json::parse(ran.out).at("error").at("operands_wrong"), 0);
    EXPECT_FALSE(json::parse(ran.out).at("right").get<bool>());
}

TEST(Operands, AGpuThatQuantisesAsTheCpuIsRight) {
    FINEGEMM_NEED_KERNELS();
    for (const char* command : {"run 64 136 256 --repeats 1", "bench --shapes 64x136x256 --repeats 1"}) {
        const Ran ran = finegemm(command, kGpu);
        EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
    }
}

TEST(Operands, WhatBytesWereTakenForIsSaid) {
    const TemporaryDirectory directory;
    write_text(directory / "a.npy", npy("<V1", "8, 128", std::string(8 * 128, '\x38')));
    write_text(directory / "b.npy", npy("<u2", "16, 128", bytes_of(std::vector<uint16_t>(16 * 128, 0x3c00))));
    const std::string run = "run --device cpu --repeats 1 --a '" + directory / "a.npy" + "' --b '" +
                            directory / "b.npy" + "' --out '" + directory / "d.npy" + "'";
    const auto d = [&] {
        float last;
        const std::string written = read_text(directory / "d.npy");
        std::memcpy(&last, &written[written.size() - sizeof last], sizeof last);
        return last;
    };
    const std::string text = finegemm(run).out;
    EXPECT_NE(text.find("--a has '<V1', taken for e4m3 (float8_e4m3fn); --a-dtype says what it is\n"),
              std::string::npos);
    EXPECT_NE(text.find("--b has '<u2', taken for bf16; --b-dtype says what it is\n"), std::string::npos) << text;
    EXPECT_EQ(json::parse(finegemm(run + " --json").out).at("taken_for"), json({{"a", "e4m3"}, {"b", "bf16"}}));
    EXPECT_EQ(d(), 1) << "128 * 2^-7: 0x3c00 as bf16";
    const json said = json::parse(finegemm(run + " --json --a-dtype e4m3 --b-dtype f16").out);
    EXPECT_FALSE(said.contains("taken_for"));
    EXPECT_EQ(d(), 128) << "0x3c00 as f16 is 1";
}

TEST(Operands, WhatQuantisationCostsIsSaidOfGivenValues) {
    const TemporaryDirectory directory;
    std::vector<float> a(128), b(8 * 128);
    a[0] = 448, a[1] = 17;  // a scale of 1, and a tie between 16 and 18
    for (size_t n = 0; n < 8; ++n) b[n * 128 + 1] = 1;
    write_text(directory / "a.npy", npy("<f4", "1, 128", bytes_of(a)));
    write_text(directory / "b.npy", npy("<f4", "8, 128", bytes_of(b)));
    const std::string b_alone = "run --device cpu --repeats 1 --b '" + directory / "b.npy" + "' --a ";
    const std::string run = b_alone + "'" + directory / "a.npy" + "'";
    const json error = json::parse(finegemm(run + " --json").out).at("error");
    EXPECT_LT(error.at("relative_rms"), 1e-6) << "that of the product of the codes";
    EXPECT_NEAR(error.at("of_quantization").get<double>(), 1. / 17, 1e-6);
    EXPECT_NE(finegemm(run).out.find("5.88e-02 relative RMS against A * B^T of the values before quantisation\n"),
              std::string::npos);

    std::string codes(128, '\0');
    codes[1] = '\x38';
    write_text(directory / "codes.npy", npy("|u1", "1, 128", codes));
    write_text(directory / "scales.npy", npy("<f4", "1, 1", bytes_of(std::vector<float>{3})));
    const std::string of_codes = "'" + directory / "codes.npy" + "' --sfa '" + directory / "scales.npy" + "'";
    const json exact = json::parse(finegemm(b_alone + of_codes + " --json").out).at("error");
    EXPECT_EQ(exact.at("of_quantization"), 0) << "codes count with their scales";
    EXPECT_FALSE(json::parse(finegemm("run 8 16 128 --device cpu --json").out).at("error").contains("of_quantization"));

    write_text(directory / "large.npy", npy("<f4", "8, 128", bytes_of(std::vector<float>(8 * 128, 1e38f))));
    const Ran infinite = finegemm("run --a '" + directory / "large.npy" + "' --b '" + directory / "large.npy" + "'");
    EXPECT_EQ(infinite.code, 0) << infinite.err;
    EXPECT_EQ(infinite.out.find("nan"), std::string::npos) << "there is nothing to compare with: " << infinite.out;
}

}  // namespace
}  // namespace finegemm::test
