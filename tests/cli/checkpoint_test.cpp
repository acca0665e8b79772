// Weights and scales as published checkpoints have them. Layer tests.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include <fmt/format.h>

#include "cli/files/checkpoint.h"
#include "cli/support.h"
#include "support/error_of.h"
#include "workbench/accuracy.h"

namespace finegemm::test {

using namespace finegemm::cli;

namespace {

constexpr int64_t kN = 200, kK = 272;  // [2, 3] blocks, of which the last ones are not full

struct Tensor {
    std::string name, dtype, shape, data;
};

std::string file_of(const std::vector<Tensor>& tensors) {
    std::string header, data;
    for (const Tensor& t : tensors) {
        header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", header.empty() ? "" : ",",
                              t.name, t.dtype, t.shape, data.size(), data.size() + t.data.size());
        data += t.data;
    }
    return safetensors("{" + header + "}", data);
}

const Tensor kCodes{"w.weight", "F8_E4M3", "[200, 272]", std::string(kN* kK, '\x38')};

Weights weights_with(const Tensor& scales, const std::string& name = "w.weight") {
    const TemporaryDirectory directory;
    write_text(directory / "m.safetensors", file_of({kCodes, scales}));
    return read_weights(name_of_weights(directory / "m.safetensors:" + name));
}

std::vector<float> values_of(const HostMatrix& m) {
    std::vector<float> values;
    for (int64_t r = 0; r < m.rows; ++r)
        for (int64_t c = 0; c < m.cols; ++c) values.push_back(element_of(m.view(), r, c));
    return values;
}

std::string repeated(const std::string& data, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += data;
    return all;
}

}  // namespace

TEST(Checkpoint, HasScalesOfBlocksInEveryTypeThatIsPublished) {
    const std::vector<float> expected{0.5, 1, 2, 4, 8, 16};
    const std::pair<const char*, std::string> types[] = {
        {"F32", bytes_of(expected)},
        {"BF16", bytes_of(std::vector<uint16_t>{0x3f00, 0x3f80, 0x4000, 0x4080, 0x4100, 0x4180})},
        {"F16", bytes_of(std::vector<uint16_t>{0x3800, 0x3c00, 0x4000, 0x4400, 0x4800, 0x4c00})},
        {"F8_E8M0", "\x7e\x7f\x80\x81\x82\x83"},
        {"U8", "\x7e\x7f\x80\x81\x82\x83"}};
    for (const auto& [dtype, data] : types)
        for (const char* name : {"w.weight_scale_inv", "w.weight_scale", "w.scale"}) {
            const Weights w = weights_with({name, dtype, "[2, 3]", data});
            ASSERT_TRUE(w.scales) << dtype;
            EXPECT_EQ(w.scales->rows, 2);
            EXPECT_EQ(values_of(*w.scales), expected) << dtype;
            EXPECT_EQ(w.found, fmt::format("{}, {} [2, 3] for 128x128 blocks", name, dtype));
        }
}

TEST(Checkpoint, HasScalesForRowsAndForTheTensor) {
    const std::string ones = bytes_of(std::vector<float>(kN, 1)), three = bytes_of(std::vector<float>{3});
    for (const char* shape : {"[200]", "[200, 1]"}) {
        const Weights w = weights_with({"w.weight_scale", "F32", shape, ones});
        EXPECT_EQ(values_of(w.scales.value()), std::vector<float>(kN * 3, 1));
        EXPECT_EQ(w.found, fmt::format("w.weight_scale, F32 {} for rows", shape));
    }
    for (const char* shape : {"[]", "[1]", "[1, 1]"}) {
        const Weights w = weights_with({"w.weight_scale", "F32", shape, three});
        EXPECT_EQ(values_of(w.scales.value()), std::vector<float>(6, 3));
        EXPECT_EQ(w.found, fmt::format("w.weight_scale, F32 {} for the tensor", shape));
    }
    const Weights fine = weights_with({"w.weight_scale", "F32", "[200, 3]", repeated(ones, 3)});
    EXPECT_EQ(fine.scales->rows, kN);
    EXPECT_TRUE(fine.found.ends_with("for 1x128 blocks")) << fine.found;
}

TEST(Checkpoint, ExponentsOfE8m0ReachFromSubnormalToNan) {
    const std::vector<float> scales = values_of(
        weights_with({"w.scale", "F8_E8M0", "[2, 3]", std::string("\0\x01\xfe\xff\x7f\x7f", 6)}).scales.value());
    EXPECT_EQ(scales[0], std::ldexp(1.0f, -127));
    EXPECT_EQ(scales[2], std::ldexp(1.0f, 127));
    EXPECT_TRUE(std::isnan(scales[3]));
}

