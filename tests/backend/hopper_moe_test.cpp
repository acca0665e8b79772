// What a layer of experts asks of the Hopper backend besides launches. Layer tests.
#include <cstring>

#include "ops/moe/planner.h"
#include "support/hopper.h"

namespace finegemm::hopper_moe_test {
namespace {

constexpr MoeShape kFew{.tokens = 16, .choices = 8, .hidden = 7168, .intermediate = 2048, .experts = 256};
constexpr MoeShape kSome{.tokens = 64, .choices = 8, .hidden = 7168, .intermediate = 2048, .experts = 256};
constexpr MoeShape kMany{.tokens = 16384, .choices = 8, .hidden = 7168, .intermediate = 2048, .experts = 32};

class HopperMoe : public test::HopperTest {
protected:
    /// The launches of a call; without a workspace the backend takes memory.
    std::vector<mock::Launch> run(const MoeShape& s, bool own_memory = true, MoeOptions options = {},
                                  uintptr_t ids = 0x2000) {
        const Device where{DeviceType::Cuda, 0};
        const auto weights = [&](uintptr_t at, int64_t rows, int64_t cols) {
            return ConstStack{{test::address(at), DType::E4M3, rows, cols, cols, 1, where}, s.experts, rows * cols};
        };
        const auto scales = [&](uintptr_t at, int64_t rows, int64_t cols) {
            rows /= 128, cols /= 128;
            return ConstStack{{test::address(at), DType::F32, rows, cols, cols, 1, where}, s.experts, rows * cols};
        };
        MoeArgs args{.x = {test::address(0x1000), DType::BF16, s.tokens, s.hidden, s.hidden, 1, where},
                     .ids = {test::address(ids), DType::I64, s.tokens, s.choices, s.choices, 1, where},
                     .weights = {test::address(0x3000), DType::F32, s.tokens, s.choices, s.choices, 1, where},
                     .gate_up = weights(0x10000, 2 * s.intermediate, s.hidden),
                     .gate_up_scales = scales(0x20000, 2 * s.intermediate, s.hidden),
                     .down = weights(0x30000, s.hidden, s.intermediate),
                     .down_scales = scales(0x40000, s.hidden, s.intermediate),
                     .first = 7,
                     .out = {test::address(0x50000), DType::BF16, s.tokens, s.hidden, s.hidden, 1, where}};
        if (s.four_bit) {
            const auto packed = [&](uintptr_t at, int64_t rows, int64_t cols) {
                return FourBitWeights{test::address(at), *s.four_bit, s.experts, rows, cols, where};
            };
            args.gate_up_packed = packed(0x60000, 2 * s.intermediate, s.hidden);
            args.down_packed = packed(0x70000, s.hidden, s.intermediate);
            if (s.four_bit_alone) args.gate_up = args.gate_up_scales = args.down = args.down_scales = {};
        }
        if (!own_memory) args.workspace = test::address(kWorkspace - 240);  // the first line is behind it
        options.fused = s.fused, options.expected_m = s.expected_m;
        mock->launches.clear();
        hopper_->run(MoeCall{args, options});
        return mock->launches;
    }
    static constexpr uintptr_t kWorkspace = 0x100000000;
    std::unique_ptr<Backend> hopper_ = backend();
};

TEST_F(HopperMoe, IsLaunchesThatOverlapWithThoseBeforeThem) {
    for (const bool fused : {true, false})
        for (const bool pdl : {true, false}) {
            MoeShape shape = kSome;
            shape.fused = fused;
            const auto launches = run(shape, false, {.num_sms = 100, .pdl = pdl, .stream = test::address(0x50)});
            ASSERT_EQ(launches.size(), fused ? 5u : 6u);
            EXPECT_EQ(launches[0].entry, "FineGEMM_routing_route");
            EXPECT_EQ(launches[1].entry, "FineGEMM_routing_permute_quantize");
            EXPECT_EQ(launches[2].entry.ends_with("_gated"), fused) << launches[2].entry;
            EXPECT_EQ(launches[3].entry == "FineGEMM_swiglu_quantize_BF16", !fused);
            EXPECT_EQ(launches.back().entry, "FineGEMM_routing_combine");
            for (size_t i = 0; i < launches.size(); ++i) {
                EXPECT_EQ(launches[i].programmatic, i > 0 || pdl) << i;
                EXPECT_EQ(launches[i].stream, test::address(0x50)) << i;
            }
        }
    EXPECT_EQ(mock->pools, 0) << "there is a workspace";
}

TEST_F(HopperMoe, FindsAndFillsRowsOfFewChoicesInOneLaunch) {
    for (const bool pdl : {true, false}) {
        const auto launches = run(kFew, false, {.pdl = pdl});
        ASSERT_EQ(launches.size(), run(kSome).size() - 1);
        EXPECT_EQ(launches[0].entry, "FineGEMM_routing_permute_quantize_routed");
        EXPECT_EQ(launches[0].programmatic, pdl);
        const RouteParams& route = launches[0].permute.route;
        const MoeMemory m = memory_of(kFew, false);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(route.inverse), kWorkspace + static_cast<uintptr_t>(m.inverse));
        EXPECT_EQ(reinterpret_cast<uintptr_t>(route.numbers), kWorkspace + static_cast<uintptr_t>(m.offsets));
        EXPECT_EQ(std::tuple(route.first, route.wide, route.choices), std::tuple(7, 1u, 128u));
    }
}

TEST_F(HopperMoe, AddsBiasesInTheActivationAndInTheSums) {
    const Device where{DeviceType::Cuda, 0};
    const MoeOptions biased{.gate_up_bias = {test::address(0x80000), DType::BF16, 256, 4096, 4096, 1, where},
                            .down_bias = {test::address(0x90000), DType::F32, 256, 7168, 7680, 1, where}};
    for (const int64_t tokens : {4, 16, 64}) {
        MoeShape shape = kSome;
        shape.tokens = tokens;
        const auto launches = run(shape, false, biased);
        ASSERT_EQ(launches.size(), tokens == 64 ? 6u : 5u);
        const mock::Launch &activation = launches[launches.size() - 3], &sums = launches.back();
        EXPECT_EQ(activation.entry, "FineGEMM_swiglu_quantize_BF16_biased");
        EXPECT_EQ(sums.entry, "FineGEMM_routing_combine_biased");
        const auto& [data, stride, wide] = sums.combine.biases;
        EXPECT_EQ(std::tuple(data, stride, wide), std::tuple(test::address(0x90000), 7680 * 4, 1u));
        EXPECT_EQ(std::tuple(sums.combine.bias_weights, sums.combine.route.ids, sums.combine.route.places.experts),
                  std::tuple(nullptr, test::address(0x2000), 256u));
        EXPECT_EQ(std::tuple(sums.programmatic, activation.programmatic), std::tuple(true, true));
        EXPECT_EQ(std::tuple(sums.combine.counts, activation.swiglu.early), std::tuple(tokens == 4, tokens == 4));
        MoeOptions first = biased;
        first.weights_first = true;
        const auto weighed = run(shape, false, first);
        EXPECT_EQ(weighed.back().combine.bias_weights, test::address(0x3000));
        EXPECT_EQ(weighed.back().combine.weights, nullptr);
    }
}

TEST_F(HopperMoe, LeavesAtMost32ChoicesToEachLaunchToCount) {
    MoeShape shape = kFew;
    shape.tokens = 4;
    for (const uintptr_t ids : {0x2000, 0x2800, 0x2000}) {  // nothing is kept for other ids
        const auto launches = run(shape, false, {}, ids);
        ASSERT_EQ(launches.size(), 5u);
        for (const size_t product : {1, 3}) {
            const auto& [entry, choices] = std::tie(launches[product].entry, launches[product].choices);
            EXPECT_TRUE(entry.ends_with("_grouped_choices")) << entry;
            EXPECT_EQ(choices.ids, test::address(ids));
            EXPECT_EQ(std::tuple(choices.first, choices.count, choices.wide, choices.by_k.divisor),
                      std::tuple(7, 32u, 1u, 8u));
        }
        EXPECT_EQ(launches[2].entry, "FineGEMM_swiglu_quantize_BF16_few");
        EXPECT_EQ(launches[4].entry, "FineGEMM_routing_combine_routed");
        EXPECT_EQ(launches[4].combine.route.ids, test::address(ids));
    }
    shape.tokens = 5;
    const auto more = run(shape, false);
    for (const size_t product : {1, 3}) EXPECT_TRUE(more[product].entry.ends_with("_grouped")) << more[product].entry;
    EXPECT_EQ(more[2].entry, "FineGEMM_swiglu_quantize_BF16");
    EXPECT_EQ(more[4].entry, "FineGEMM_routing_combine");
}

TEST_F(HopperMoe, BeginsTheSecondProductOfARankEarlyWhereThatPays) {
    const auto activation = [&](int64_t tokens, int64_t choices, int64_t hidden = 7168) {
        const MoeShape shape{
            .tokens = tokens, .choices = choices, .hidden = hidden, .intermediate = 2048, .experts = 8, .fused = false};
        const auto activates = [](const auto& launch) { return launch.entry.starts_with("FineGEMM_swiglu_quantize"); };
        const auto launches = run(shape, false);
        const std::string entry = std::ranges::find_if(launches, activates)->entry;
        for (const MoeLaunch& launch : plan_of(shape, *plan::find_device("h200")).launches) {
            if (launch.call == std::string("swiglu_quantize")) {
                EXPECT_EQ(launch.kernel, entry);
            }
        }
        return entry.substr(std::string_view("FineGEMM_swiglu_quantize_BF16").size());
    };
    for (const int64_t tokens : {512, 4096}) EXPECT_EQ(activation(tokens, 1), "_few_awaiting") << tokens;
    EXPECT_EQ(activation(512, 1, 1024), "_few") << "no more k-blocks than stages";
    for (const int64_t tokens : {511, 4097}) EXPECT_EQ(activation(tokens, 1), "") << tokens;
    EXPECT_EQ(activation(128, 8), "") << "of several choices";
}

TEST_F(HopperMoe, ActivatesRowsThatTheFirstProductReports) {
    const MoeShape shape{
        .tokens = 4096, .choices = 1, .hidden = 4096, .intermediate = 1536, .experts = 4, .fused = false};
    const auto launches = run(shape, false);
    ASSERT_EQ(launches.size(), 5u);
    const auto* const stored = reinterpret_cast<const uint32_t*>(
        test::address(kWorkspace + static_cast<uintptr_t>(memory_of(shape, false).stored)));
    EXPECT_EQ(launches[0].route.stored, stored) << "become zeros";
    EXPECT_TRUE(launches[2].entry.ends_with("_grouped_reports")) << launches[2].entry;
    EXPECT_EQ(launches[2].stored, stored);
    EXPECT_EQ(launches[3].swiglu.stored, stored);
    const auto plan = plan_of(shape, *plan::find_device("h200"));
    EXPECT_TRUE(launches[2].entry.ends_with(plan.launches[2].kernel)) << plan.launches[2].kernel;
    MoeShape in_the_product = shape;
    in_the_product.fused = true;
    EXPECT_EQ(run(in_the_product, false)[0].route.stored, nullptr);
}

TEST_F(HopperMoe, HandsOnWhatEachLaunchLeavesInTheWorkspace) {
    MoeShape shape = kSome;
    shape.fused = false;
    const auto launches = run(shape, false);
    ASSERT_EQ(launches.size(), 6u);
    const MoeMemory m = memory_of(shape, false);
    const auto at = [](int64_t offset) {
        return static_cast<const void*>(test::address(kWorkspace + static_cast<uintptr_t>(offset)));
    };
    EXPECT_EQ(launches[0].route.inverse, at(m.inverse));
    EXPECT_EQ(launches[0].route.numbers, at(m.offsets));
    EXPECT_EQ(std::tuple(launches[0].route.first, launches[0].route.wide), std::tuple(7, 1u));
    EXPECT_EQ(launches[0].route.places.rows, 512u);
    EXPECT_EQ(launches[1].permute.q, at(m.rows));
    EXPECT_EQ(launches[1].permute.scales, at(m.row_scales));
    EXPECT_EQ(launches[1].permute.scale_col_stride, m.scale_stride);
    EXPECT_EQ(launches[3].swiglu.x, at(m.between));
    EXPECT_EQ(launches[3].swiglu.q, at(m.codes));
    EXPECT_EQ(launches[3].swiglu.scales, at(m.code_scales));
    EXPECT_EQ(launches[3].swiglu.rule.to_bf16, 1u);
    EXPECT_EQ(launches[5].combine.y, at(m.y));
    EXPECT_EQ(launches[5].combine.chosen.inverse, at(m.inverse));
}

TEST_F(HopperMoe, GivesWeightsOfChoicesToTheActivationOrToTheSums) {
    const auto weights = [](const std::vector<mock::Launch>& launches) {
        return std::tuple(launches[0].permute.weights_of_rows, launches[2].swiglu.weights, launches[4].combine.weights);
    };
    MoeShape shape = kFew;
    shape.fused = false;
    const auto behind = run(shape, false), first = run(shape, false, {.weights_first = true});
    const auto* const given = static_cast<const float*>(test::address(0x3000));
    EXPECT_EQ(weights(behind), (std::tuple<float*, const float*, const float*>({}, {}, given)));
    const auto [written, read, summed] = weights(first);
    EXPECT_EQ(first[0].permute.weights, given);
    EXPECT_EQ(written, read);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(written),
              kWorkspace + static_cast<uintptr_t>(memory_of(shape, false).weights_of_rows));
    EXPECT_EQ(summed, nullptr);
}

