// The planner: rules, names, choices.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include <finegemm/error.h>
#include <finegemm/gemm/arithmetic.h>
#include <finegemm/gemm/kernel_plan.h>
#include <finegemm/gemm/schedule.h>

#include "plan/plan.h"
#include "support/error_of.h"
#include "support/slowdown.h"

namespace finegemm::plan {
namespace {

const DeviceSpec& h200() { return *find_device("h200"); }

bool is_candidate(const GemmConfig& c) {
    for (const GemmConfig& candidate : candidates(kind_of(c)))
        if (candidate == c) return true;
    return false;
}

/// Candidates of all kinds of GEMMs.
std::vector<GemmConfig> all_candidates() {
    std::vector<GemmConfig> all;
    for (const Operand& b : {kBlockScaled, kRowScaled})
        for (const Output output : {Output::BF16, Output::F32, Output::F16})
            for (const GemmConfig& c : candidates({.b = b, .output = output})) all.push_back(c);
    return all;
}

/// A gradient of weights, added to.
constexpr Problem gradient(uint32_t m, uint32_t n, uint32_t k) {
    return {.m = m, .n = n, .k = k, .b = kRowScaled, .d = {DType::F32, true}};
}

TEST(Candidates, AreDifferentKernelsWithDifferentNamesThatLeadBack) {
    std::set<std::string> names;
    for (const GemmConfig& c : all_candidates()) {
        EXPECT_TRUE(names.insert(name_of(c)).second) << name_of(c);
        EXPECT_EQ(config_named(name_of(c)), c);
        for (const char letter : name_of(c)) EXPECT_TRUE(std::isalnum(letter) || letter == '_') << name_of(c);
    }
}

TEST(Candidates, FitAnH200) {
    for (const GemmConfig& c : all_candidates()) {
        EXPECT_LE(kernel_plan(c).smem.total, h200().smem_bytes) << name_of(c);
        EXPECT_LE(c.ctas_per_sm * (kernel_plan(c).smem.total + kReservedShared), h200().smem_per_sm) << name_of(c);
        // A segment of eight columns is stored by itself; where ranks share columns, or stmatrix stores all, there is
        // none.
        const bool segments_of_eight = c.k_splits() == 1 && (!c.row_b_scales() || c.output == Output::F32);
        EXPECT_EQ(c.tile_n % (segments_of_eight ? 8 : 16), 0u) << name_of(c);
        EXPECT_EQ(cols_before_segment(c, kMaxSegments), c.tile_n) << name_of(c) << ": more segments than there may be";
        EXPECT_EQ(c.rows_per_warpgroup() % 64, 0u) << name_of(c);
        EXPECT_LE(c.cluster, 8u) << name_of(c);
    }
}

TEST(Candidates, HaveRatesAndNothingElseHas) {
    for (const GemmConfig& c : all_candidates()) {
        EXPECT_GT(rates(c).block, 0);
        EXPECT_LE(rates(c).block_alone, rates(c).block) << name_of(c) << ": a CTA alone on an SM cannot be slower";
    }
    EXPECT_THROW(rates(GemmConfig{.tile_n = 48}), Error);
}

TEST(Candidates, AreOfTheKindThatIsAskedFor) {
    EXPECT_TRUE(candidates({.output = Output::F32}).empty());
    for (const Output output : {Output::BF16, Output::F32}) {
        EXPECT_FALSE(candidates({.b = kRowScaled, .output = output}).empty());
        for (const GemmConfig& c : candidates({.b = kRowScaled, .output = output})) {
            EXPECT_TRUE(c.row_b_scales() && c.output == output) << name_of(c);
            EXPECT_NE(name_of(c).find(output == Output::F32 ? "_1d1d_f32" : "_1d1d"), std::string::npos) << name_of(c);
        }
    }
    for (const GemmConfig& c : candidates()) EXPECT_TRUE(!c.row_b_scales() && c.output == Output::BF16) << name_of(c);
}

TEST(Names, OfUnknownKernelsAreRejectedWithAHint) {
    try {
        config_named("m1n1");
        FAIL();
    } catch (const Error& e) {
        EXPECT_EQ(e.code(), Errc::InvalidArgument);
        EXPECT_NE(std::string(e.what()).find("finegemm explain"), std::string::npos) << e.what();
    }
}

TEST(Rules, EachRejectsSomething) {
    const GemmConfig plain = config_named("m128n128s6w2");
    const auto with = [&](auto change) {
        GemmConfig c = plain;
        change(c);
        return c;
    };
    const Problem big{4096, 4096, 4096};
    const struct {
        Problem problem;
        GemmConfig config;
        std::string_view why_not;
    } cases[] = {
        {big, with([](GemmConfig& c) { c.stages = 7; }), "needs more shared memory than a CTA can have"},
        {big, with([](GemmConfig& c) { c.ctas_per_sm = 2; }),
         "needs more shared memory than its CTAs on one SM can have"},
        {{64, 4096, 128}, config_named("m64n32s7w1_splitK3_x2"), "splits K finer than 128"},
        {{64, 4096, 128}, config_named("m64n64s12w2"), "splits K finer than 128"},
        {{64, 4096, 384}, config_named("m64n32s7w1_splitK5_x2"), "splits K finer than 128"},
        {{4096, 100, 4096}, config_named("m256n128s4w2_shareA2"), "shares operands between more tiles than there are"},
        {{64, 4096, 4096}, plain, "a tile of half as many rows holds all of M"},
        {{(1u << 31) + 1, 128, 128}, plain, "takes no extent above 2^31"},
        {{128, 128, 0xfffffff0u}, plain, "takes no extent above 2^31"},
        {{1u << 31, 1u << 31, 128}, plain, "makes more tiles than a grid can index"},
        {gradient(4096, 4096, 4096), plain, "takes scales of B for other blocks"},
        {gradient(4096, 4096, 4096), config_named("m128n128s5w2_1d1d"), "writes D in another type"},
    };
    for (const auto& c : cases) EXPECT_EQ(rejected(c.problem, h200(), c.config), c.why_not);
    EXPECT_EQ(rejected(big, h200(), plain), "");
}

TEST(Choice, IsLegalAndInTheCandidatesForAnyProblem) {
    std::mt19937_64 random(7);
    const auto extent = [&](int bits, uint32_t unit) {
        return static_cast<uint32_t>((random() % (1ull << (random() % bits)) + 1) * unit);
    };
    for (int i = 0; i < 20000; ++i) {
        const Problem p{extent(22, 1), extent(18, 8), extent(17, 16)};
        const Choice choice = choose(p, h200());
        EXPECT_TRUE(is_candidate(choice.config));
        EXPECT_EQ(rejected(p, h200(), choice.config), "");
        EXPECT_EQ(choose(p, h200()), choice) << "the same problem, the same kernel";
    }
}

TEST(Choice, OfGradientsIsAKernelForThem) {
    for (const uint32_t m : {1u, 64u, 576u, 4096u, 1u << 31})
        for (const Output output : {Output::BF16, Output::F32}) {
            Problem p = gradient(m, 4096, 7168);
            p.d.element = output == Output::F32 ? DType::F32 : DType::BF16;
            const GemmConfig c = choose(p, h200()).config;
            EXPECT_TRUE(is_candidate(c) && c.row_b_scales() && c.output == output) << name_of(c);
            EXPECT_EQ(nlohmann::json::parse(explain(p, h200()))["chosen"]["name"], name_of(c));
        }
}

TEST(Choice, ExistsForExtremeShapes) {
    constexpr uint32_t kMost = 1u << 31;
    for (const Problem& p :
         {Problem{1, 8, 16}, {kMost, 8, 16}, {kMost, 8192, 16}, {1, kMost, 16}, {1, 8, kMost}, {kMost, 8, kMost}})
        EXPECT_TRUE(is_candidate(choose(p, h200()).config)) << p.m << "x" << p.n << "x" << p.k;
}

TEST(Choice, ExistsForEveryKnownDevice) {
    for (const char* name : {"h200", "h100", "gh200", "h800", "h20"}) {
        ASSERT_NE(find_device(name), nullptr) << name;
        for (const uint32_t m : {1u, 128u, 4096u})
            EXPECT_TRUE(is_candidate(choose({m, 2112, 7168}, *find_device(name)).config)) << name;
    }
    EXPECT_EQ(find_device("a100"), nullptr);
}

TEST(Choice, TakesLessThanATenthOfAMillisecond) {
    constexpr uint32_t kCalls = 200, kBatches = 5;  // the fastest batch counts: other programs share the caches
    uint32_t sum = 0, m = 0;
    double fastest = INFINITY;
    for (uint32_t batch = 0; batch < kBatches; ++batch) {
        const std::clock_t begin = std::clock();  // of this process
        for (uint32_t i = 0; i < kCalls; ++i) sum += choose({++m, 2112, 7168}, h200()).config.tile_n;
        fastest = std::min(fastest, 1e6 * double(std::clock() - begin) / CLOCKS_PER_SEC / kCalls);
    }
    EXPECT_LT(fastest, 100 * test::kSlowdown) << sum;
}

TEST(Choice, ThatIsImpossibleSaysHowToLearnWhy) {
    try {
        choose({0xffffffffu, 0xfffffff8u, 128}, h200());
        FAIL();
    } catch (const Error& e) {
        EXPECT_EQ(e.code(), Errc::Unsupported);
        EXPECT_NE(std::string(e.what()).find("finegemm explain 'gemm 4294967295x"), std::string::npos) << e.what();
    }
}

/// Whether choices split K and have k-slices, for operands of a type; none where bits may not depend on M.
std::pair<bool, bool> parts_of_k(const Operand& a, const Operand& b) {
    bool splits = false, k_slices = false;
    for (const uint32_t m : {1u, 16u, 64u, 100u, 128u, 300u, 1024u, 5000u})
        for (const uint32_t n : {8u, 576u, 2112u, 7168u, 24576u})
            for (const uint32_t k : {16u, 512u, 2048u, 7168u, 16384u}) {
                const Problem invariant{m, n, k, true, 0, a, b};
                EXPECT_EQ(arithmetic_of(choose(invariant, h200()).config), Arithmetic{}) << text_of(invariant);
                const Arithmetic usual = arithmetic_of(choose({m, n, k, false, 0, a, b}, h200()).config);
                splits |= usual.splits > 1;
                k_slices |= usual.k_slices > 1;
            }
    return {splits, k_slices};
}

TEST(Choice, OfBatchInvariantResultsHasOneOrderOfSums) {
    constexpr auto kSome = std::pair(true, true);
    const Operand bf16 = unscaled(Element::BF16);
    EXPECT_EQ(parts_of_k(kRowScaled, kBlockScaled), kSome) << "some of these shapes should have other orders else";
    EXPECT_EQ(parts_of_k(bf16, bf16), kSome);
    EXPECT_NE(rejected({16, 576, 7168, true}, h200(), config_named("m64n32s7w1_splitK5_x2")), "");
}

TEST(Choice, OfFewerSmsTakesNoMoreCtasThanThere) {
    for (const uint32_t sms : {1u, 2u, 5u, 33u, 100u, 131u})
        for (const uint32_t m : {1u, 64u, 128u, 1000u, 8192u})
            for (const uint32_t n : {8u, 576u, 7168u}) {
                const Problem problem{.m = m, .n = n, .k = 7168, .num_sms = sms};
                const GemmConfig c = choose(problem, h200()).config;
                const uint32_t clusters = ctas_at_once(problem, h200(), c) / c.cluster;
                EXPECT_GE(clusters, 1u);
                EXPECT_LE(grid_size(c, raster(c, m, n).size(), clusters), sms) << m << " x " << n << ", " << name_of(c);
            }
    EXPECT_EQ(choose({.m = 64, .n = 576, .k = 7168, .num_sms = 132}, h200()), choose({64, 576, 7168}, h200()))
        << "all of them";
}

TEST(Choice, WhereRowsBeginBetweenSectorsOfL2IsAKernelThatLoadsLess) {
    EXPECT_EQ(name_of(choose({2176, 7400, 3328}, h200()).config), "m128n200s4w2");
    EXPECT_EQ(name_of(choose({2176, 7400, 3312}, h200()).config), "m256n128s4w2_shareA2");  // 86 us, the other 102
}

TEST(Explain, AccountsForEveryCandidateCheapestFirst) {
    const auto out = nlohmann::json::parse(explain({64, 2112, 7168}, h200()));
    EXPECT_EQ(out["chosen"]["name"], name_of(choose({64, 2112, 7168}, h200()).config));
    EXPECT_EQ(out["candidates"].size(), candidates().size());
    double last = 0;
    bool seen_rejected = false;
    for (const auto& row : out["candidates"]) {
        if (row.contains("rejected")) {
            seen_rejected = true;
            continue;
        }
        EXPECT_FALSE(seen_rejected) << "rejected ones come last";
        EXPECT_GE(row["us"].get<double>(), last);
        last = row["us"];
    }
}

TEST(Explain, OfGroupsHasTheirCandidatesAndSaysWhatWasAsked) {
    const Problem p{.m = 8192, .n = 4096, .k = 7168, .groups = {Grouping::Rows, 64, 100, 128}};
    const auto out = nlohmann::json::parse(explain(p, h200()));
    const nlohmann::json asked = {{"m", 8192},    {"n", 4096},         {"k", 7168},
                                  {"groups", 64}, {"expected_m", 100}, {"alignment", 128}};
    EXPECT_EQ(out["line"], text_of(p));
    EXPECT_EQ(out["problem"], asked);
    EXPECT_EQ(out["chosen"]["name"], name_of(choose(p, h200()).config));
    EXPECT_EQ(out["candidates"].size(), candidates({.grouping = Grouping::Rows}).size());
}

TEST(Explain, SaysWhichScalesWhichTypeAndWhichRowsWereAskedFor) {
    const auto asked = [](const Problem& p) { return nlohmann::json::parse(explain(p, h200()))["problem"]; };
    const nlohmann::json extents = {{"m", 64}, {"n", 2112}, {"k", 7168}};
    EXPECT_EQ(asked({64, 2112, 7168}), extents) << "the usual";
    nlohmann::json more = extents;
    more.update({{"batch_invariant", true}, {"row_b_scales", true}, {"out_dtype", "bf16"}});
    Problem p{.m = 64, .n = 2112, .k = 7168, .batch_invariant = true, .b = kRowScaled};
    EXPECT_EQ(asked(p), more);
    p.d.element = DType::F32, more["out_dtype"] = "f32";
    EXPECT_EQ(asked(p), more);
    p.d.accumulate = true, more["accumulate"] = true;
    EXPECT_EQ(asked(p), more);
}

TEST(Explain, IsNamedInErrorsWithAllThatWasAsked) {
    const Problem p{.m = 8, .n = 8, .k = 128, .groups = {Grouping::K, 3}};
    EXPECT_EQ(explain_command({64, 2112, 7168}), "finegemm explain 'gemm 64x2112x7168 e4m3:row128 e4m3:block128 bf16'");
    const Error e = cannot_take("m64n64s5w1_x2", p, "has no reason");
    EXPECT_EQ(e.code(), Errc::InvalidArgument);
    EXPECT_TRUE(test::contains(e, "config: 'm64n64s5w1_x2' cannot take a GEMM of 8 x 8 x 128: has no reason; `" +
                                      explain_command(p) + "` lists the kernels that can"))
        << e.what();
}

TEST(KGroups, HaveKernelsOfTheirOwnAndTilesForEachGroup) {
    const Problem one = gradient(4096, 7168, 8192);
    Problem four = one;
    four.groups = {Grouping::K, 4}, four.k = 4 * 8192;
    for (const DType d : {DType::F32, DType::BF16}) {
        four.d.element = d;
        EXPECT_FALSE(candidates(four.kind()).empty());
        for (const GemmConfig& c : candidates(four.kind()))
            EXPECT_TRUE(name_of(c).ends_with(d == DType::F32 ? "_1d1d_f32_kgrouped" : "_1d1d_kgrouped")) << name_of(c);
        four.batch_invariant = true;
        EXPECT_NO_THROW(static_cast<void>(choose(four, h200())));
        four.batch_invariant = false;
    }
    four.d.element = DType::F32;
    for (const GemmConfig& c : candidates(four.kind())) {
        EXPECT_EQ(config_named(name_of(c)), c);
        EXPECT_FALSE(rejected(one, h200(), c).empty());
        GemmConfig dense = c;
        dense.grouping = Grouping::None;
        EXPECT_FALSE(rejected(four, h200(), dense).empty());
        EXPECT_EQ(cost(four, h200(), c).tiles, 4 * cost(one, h200(), dense).tiles);
        EXPECT_GT(cost(four, h200(), c).compute, 3 * cost(one, h200(), dense).compute);
        EXPECT_LT(cost(four, h200(), c).compute, 4.1 * cost(one, h200(), dense).compute);
        EXPECT_NEAR(cost(four, h200(), c).memory, 4 * cost(one, h200(), dense).memory, 1e-6);
    }
    for (const uint32_t m : {1u, 64u, 65u, 4096u}) {
        four.m = m;
        EXPECT_EQ(kind_of(choose(four, h200()).config), four.kind()) << "any M has a kernel";
    }
    four.m = four.n = 1 << 20, four.groups.count = 1024;
    EXPECT_EQ(rejected(four, h200(), candidates(four.kind())[0]), "makes more tiles than a grid can index");
}

/// Compares with tests/golden/NAME; FG_UPDATE_GOLDEN=1 writes it.
void expect_choices(const char* name, const nlohmann::ordered_json& now, size_t at_least) {
    const std::string path = std::string(FINEGEMM_TEST_DIR "/golden/") + name;
    if (std::getenv("FG_UPDATE_GOLDEN")) std::ofstream(path) << now.dump(1) << '\n';
    std::ifstream file(path);
    ASSERT_TRUE(file) << path << " is missing; FG_UPDATE_GOLDEN=1 writes it";
    const auto golden = nlohmann::ordered_json::parse(file);
    for (const auto& [problem, kernel] : golden.items()) EXPECT_EQ(now[problem], kernel) << problem;
    EXPECT_EQ(now.size(), golden.size());
    EXPECT_GE(golden.size(), at_least);
}

/// N and K of layers of real models: DeepSeek-V3, Qwen3, Llama 3, GLM-4.5, Kimi K2 and tensor-parallel slices of them.
constexpr uint32_t kLayers[][2] = {{2112, 7168}, {576, 7168},   {24576, 1536}, {32768, 512},  {7168, 16384},
                                   {4096, 7168}, {7168, 2048},  {18432, 7168}, {7168, 18432}, {1536, 7168},
                                   {4096, 4096}, {28672, 4096}, {4096, 14336}, {6144, 4096},  {10240, 8192},
                                   {8192, 8192}, {57344, 8192}, {8192, 28672}, {512, 2048},   {2048, 512},
                                   {9216, 4096}, {5120, 8192},  {12288, 5120}, {5120, 12288}, {256, 7168}};

TEST(Choice, OfGradientsThatAreAddedToIsAKernelThatLoadsDWhereKIsShort) {
    const auto loads = [](uint32_t k) {
        return kernel_plan(choose(gradient(8192, 4096, k), h200()).config).loads_source();
    };
    EXPECT_TRUE(loads(256));
    EXPECT_TRUE(loads(768));
    EXPECT_FALSE(loads(4096));
}

TEST(Choice, OfGradientsThatAreOverwrittenLeavesNoRoomForWhatIsNotLoaded) {
    for (const uint32_t k_groups : {0u, 8u})
        for (const uint32_t k : {256u, 768u, 4096u}) {
            Problem p = gradient(8192, 4096, k * max(1, k_groups));
            if (k_groups > 0) p.groups = {Grouping::K, k_groups};
            p.d.accumulate = false;
            EXPECT_EQ(choose(p, h200()).config.stages, 5) << k_groups << " groups, K = " << k;
        }
}

TEST(Choice, OfRealLayersIsAsRecorded) {
    nlohmann::ordered_json now;
    for (const auto& [n, k] : kLayers)
        for (const uint32_t m : {1u, 8u, 64u, 128u, 256u, 512u, 2048u, 8192u})
            now[fmt::format("{}x{}x{}", m, n, k)] = name_of(choose({m, n, k}, h200()).config);
    for (const auto& [m, n, k] : {std::array{2112u, 4096u, 7168u},
                                  {576u, 4096u, 7168u},
                                  {24576u, 4096u, 1536u},
                                  {32768u, 4096u, 512u},
                                  {7168u, 4096u, 16384u},
                                  {4096u, 4096u, 7168u},
                                  {7168u, 4096u, 2048u}})
        now[fmt::format("{}x{}x{} 1d1d f32", m, n, k)] = name_of(choose(gradient(m, n, k), h200()).config);
    expect_choices("plan.json", now, 200);
}

/// N and K of the experts of real models, whole and in tensor-parallel slices: DeepSeek-V3, Kimi K2, Qwen3, Mixtral.
constexpr uint32_t kExperts[][2] = {{4096, 7168}, {7168, 2048}, {512, 7168},   {7168, 256},
                                    {1536, 2048}, {2048, 768},  {28672, 4096}, {4096, 14336}};

TEST(Choice, OfRealExpertsIsAsRecorded) {
    nlohmann::ordered_json now;
    for (const auto& [n, k] : kExperts)
        for (const uint32_t groups : {8u, 64u, 256u})
            for (const uint32_t rows : {1u, 8u, 64u, 128u, 512u, 2048u}) {
                const Problem p{.m = groups * rows, .n = n, .k = k, .groups = {Grouping::Rows, groups}};
                now[fmt::format("{} groups, {}x{}x{}", groups, p.m, n, k)] = name_of(choose(p, h200()).config);
            }
    expect_choices("plan_grouped.json", now, 100);
}

}  // namespace
}  // namespace finegemm::plan