TEST(Checkpoint, WithoutScalesSaysSo) {
    const Weights w = weights_with({"v.weight_scale_inv", "F32", "[2, 3]", std::string(24, '\0')});
    EXPECT_FALSE(w.scales);
    EXPECT_EQ(w.found, "no w.weight_scale_inv or w.weight_scale or w.scale: scales of 1");
}

TEST(Checkpoint, NameMayLeaveWeightOut) {
    const Tensor scales{"w.weight_scale_inv", "F32", "[2, 3]", std::string(24, '\0')};
    EXPECT_TRUE(weights_with(scales, "w").scales);
    const Error e = error_of([&] { weights_with(scales, "x"); });
    EXPECT_EQ(e.code(), Errc::Io);
    EXPECT_NE(std::string(e.what()).find("has no tensor 'x'; it has: w.weight, w.weight_scale_inv"), std::string::npos);
}

TEST(Checkpoint, PartsHaveTheirRowsOfScales) {
    const std::string scales = bytes_of(std::vector<float>{0.5, 1, 2, 4, 8, 16});
    const auto part = [&](const char* name) { return weights_with({"w.scale", "F32", "[2, 3]", scales}, name); };
    const Weights inside = part("w[100:150]");
    EXPECT_EQ(inside.values.rows, 50);
    ASSERT_EQ(inside.scales->rows, 50);
    EXPECT_EQ(element_of(inside.scales->view(), 27, 0), 0.5) << "row 127";
    EXPECT_EQ(element_of(inside.scales->view(), 28, 2), 16) << "row 128";
    const Weights blocks = part("w.weight[128:,128:200]");
    EXPECT_EQ(blocks.values.rows, 72);
    EXPECT_EQ(blocks.values.cols, 72);
    EXPECT_EQ(values_of(*blocks.scales), std::vector<float>{8});
    EXPECT_EQ(values_of(*part("w[:128]").scales), (std::vector<float>{0.5, 1, 2}));
}

TEST(Checkpoint, PartIsCutOutOfItsRowsAndColumns) {
    const TemporaryDirectory directory;
    std::vector<float> x(12);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
    write_text(directory / "m.safetensors", file_of({{"w", "F32", "[3, 4]", bytes_of(x)}}));
    EXPECT_EQ(values_of(read_weights(name_of_weights(directory / "m.safetensors:w[1:3,1:3]")).values),
              (std::vector<float>{5, 6, 9, 10}));
}

TEST(Checkpoint, PartsThatAreNoneAreErrors) {
    const std::pair<const char*, Errc> cases[] = {{"w[5]", Errc::InvalidArgument},
                                                  {"w[]", Errc::InvalidArgument},
                                                  {"w[3:2]", Errc::InvalidArgument},
                                                  {"w[-1:]", Errc::InvalidArgument},
                                                  {"w[0:1,x:]", Errc::InvalidArgument},
                                                  {"w[0:201]", Errc::Io},
                                                  {"w[200:]", Errc::Io},
                                                  {"w[5:5]", Errc::Io},
                                                  {"w[:,64:]", Errc::Io},
                                                  {"w[:,9999999999999999999:]", Errc::InvalidArgument}};
    for (const auto& [name, code] : cases) {
        const Error e =
            error_of([&, name = name] { weights_with({"w.scale", "F32", "[2, 3]", std::string(24, '\0')}, name); });
        EXPECT_EQ(e.code(), code) << name << ": " << e.what();
    }
}

TEST(Checkpoint, ScalesOfNoKnownFormAreAnErrorThatSaysWhichThereAre) {
    const std::pair<Tensor, const char*> cases[] = {
        {{"w.scale", "F32", "[3]", std::string(12, '\0')},
         "'w.scale' has shape [3], must be [], [200], [200, 1], [2, 3]"},
        {{"w.scale", "F32", "[4, 5]", std::string(80, '\0')}, "'w.scale' has shape [4, 5], must be []"},
        {{"w.scale", "I32", "[2, 3]", std::string(24, '\0')}, "'w.scale' has dtype I32, scales must be F32, BF16"},
        {{"w.scale", "F32", "[2, 3]", std::string(20, '\0')}, "'w.scale' has 20 bytes"},
        {{"w.scale", "F32", "[-1, 3]", ""}, "which is none of scales"},
        {{"w.scale", "F32", "[9223372036854775807, 9223372036854775807]", ""}, "which is none of scales"}};
    for (const auto& [scales, message] : cases) {
        const Error e = error_of([&] { weights_with(scales); });
        EXPECT_EQ(e.code(), Errc::Io);
        EXPECT_NE(std::string(e.what()).find(message), std::string::npos) << e.what();
    }
}