TEST_F(HopperMoe, StoresSumsOfTokensWithOneChoiceAndAddsUpNothing) {
    const auto of_rank = [](int64_t tokens, bool fused) {
        return MoeShape{
            .tokens = tokens, .choices = 1, .hidden = 7168, .intermediate = 2048, .experts = 8, .fused = fused};
    };
    for (const int64_t tokens : {64, 4096})
        for (const bool fused : {false, true})
            for (const bool weights_first : {false, true}) {
                const MoeShape shape = of_rank(tokens, fused);
                ASSERT_TRUE(plan_of(shape, *plan::find_device("h200")).forms.stores_sums);
                const auto launches = run(shape, false, {.weights_first = weights_first});
                ASSERT_EQ(launches.size(), (tokens == 64 ? 1u : 2u) + (fused ? 2 : 3));
                const MoeMemory m = memory_of(shape, fused);
                const auto at = [](int64_t offset) { return kWorkspace + static_cast<uintptr_t>(offset); };
                const auto address = [](const void* p) { return reinterpret_cast<uintptr_t>(p); };
                const mock::Launch &down = launches.back(), &permute = launches[tokens == 64 ? 0 : 1];
                const RouteParams& route = tokens == 64 ? permute.permute.route : launches[0].route;
                EXPECT_EQ(address(route.permutation), at(m.permutation));
                EXPECT_EQ(std::tuple(address(permute.permute.sums), permute.permute.sum_row_stride),
                          std::tuple(0x50000u, 2 * 7168));
                EXPECT_EQ(address(permute.permute.weights_of_rows), at(m.weights_of_rows));
                EXPECT_TRUE(down.entry.ends_with("_grouped_indexed")) << down.entry;
                EXPECT_EQ(address(down.gemm.d_data), 0x50000u);
                const IndexedParams& x = down.indexed;
                EXPECT_EQ(std::tuple(x.numbers_of_a, address(x.numbers_of_d), x.d_count, x.sums),
                          std::tuple(nullptr, at(m.permutation), static_cast<uint32_t>(tokens), 1u));
                EXPECT_EQ(address(x.factors), weights_first ? 0 : at(m.weights_of_rows));
                EXPECT_TRUE(weights_first || x.factor_stride == 1);
            }
    EXPECT_EQ(run(of_rank(32, false)).back().entry, "FineGEMM_routing_combine_routed");
    const Device where{DeviceType::Cuda, 0};
    const MoeOptions biased{.gate_up_bias = {test::address(0x80000), DType::BF16, 8, 4096, 4096, 1, where},
                            .down_bias = {test::address(0x90000), DType::BF16, 8, 7168, 7168, 1, where}};
    EXPECT_EQ(run(of_rank(64, false), false, biased).back().entry, "FineGEMM_routing_combine_biased");
    MoeShape packed = of_rank(64, false);
    packed.four_bit = FourBitFormat::Mxfp4, packed.four_bit_alone = true;
    EXPECT_EQ(run(packed).back().entry, "FineGEMM_routing_combine");
}

