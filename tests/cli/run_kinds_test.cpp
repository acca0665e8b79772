// run with --row-b-scales and --out-dtype. Layer tests.
#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "cli/files/files.h"
#include "cli/support.h"

namespace finegemm::test {
namespace {

using nlohmann::json;

TEST(RunKinds, GroupsAndBlocksOfScalesHaveDOfOneKind) {
    const std::pair<const char*, const char*> cases[] = {
        {"--dtype bf16 --out-dtype f16", "--out-dtype: is f16, must be bf16 or f32 where a and b are of bf16"},
        {"--row-b-scales --alpha 2", "--affine: is set, but with scales for each row of B D is the product alone"},
        {"--k-groups 1 --beta 2", "--affine: is true, does not belong to groups of K"}};
    for (const auto& [arguments, message] : cases) {
        const Ran ran = finegemm(std::string("run 8 16 128 --device cpu ") + arguments);
        EXPECT_EQ(ran.code, 2) << arguments << '\n' << ran.err;
        EXPECT_NE(ran.err.find(message), std::string::npos) << arguments << '\n' << ran.err;
    }
}

TEST(RunKinds, TakesScalesOfRowsOfB) {
    const std::string run = "run 33 40 144 --device cpu --repeats 1 --row-b-scales";
    for (const char* numerics : {"fast", "exact", "hopper"}) {
        const json out = json::parse(finegemm(run + " --out-dtype f32 --json --numerics " + numerics).out);
        EXPECT_TRUE(out.at("right").get<bool>());
        EXPECT_EQ(out.at("row_b_scales"), true);
        EXPECT_EQ(out.at("out_dtype"), "f32");
        EXPECT_LT(out.at("error").at("relative_rms").get<double>(), 0x1p-12) << "no rounding to bf16";
        constexpr double kBytes = (33 + 40) * 144 + 33 * 40 * 4 + (33 + 40) * 2 * 4;
        EXPECT_NEAR(out.at("gb_per_s").get<double>() * out.at("us").get<double>() * 1e3, kBytes, 1);
    }
    EXPECT_EQ(json::parse(finegemm(run + " --json").out).at("out_dtype"), "bf16");
    const std::string text = finegemm(run + " --out-dtype f32").out;
    EXPECT_NE(text.find("B[40, 144]^T in e4m3, scales 1x128, D in f32\n"), std::string::npos) << text;
    EXPECT_FALSE(json::parse(finegemm("run 8 8 16 --json --device cpu").out).contains("row_b_scales"));
}

TEST(RunKinds, TakesOneScaleForEachRow) {
    for (const char* kind : {"", " --row-b-scales", " --row-b-scales --groups 3", " --groups 3 --form masked"}) {
        const std::string run = "run 33 40 528 --device cpu --repeats 1 --dtype i8 --whole-rows" + std::string(kind);
        const json out = json::parse(finegemm(run + " --json").out);
        EXPECT_TRUE(out.at("right").get<bool>()) << kind;
        EXPECT_EQ(out.at("whole_rows"), true);
    }
    const std::string text = finegemm("run 33 40 528 --device cpu --repeats 1 --whole-rows --row-b-scales").out;
    EXPECT_NE(text.find("in e4m3, scales 1x528, D in bf16\n"), std::string::npos) << text;
    for (const char* kind : {"--dtype bf16", "--b-mx", "--k-groups 2"}) {
        const Ran ran = finegemm(std::string("run 33 40 256 --device cpu --whole-rows ") + kind);
        EXPECT_EQ(ran.code, 2) << kind;
        EXPECT_NE(ran.err.find("--whole-rows: is set, but "), std::string::npos) << ran.err;
    }
}

TEST(RunKinds, HasEachTypeOfDWithScalesOfRowsInEachGrouping) {
    for (const char* grouping : {"", " --groups 2", " --k-groups 2"})
        for (const char* type : {"bf16", "f16", "f32"}) {
            const std::string run = "run 33 40 256 --device cpu --repeats 1 --row-b-scales --json --numerics hopper";
            const Ran ran = finegemm(run + grouping + " --out-dtype " + type);
            ASSERT_EQ(ran.code, 0) << grouping << ", " << type << '\n' << ran.err;
            EXPECT_TRUE(json::parse(ran.out).at("right").get<bool>()) << grouping << ", " << type;
            EXPECT_EQ(json::parse(ran.out).at("out_dtype"), type) << grouping;
        }
}

TEST(RunKinds, MultipliesE5m2ByE4m3) {
    for (const char* arguments :
         {"--dtype e5m2 --dtype-of-b e4m3", "--dtype e5m2 --dtype-of-b e4m3 --groups 2",
          "--dtype-of-b e5m2 --row-b-scales --out-dtype f32", "--dtype e5m2 --dtype-of-b e4m3 --k-groups 2"})
        for (const char* numerics : {"fast", "hopper"}) {
            const std::string run = std::string("run 33 40 256 --device cpu --repeats 1 --json ") + arguments;
            const Ran ran = finegemm(run + " --numerics " + numerics);
            ASSERT_EQ(ran.code, 0) << arguments << '\n' << ran.err;
            EXPECT_TRUE(json::parse(ran.out).at("right").get<bool>()) << arguments << ", " << numerics;
        }
    const std::string text = finegemm("run 33 40 256 --device cpu --repeats 1 --dtype e5m2 --dtype-of-b e4m3").out;
    EXPECT_NE(text.find(" in e5m2 by e4m3, scales 1x128 and 128x128\n"), std::string::npos) << text;
}

TEST(RunKinds, TakesMxScales) {
    for (const char* arguments : {"--a-mx --b-mx", "--b-mx", "--a-mx --b-mx --groups 2 --form masked"})
        for (const char* numerics : {"fast", "exact", "hopper"}) {
            const std::string run = std::string("run 33 40 272 --device cpu --repeats 1 --json ") + arguments;
            const Ran ran = finegemm(run + " --numerics " + numerics);
            ASSERT_EQ(ran.code, 0) << arguments << '\n' << ran.err;
            const json out = json::parse(ran.out);
            EXPECT_TRUE(out.at("right").get<bool>()) << arguments << ", " << numerics;
            EXPECT_TRUE(out.at("b_mx").get<bool>()) << arguments;
        }
    const std::string both = finegemm("run 33 40 256 --device cpu --repeats 1 --a-mx --b-mx").out;
    EXPECT_NE(both.find("B[40, 256]^T in e4m3, scales 1x32\n"), std::string::npos) << both;
    const std::string one = finegemm("run 33 40 256 --device cpu --repeats 1 --b-mx").out;
    EXPECT_NE(one.find("B[40, 256]^T in e4m3, scales 1x128 and 1x32\n"), std::string::npos) << one;
}

TEST(RunKinds, MultipliesIntegers) {
    for (const char* arguments : {"", " --row-b-scales", " --groups 2 --form masked", " --groups 2 --row-b-scales"})
        for (const char* numerics : {"fast", "hopper"}) {
            const std::string run = std::string("run 33 40 256 --device cpu --repeats 1 --json --dtype i8") + arguments;
            const Ran ran = finegemm(run + " --numerics " + numerics);
            ASSERT_EQ(ran.code, 0) << arguments << '\n' << ran.err;
            EXPECT_TRUE(json::parse(ran.out).at("right").get<bool>()) << arguments << ", " << numerics;
        }
    const std::string text = finegemm("run 33 40 256 --device cpu --repeats 1 --dtype i8").out;
    EXPECT_NE(text.find("B[40, 256]^T in i8, scales 1x128 and 128x128\n"), std::string::npos) << text;
    const Ran ran = finegemm("run 33 40 256 --device cpu --dtype i8 --k-groups 2 --out-dtype bf16");
    EXPECT_EQ(ran.code, 2);
    EXPECT_NE(ran.err.find("--dtype: is multiplied in i8 by i8, of which there is no kernel for groups of K"),
              std::string::npos)
        << ran.err;
}

TEST(RunKinds, AddsCAndABias) {
    for (const char* product : {"33 40 144", "33 40 144 --out-dtype f16", "33 40 144 --out-dtype f32 --numerics hopper",
                                "33 40 136 --dtype bf16", "200 40 144 --groups 3 --form masked --out-dtype f16",
                                "200 40 144 --groups 3 --form indices"}) {
        const std::string run =
            std::string("run --device cpu --repeats 1 --json --alpha 0.5 --beta -2 --bias ") + product;
        const json out = json::parse(finegemm(run).out);
        EXPECT_TRUE(out.at("right").get<bool>()) << product;
        EXPECT_EQ(out.at("affine"), json({{"alpha", 0.5}, {"beta", -2}, {"bias", true}})) << product;
    }
    const std::string text = finegemm("run 33 40 144 --device cpu --affine --out-dtype f16").out;
    EXPECT_NE(text.find("scales 1x128 and 128x128, D in f16\naffine   alpha 1, beta 1\n"), std::string::npos) << text;
}

TEST(RunKinds, LeavesAGapInEachHead) {
    for (const char* product : {"33 512 144", "33 512 144 --numerics hopper", "33 512 136 --dtype bf16"}) {
        const std::string run = std::string(
                                    "run --device cpu --repeats 1 --json --head-left 64 --head-gap 24 "
                                    "--head-right 192 ") +
                                product;
        const json out = json::parse(finegemm(run).out);
        EXPECT_TRUE(out.at("right").get<bool>()) << product;
        EXPECT_EQ(out.at("head_gaps"), json({{"head_left", 64}, {"head_gap", 24}, {"head_right", 192}})) << product;
    }
    const std::string text = finegemm("run 33 512 144 --device cpu --head-gaps").out;
    EXPECT_NE(text.find("D[33, 640] = A[33, 144] * B[512, 144]^T"), std::string::npos) << text;
    EXPECT_NE(text.find("\nhead_gaps head_left 128, head_gap 64, head_right 128\n"), std::string::npos) << text;
    const Ran ran = finegemm("run 33 512 144 --device cpu --head-gaps --affine");
    EXPECT_NE(ran.err.find("--head-gaps: is set, but so is affine; leave one of them out"), std::string::npos)
        << ran.err;
}

TEST(RunKinds, QuantisesTheSwigluOfTheHalvesOfN) {
    for (const char* product : {"33 512 144", "33 512 144 --numerics hopper --gate-limit 0.7 --up-offset 1",
                                "200 256 144 --groups 3 --form masked --power-of-two-sfd",
                                "200 256 144 --groups 3 --form indices --bf16-between --numerics exact"}) {
        const Ran ran = finegemm(std::string("run --device cpu --repeats 1 --json --row-weights ") + product);
        ASSERT_EQ(ran.code, 0) << product << '\n' << ran.err;
        const json out = json::parse(ran.out);
        EXPECT_TRUE(out.at("right").get<bool>()) << product;
        EXPECT_EQ(out.at("gated").at("row_weights"), true) << product;
    }
    const std::string text = finegemm("run 33 512 144 --device cpu --gated --bf16-between").out;
    EXPECT_NE(text.find("D[33, 256] = A[33, 144] * B[512, 144]^T"), std::string::npos) << text;
    EXPECT_NE(text.find("\ngated    gate_limit 0, gate_alpha 0, up_offset 0, bf16_between\n"), std::string::npos)
        << text;
}

TEST(RunKinds, FindsRowsByNumbers) {
    for (const char* product :
         {"200 40 144 --groups 3 --rows-of-a", "200 40 144 --groups 3 --rows-of-d --out-dtype f32",
          "200 40 144 --groups 3 --indexed --form prefix-sums --numerics hopper",
          "200 40 144 --groups 3 --rows-of-a --rows-of-d --factors-of-rows --form indices"}) {
        const Ran ran = finegemm(std::string("run --device cpu --repeats 1 --json ") + product);
        ASSERT_EQ(ran.code, 0) << product << '\n' << ran.err;
        const json out = json::parse(ran.out);
        EXPECT_TRUE(out.at("right").get<bool>()) << product;
        EXPECT_TRUE(out.contains("indexed")) << product;
    }
    const Ran bench = finegemm("bench --shapes 64x40x144 --groups 2 --indexed --device cpu --repeats 1");
    EXPECT_EQ(bench.code, 0) << bench.err;
    const Ran ran = finegemm("run 200 40 144 --groups 3 --rows-of-a --form masked --device cpu");
    EXPECT_NE(ran.err.find("--rows-of-a: is given, but groups have matrices of their own"), std::string::npos)
        << ran.err;
}

TEST(RunKinds, TakesScalesOfRowsOfBInGroups) {
    for (const char* form : {"offsets", "indices", "prefix-sums", "masked"}) {
        const json out = json::parse(finegemm(std::string("run 200 40 144 --groups 3 --row-b-scales --device cpu "
                                                          "--repeats 1 --json --numerics hopper --form ") +
                                              form)
                                         .out);
        EXPECT_TRUE(out.at("right").get<bool>()) << form;
        EXPECT_EQ(out.at("row_b_scales"), true) << form;
    }
}

TEST(RunKinds, TakesOperandsStoredByColumns) {
    for (const char* product :
         {"33 40 136 --b-mn-major", "33 40 136 --a-mn-major --b-mn-major", "33 40 136 --a-mn-major --out-dtype f32",
          "200 40 136 --groups 3 --form masked --b-mn-major", "33 40 512 --k-groups 3 --a-mn-major --b-mn-major"}) {
        const Ran ran = finegemm("run --device cpu --repeats 1 --json --dtype bf16 " + std::string(product));
        ASSERT_EQ(ran.code, 0) << product << '\n' << ran.err;
        const json out = json::parse(ran.out);
        EXPECT_TRUE(out.at("right").get<bool>()) << product;
        for (const char* name : {"a_mn_major", "b_mn_major"}) {
            const std::string option = std::string("--") + name[0] + "-mn-major";
            EXPECT_EQ(out.contains(name), std::string(product).find(option) != std::string::npos) << product;
        }
    }
    const std::string text = finegemm("run 8 8 16 --device cpu --dtype f16 --b-mn-major").out;
    EXPECT_NE(text.find("\nstored   B as [K, N]\n"), std::string::npos) << text;
    const Ran ran = finegemm("run 8 8 16 --device cpu --b-mn-major");
    EXPECT_EQ(ran.code, 2);
    EXPECT_NE(ran.err.find("is set, but a and b are of e4m3, must be of bf16 or f16"), std::string::npos) << ran.err;
}

TEST(RunKinds, TakesTypesWithoutScalesInEveryGrouping) {
    for (const char* product : {"33 40 136", "200 40 136 --groups 3", "200 40 136 --groups 3 --form masked",
                                "33 40 512 --k-groups 3", "33 40 512 --k-groups 3 --layout blocks --accumulate"})
        for (const std::string type : {"bf16", "f16"})
            for (const std::string& output : {type, std::string("f32")}) {
                const std::string d = std::string(product).find("accumulate") == std::string::npos ? output : "f32";
                const Ran ran = finegemm("run --device cpu --repeats 1 --json --dtype " + type + " --out-dtype " + d +
                                         " " + product);
                ASSERT_EQ(ran.code, 0) << product << d << '\n' << ran.err;
                const json out = json::parse(ran.out);
                EXPECT_TRUE(out.at("right").get<bool>()) << product << d;
                EXPECT_EQ(out.at("dtype"), type);
            }
    for (const std::string type : {"bf16", "f16"}) {
        const Ran ran = finegemm("run 8 8 16 --device cpu --dtype " + type);
        EXPECT_NE(ran.out.find("^T in " + type + ", D in " + type + "\n"), std::string::npos) << ran.out;
        EXPECT_EQ(finegemm("run 8 8 16 --row-b-scales --device cpu --dtype " + type).code, 2);
    }
}

TEST(RunKinds, WritesDOfEveryTypeToEveryFormat) {
    const TemporaryDirectory directory;
    std::vector<float> x(16 * 128), expected(16 * 16);
    for (size_t i = 0; i < 16; ++i) x[i * 128 + i] = 3, expected[i * 16 + i] = 9;
    write_text(directory / "x.npy", npy("<f4", "16, 128", bytes_of(x)));
    const std::string run = "run --repeats 1 --device cpu --row-b-scales --a '" + directory / "x.npy" + "' --b '" +
                            directory / "x.npy" + "' --out-dtype ";
    for (const char* dtype : {"bf16", "f32"})
        for (const char* file : {"d.npy", "d.safetensors:d"}) {
            const Ran ran = finegemm(run + dtype + " --out '" + directory / file + "'");
            ASSERT_EQ(ran.code, 0) << ran.err;
            const cli::HostMatrix d = cli::read_matrix(cli::name_of_matrix(directory / file));
            const bool narrow = d.dtype == DType::BF16;
            EXPECT_EQ(narrow, dtype == std::string("bf16") && file != std::string("d.npy"));
            for (size_t i = 0; i < expected.size(); ++i) {
                uint32_t bits = 0;
                if (narrow) std::memcpy(reinterpret_cast<char*>(&bits) + 2, &d.bytes[2 * i], 2);
                else std::memcpy(&bits, &d.bytes[4 * i], 4);
                EXPECT_EQ(std::bit_cast<float>(bits), expected[i]) << dtype << ' ' << file << ' ' << i;
            }
        }
}

TEST(RunKinds, AProductBeyondItsTypeIsRightlyInfinite) {
    const TemporaryDirectory directory;
    write_text(directory / "a.npy", npy("<f4", "1, 128", bytes_of(std::vector<float>(128, 1e38f))));
    write_text(directory / "b.npy", npy("<f4", "8, 128", bytes_of(std::vector<float>(8 * 128, 1))));
    const std::string run = "run --device cpu --a '" + directory / "a.npy" + "' --b '" + directory / "b.npy" + "'";
    const Ran ran = finegemm(run);
    EXPECT_EQ(ran.code, 0) << ran.out;
    EXPECT_NE(ran.out.find("\ninfinite 8 of 8 values, as scales or sums beyond the type of D make them\n"),
              std::string::npos)
        << ran.out;
    EXPECT_EQ(json::parse(finegemm(run + " --json").out).at("error").at("inf"), 8);
}

TEST(RunKinds, AnOutputOfAnotherFormatIsInvalid) {
    const Ran ran = finegemm("run 8 16 128 --device cpu --out d.txt");
    EXPECT_EQ(ran.code, 2);
    EXPECT_EQ(ran.err, "finegemm: d.txt: must be FILE.npy or FILE.safetensors:TENSOR\n");
}

}  // namespace
}  // namespace finegemm::test