TEST(Checkpoint, OfAFolderIsReadThroughItsIndex) {
    const TemporaryDirectory folder;
    write_text(folder / "a.safetensors", file_of({kCodes}));
    write_text(folder / "b.safetensors", file_of({{"w.weight_scale_inv", "BF16", "[2, 3]", repeated("\x80\x3f", 6)}}));
    write_text(folder / "model.safetensors.index.json",
               R"({"metadata":{},"weight_map":{"w.weight":"a.safetensors","w.weight_scale_inv":"b.safetensors"}})");
    const Weights w = read_weights(name_of_weights(folder.string() + ":w"));
    EXPECT_EQ(values_of(w.scales.value()), std::vector<float>(6, 1));
    const Error e = error_of([&] { read_weights(name_of_weights(folder.string() + ":x")); });
    EXPECT_NE(std::string(e.what()).find("model.safetensors.index.json: has no tensor 'x'"), std::string::npos);

    const TemporaryDirectory whole;
    write_text(whole / "model.safetensors", file_of({kCodes}));
    EXPECT_EQ(read_weights(name_of_weights(whole.string() + ":w.weight")).values.rows, kN);
}

TEST(Checkpoint, IndexLeadsToNoFileOutsideOfItsFolder) {
    for (const char* shard : {"../a.safetensors", "/etc/passwd", "", "..", ".", R"(a\u0000b)"}) {
        const std::string index = fmt::format(R"({{"weight_map":{{"w":"{}"}}}})", shard);
        EXPECT_EQ(error_of([&] { shard_of("i", index, "w"); }).code(), Errc::Io) << shard;
    }
}

TEST(Checkpoint, DamagedIndexIsAnErrorOrAnotherIndex) {
    const std::string index = R"({"metadata":{"n":1},"weight_map":{"w":"a.safetensors","v":"b.safetensors"}})";
    EXPECT_EQ(shard_of("i", index, "w"), "a.safetensors");
    EXPECT_EQ(shard_of("i", index, "x"), "");
    std::mt19937 random(13);
    for (int round = 0; round < 20000; ++round) {
        std::string changed = index;
        for (auto edits = 1 + random() % 3; edits > 0; --edits) {
            const size_t at = random() % changed.size();
            if (random() % 2) changed[at] = static_cast<char>(random());
            else changed.erase(at, 1 + random() % 8);
            if (changed.empty()) break;
        }
        try {
            ASSERT_EQ(shard_of("i", changed, "w").find('/'), std::string::npos) << changed;
        } catch (const Error& e) {
            ASSERT_EQ(e.code(), Errc::Io) << changed;
        }
    }
}

TEST(Checkpoint, RunsWithItsScalesAndSaysWhatItFound) {
    const TemporaryDirectory directory;
    const std::string scales = bytes_of(std::vector<uint16_t>{0x4000, 0x4000, 0x4000, 0x4000, 0x4000, 0x4000});  // 2
    write_text(directory / "m.safetensors", file_of({kCodes, {"w.weight_scale_inv", "BF16", "[2, 3]", scales}}));
    write_text(directory / "a.npy", npy("<f4", "1, 272", bytes_of(std::vector<float>(272, 1))));
    const std::string run = "run --device cpu --repeats 1 --a '" + directory / "a.npy" + "' --b '" +
                            directory / "m.safetensors:w" + "' --out '" + directory / "d.npy" + "'";
    const Ran ran = finegemm(run);
    ASSERT_EQ(ran.code, 0) << ran.err;
    EXPECT_NE(ran.out.find("         --b has w.weight_scale_inv, BF16 [2, 3] for 128x128 blocks\n"), std::string::npos);
    float last = 0;
    const std::string d = read_text(directory / "d.npy");
    std::memcpy(&last, &d[d.size() - sizeof last], sizeof last);
    EXPECT_EQ(last, 544) << "272 products of 1 and 1, times 2";
    const Ran json = finegemm(run + " --json");
    EXPECT_EQ(nlohmann::json::parse(json.out).at("found").at("b"),
              "w.weight_scale_inv, BF16 [2, 3] for 128x128 blocks");
}

TEST(Checkpoint, RowScalesOfWeightsAreTakenByEitherSide) {
    const TemporaryDirectory directory;
    write_text(directory / "m.safetensors",
               file_of({kCodes,
                        {"w.weight_scale", "F32", "[200, 1]", bytes_of(std::vector<float>(kN, 2))},
                        {"v.weight", "F8_E4M3", "[200, 272]", kCodes.data},
                        {"v.weight_scale", "F32", "[]", bytes_of(std::vector<float>{2})}}));
    for (const char* sides : {"vw", "wv", "ww", "vv"}) {
        const Ran ran = finegemm(fmt::format("run --device cpu --repeats 1 --json --a '{0}:{1}' --b '{0}:{2}'",
                                             directory / "m.safetensors", sides[0], sides[1]));
        ASSERT_EQ(ran.code, 0) << ran.err;
        EXPECT_EQ(nlohmann::json::parse(ran.out).value("row_b_scales", false), sides[1] == 'w') << sides;
    }
}

}  // namespace finegemm::test