TEST_F(HopperMoe, TakesMemoryAndGivesItBackInTheOrderOfTheStream) {
    mock->capturing = true;
    for (long calls = 1; calls <= 2; ++calls) {
        run(kFew);
        EXPECT_EQ(std::tuple(mock->pools, mock->allocations), std::tuple(1, 0));
        EXPECT_EQ(std::tuple(mock->count("cuMemAllocFromPoolAsync"), mock->count("cuMemFreeAsync")),
                  std::tuple(calls, calls));
        EXPECT_EQ(mock->calls.back(), "cuCtxPopCurrent");
    }
}

TEST_F(HopperMoe, CallsThatAreNotCapturedTakeMemoryOnce) {
    for (int i = 0; i < 3; ++i) run(kFew);
    EXPECT_EQ(std::tuple(mock->pools, mock->allocations), std::tuple(1, 1));
    EXPECT_EQ(std::tuple(mock->count("cuMemAllocFromPoolAsync"), mock->count("cuMemFreeAsync")), std::tuple(1, 0));
    hopper_.reset();
    EXPECT_EQ(std::tuple(mock->pools, mock->allocations), std::tuple(0, 0));
}

TEST_F(HopperMoe, ChoosesWhatThePlanSaysEachTime) {
    const plan::DeviceSpec& h200 = *plan::find_device("h200");
    for (int i = 0; i < 2; ++i)
        for (const MoeShape& shape : {kFew, kMany}) {
            EXPECT_EQ(run(shape).size(), plan_of(shape, h200).launches.size());
            EXPECT_EQ(is_fused_faster(shape, h200), plan_of(shape, h200).forms.fused);
        }
    EXPECT_EQ(run(kMany).size(), 5u);
}

