// finegemm bench --ep. Layer tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/bench/experts/experts.h"
#include "cli/support.h"

namespace finegemm::test {
namespace {

using nlohmann::json;

TEST(BenchRanks, HasTheLayerItsPartsAndWhatOfMessagesShows) {
    const TemporaryDirectory directory;
    const Ran ran = finegemm("bench --ep --ranks 3 --device cpu --repeats 2 --json --output " + directory / "ep.json" +
                             " --shapes 'moe 5x144x128 6x2'");
    ASSERT_EQ(ran.code, 0) << ran.err;
    const json record = json::parse(ran.out);
    EXPECT_EQ(record, json::parse(read_text(directory / "ep.json")));
    EXPECT_EQ(record.at("ranks"), 3);
    EXPECT_EQ(record.at("machine"), "cpu");
    ASSERT_EQ(record.at("rows").size(), 2u);
    for (const json& row : record.at("rows")) {
        EXPECT_EQ(row.at("line"), "moe 5x144x128 6x2");
        EXPECT_EQ(row.at("capacity"), 16) << "5 tokens choose a rank at most 10 times, and places are whole sixteens";
        EXPECT_TRUE(row.at("right").get<bool>());
        EXPECT_GT(row.at("of_bound").get<double>(), 0.2) << "codes have three bits";
        const json& us = row.at("us");
        for (const char* name : {"layer", "local", "exchange", "memory"})
            EXPECT_GT(us.at(name).get<double>(), 0) << name;
        EXPECT_NEAR(us.at("exposed").get<double>(), us.at("layer").get<double>() - us.at("local").get<double>(), 1e-6);
    }
    EXPECT_EQ(record.at("rows")[0].at("ids"), "even");
    EXPECT_EQ(record.at("rows")[1].at("ids"), "Zipf");
}

TEST(BenchRanks, HasALineForEachLayerAndTwoRanksOnACpu) {
    const Ran ran = finegemm("bench --ep --repeats 1 --shapes 'moe 2x128x128 4x2'");
    ASSERT_EQ(ran.code, 0) << ran.err;
    EXPECT_TRUE(ran.out.starts_with("cpu, 2 ranks: median of 1, of the slowest rank\n")) << ran.out;
    for (const char* line : {"  even  moe 2x128x128 4x2\n", "  Zipf  moe 2x128x128 4x2\n"})
        EXPECT_NE(ran.out.find(line), std::string::npos) << ran.out;
}

TEST(BenchRanks, SaysWhatIsWrong) {
    const std::tuple<const char*, int, const char*> cases[] = {
        {"--ranks 3 --device cpu --shapes 'moe 5x128x128 4x2'", 2, "experts: are 4 over 3 ranks, must be a multiple"},
        {"--device cuda", 3, "--ranks: 2 GPUs are needed and there are 0 to use: "},
        {"--device cuda:1", 2, "--device 'cuda:1': must be auto, cpu or cuda"},
        {"--shapes 8x16x32", 2, "shape '8x16x32': must be like 'moe 64x7168x2048 256x8'"},
        {"--peers", 2, "--peers excludes --ep"},
        {"--dtype bf16", 2, "--dtype excludes --ep"}};
    for (const auto& [arguments, code, sentence] : cases) {
        const Ran ran = finegemm(std::string("bench --ep ") + arguments);
        EXPECT_EQ(ran.code, code) << arguments << '\n' << ran.err;
        EXPECT_NE(ran.err.find(sentence), std::string::npos) << ran.err;
    }
    EXPECT_NE(finegemm("bench --ranks 2").err.find("--ranks requires --ep"), std::string::npos);
}

TEST(BenchRanks, MakesACommunicatorOfGpus) {
    const TemporaryDirectory directory;
    const std::filesystem::path packages = directory / "lib/python3.12/site-packages/nvidia/nccl/lib";
    std::filesystem::create_directories(packages);
    std::filesystem::create_symlink(FINEGEMM_MOCK_NCCL, packages / "libnccl.so.2");
    const std::string machine = "FINEGEMM_DRIVER='" FINEGEMM_MOCK_DRIVER "' VIRTUAL_ENV='" + directory.string() + "'";
    const std::string command = "bench --ep --ranks 1 --device cuda --repeats 2 --shapes 'moe 5x128x128 4x2' --json";
    const Ran ran = finegemm(command, machine);
    if (ran.code == 1 && ran.err.find("NVRTC") != std::string::npos)
        GTEST_SKIP() << "this build has no pack and finds no NVRTC: a mock GPU gets no kernels";
    ASSERT_EQ(ran.code, 4) << "kernels of that GPU do nothing\n" << ran.err;
    const json record = json::parse(ran.out);
    EXPECT_NE(record.at("machine"), "cpu");
    for (const json& row : record.at("rows")) {
        EXPECT_FALSE(row.at("right").get<bool>());
        EXPECT_GT(row.at("us").at("layer").get<double>(), 0);
    }
}

TEST(Choices, AreOfDifferentExpertsAndByZipfsLawOfTheSameFavourites) {
    constexpr int64_t kTokens = 400, kExperts = 32, kChoices = 3;
    const cli::Target cpu{nullptr, "cpu", ""};
    const auto counts_of = [&](uint64_t seed, double zipf) {
        cli::Mirrored ids = cli::mirrored(cpu, DType::I32, kTokens, kChoices);
        cli::Mirrored weights = cli::mirrored(cpu, DType::F32, kTokens, kChoices);
        cli::choose(cpu, ids, weights, kExperts, seed, zipf);
        std::vector<int64_t> counts(kExperts);
        for (int64_t t = 0; t < kTokens; ++t) {
            const int32_t* const chosen = cli::integers(ids) + t * kChoices;
            EXPECT_EQ(std::set<int32_t>(chosen, chosen + kChoices).size(), kChoices);
            for (int64_t c = 0; c < kChoices; ++c) ++counts.at(static_cast<size_t>(chosen[c]));
        }
        return counts;
    };
    const auto favourite = [](const std::vector<int64_t>& counts) {
        return std::ranges::max_element(counts) - counts.begin();
    };
    const std::vector<int64_t> even = counts_of(1, 0), one = counts_of(2, 1), other = counts_of(3, 1);
    EXPECT_LT(std::ranges::max(even), 2 * kTokens * kChoices / kExperts);
    EXPECT_GT(std::ranges::max(one), 5 * kTokens * kChoices / kExperts);
    EXPECT_NE(one, other);
    EXPECT_EQ(favourite(one), favourite(other));
}

}  // namespace
}  // namespace finegemm::test