TEST_F(HopperMoe, MultipliesWeightsOf4BitsWhereFp8WithTheActivationIsNotFaster) {
    const plan::DeviceSpec& h200 = *plan::find_device("h200");
    const auto kernels = [&](MoeShape shape, std::optional<bool> alone) {
        if (alone) shape.four_bit = FourBitFormat::Mxfp4, shape.four_bit_alone = *alone;
        std::vector<std::string> entries;
        for (const mock::Launch& launch : run(shape)) entries.push_back(launch.entry);
        const MoePlan plan = plan_of(shape, h200);
        EXPECT_EQ(entries.size(), plan.launches.size());
        for (size_t i = 0; i < entries.size(); ++i) {
            const bool four_bit = std::string_view(plan.launches[i].call) == "four_bit_gemm";
            EXPECT_EQ(four_bit, entries[i].starts_with("FineGEMM_four_bit_")) << entries[i];
        }
        return entries;
    };
    const std::vector<std::string> wanted{"FineGEMM_routing_permute_quantize_routed", "FineGEMM_four_bit_Mxfp4",
                                          "FineGEMM_swiglu_quantize_BF16", "FineGEMM_four_bit_Mxfp4",
                                          "FineGEMM_routing_combine"};
    EXPECT_EQ(kernels(kFew, true), wanted);
    EXPECT_EQ(kernels(kFew, false), wanted);
    EXPECT_EQ(last_launch().entry, "FineGEMM_routing_combine");
    EXPECT_EQ(kernels(kMany, false)[2], kernels(kMany, {})[2]) << "with its activation, as without weights of 4 bits";
    EXPECT_EQ(kernels(kMany, true)[2], "FineGEMM_four_bit_Mxfp4_many");
    MoeShape fused = kFew;
    fused.fused = true;
    const auto one_fused = kernels(fused, false);
    EXPECT_TRUE(one_fused[1].ends_with("_gated")) << "as it is asked for";
    EXPECT_EQ(one_fused[2], "FineGEMM_four_bit_Mxfp4");
}

TEST_F(HopperMoe, HandsRowsOfExpertsToProductsOfWeightsOf4Bits) {
    MoeShape shape = kFew;
    shape.four_bit = FourBitFormat::Int4, shape.four_bit_alone = true;
    const auto launches = run(shape, false);
    const MoeMemory m = memory_of(shape, false);
    const auto at = [](int64_t offset) {
        return static_cast<const void*>(test::address(kWorkspace + static_cast<uintptr_t>(offset)));
    };
    const FourBitParams &gate_up = launches[1].four_bit, &down = launches[3].four_bit;
    EXPECT_EQ(std::tuple<const void*>(gate_up.b), std::tuple(test::address(0x60000)));
    EXPECT_EQ(std::tuple<const void*>(down.b), std::tuple(test::address(0x70000)));
    EXPECT_EQ(gate_up.sfa, at(m.row_scales));
    EXPECT_EQ(gate_up.d, at(m.between));
    EXPECT_EQ(down.sfa, at(m.code_scales));
    EXPECT_EQ(down.d, at(m.y));
    EXPECT_EQ(std::tuple(gate_up.n, down.n, gate_up.groups.groups), std::tuple(4096u, 7168u, 256u));
    EXPECT_EQ(static_cast<const void*>(gate_up.groups.ends - 1), at(m.offsets));
}

}  // namespace
}  // namespace finegemm::hopper_moe_test
