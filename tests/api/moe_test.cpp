// A layer of experts through the C and C++ APIs. Layer tests.
#include <gtest/gtest.h>

#include <cmath>

#include <nlohmann/json.hpp>

#include <finegemm/moe.h>
#include <finegemm/quantize.h>
#include <finegemm/routing.h>
#include <finegemm/swiglu.h>

#include "api/moe_misuses.h"

namespace finegemm::test {
namespace {

// Programs were compiled with these.
static_assert(sizeof(finegemm_moe_args) == 5 * 56 + 4 * 72 + 24 && offsetof(finegemm_moe_args, out) == 4 * 56 + 296);
static_assert(offsetof(finegemm_moe_options, rows) == 48 && offsetof(finegemm_moe_options, poll_data) == 80);
static_assert(offsetof(finegemm_moe_options, gate_up_bias) == 88 && sizeof(finegemm_moe_options) == 88 + 2 * 56);
static_assert(sizeof(finegemm_moe_shape) == 96 && offsetof(finegemm_moe_shape, biased) == 88 &&
              offsetof(finegemm_moe_shape, device) == 72);

using Codes = std::vector<uint16_t>;

Codes result_of(MoeCallInC& c, const CContext& context) {
    EXPECT_EQ(c.run(context.get()), FINEGEMM_OK) << c.error.message;
    EXPECT_TRUE(c.out.surroundings_intact());
    Codes codes;
    for (int64_t t = 0; t < c.args.out.rows; ++t)
        for (int64_t i = 0; i < c.kHidden; ++i) codes.push_back(c.out.at(t, i));
    return codes;
}
/// What a call gives that `change` has made.
template <typename Change>
Codes result_of(const Change& change) {
    const CContext context;
    MoeCallInC c;
    change(c);
    return result_of(c, context);
}
Codes result_of() {
    return result_of([](MoeCallInC&) {});
}
Codes token(const Codes& all, int64_t t) {
    return {all.begin() + t * MoeCallInC::kHidden, all.begin() + (t + 1) * MoeCallInC::kHidden};
}
const Codes kZeros(MoeCallInC::kHidden, 0);

TEST(Moe, HasTheSameBitsWithTheActivationInTheProductAndApart) {
    const std::pair<const char*, void (*)(MoeCallInC&)> cases[] = {
        {"usual", [](MoeCallInC&) {}},
        {"clamped", [](MoeCallInC& c) { c.options.gate_limit = 0.5f, c.options.gate_alpha = 1.702f; }},
        {"with an offset", [](MoeCallInC& c) { c.options.up_offset = 1; }},
        {"powers of two", [](MoeCallInC& c) { c.options.power_of_two_scales = 1; }},
        {"weights first", [](MoeCallInC& c) { c.options.weights_first = 1; }},
        {"without weights", [](MoeCallInC& c) { c.args.weights = {}; }},
        {"on tensor cores", [](MoeCallInC& c) { c.options.numerics = FINEGEMM_NUMERICS_HOPPER; }}};
    std::vector<Codes> all;
    for (const auto& [name, change] : cases) {
        const auto with = [&](int32_t fused) {
            return result_of([&](MoeCallInC& c) { change(c), c.options.fused = fused; });
        };
        EXPECT_EQ(with(FINEGEMM_ON), with(FINEGEMM_OFF)) << name;
        for (const Codes& other : all) EXPECT_NE(with(FINEGEMM_ON), other) << name;
        all.push_back(with(FINEGEMM_ON));
    }
    EXPECT_NE(result_of([](MoeCallInC& c) { c.options.f32_between = 1; }), all[0]);
}

TEST(Moe, MultipliesTheActivationByWeightsFirstAsByPowersOfTwoBehind) {
    const auto with = [](int32_t first) {
        return result_of([&](MoeCallInC& c) {
            c.options.weights_first = first;
            for (int64_t t = 0; t < c.kTokens; ++t)
                for (int64_t i = 0; i < c.kChoices; ++i) c.weights.at(t, i) = t % 2 == 0 ? 0.5f : -2.0f;
        });
    };
    EXPECT_EQ(with(1), with(0)) << "powers of two change no rounding";
    const auto without = [](int32_t first) {
        return result_of([&](MoeCallInC& c) { c.options.weights_first = first, c.args.weights = {}; });
    };
    EXPECT_EQ(without(1), without(0));
}

TEST(Moe, GivesATokenBitsThatNoOtherTokenChanges) {
    const Codes all = result_of();
    for (int64_t t = 0; t < MoeCallInC::kTokens; ++t) {
        const Codes alone = result_of([&](MoeCallInC& c) {
            for (int64_t i = 0; i < c.kHidden; ++i) c.x.at(0, i) = c.x.at(t, i);
            for (int64_t i = 0; i < c.kChoices; ++i)
                c.ids.at(0, i) = c.ids.at(t, i), c.weights.at(0, i) = c.weights.at(t, i);
            c.args.x.rows = c.args.ids.rows = c.args.weights.rows = c.args.out.rows = 1;
        });
        EXPECT_EQ(alone, token(all, t)) << t;
        const Codes beside_nan = result_of([&](MoeCallInC& c) {
            for (int64_t other = 0; other < c.kTokens; ++other)
                if (other != t)
                    for (int64_t i = 0; i < c.kHidden; ++i) c.x.at(other, i) = 0x7fff;
        });
        EXPECT_EQ(token(beside_nan, t), token(all, t)) << t;
    }
}

TEST(Moe, IsZeroForATokenWithoutExpertsAndHasOneTwiceThatIsChosenTwice) {
    const Codes all = result_of();
    EXPECT_EQ(token(all, 2), kZeros);
    EXPECT_NE(token(all, 1), kZeros);
    const Codes once = result_of([](MoeCallInC& c) {
        c.ids.at(3, 1) = -1;
        c.weights.at(3, 0) += c.weights.at(3, 1);
    });
    for (size_t i = 0; i < kZeros.size(); ++i) {
        const float a = float_of_bf16(token(all, 3)[i]), b = float_of_bf16(token(once, 3)[i]);
        EXPECT_NEAR(a, b, std::abs(b) / 128 + 1e-3f) << i << ": two roundings of sums in another order, one of bf16";
    }
}

TEST(Moe, KeepsNanOfAnExpertInTokensThatChooseIt) {
    const Codes all = result_of();
    const Codes spoilt = result_of([](MoeCallInC& c) {
        for (int64_t block = 0; block < 2; ++block) c.gate_up.scales.at(2, block) = kNan;  // of expert 5
    });
    for (int64_t t = 0; t < MoeCallInC::kTokens; ++t) {
        const bool chooses = t == 0 || t == 3;
        EXPECT_EQ(token(spoilt, t) == token(all, t), !chooses) << t;
        EXPECT_EQ(std::isnan(float_of_bf16(token(spoilt, t)[0])), chooses) << t;
    }
}

TEST(Moe, SeesNothingOfAnExpertThatNobodyChooses) {
    const auto without_expert_6 = [](MoeCallInC& c) { c.ids.at(4, 1) = 8; };
    EXPECT_EQ(result_of(without_expert_6), result_of([&](MoeCallInC& c) {
                  without_expert_6(c);
                  for (int64_t block = 0; block < 2; ++block)
                      for (int64_t row : {4, 5}) c.gate_up.scales.at(row, block) = c.down.scales.at(row, 0) = kNan;
              }));
}

/// The weighted sums of a layer with biases.
template <typename ExpertOf>
Codes sums_with_biases(MoeCallInC& c, Buffer<uint16_t>& y, Buffer<int32_t>& inverse, const ExpertOf& expert_of) {
    Codes out;
    for (int64_t t = 0; t < c.kTokens; ++t)
        for (int64_t i = 0; i < c.kHidden; ++i) {
            float sum = 0;
            for (int64_t choice = 0; choice < c.kChoices; ++choice) {
                const int64_t row = inverse.at(t, choice);
                if (row < 0) continue;
                const float bias = float_of_bf16(c.down_bias.at(expert_of(row), i));
                const float value = float_of_bf16(y.at(row, i)) + bias;
                const float product = c.weights.at(t, choice) * value;
                sum += product;
            }
            out.push_back(bf16_of_float(sum));
        }
    return out;
}

/// The layer with biases by the calls that it is made of, which add the biases in f32 between them.
Codes by_steps_with_biases(MoeCallInC& c) {
    Context context(cpu_options());
    constexpr int64_t kRows = 10, kHidden = MoeCallInC::kHidden, kPairs = MoeCallInC::kPairs;
    Buffer<int32_t> inverse{DType::I32, c.kTokens, c.kChoices}, offsets{DType::I32, 1, c.kExperts + 1};
    Buffer<uint8_t> rows{DType::E4M3, kRows, kHidden}, codes{DType::E4M3, kRows, kPairs};
    Buffer<float> row_scales{DType::F32, kRows, 2}, code_scales{DType::F32, kRows, 1},
        biased{DType::F32, kRows, 2 * kPairs};
    Buffer<uint16_t> between{DType::BF16, kRows, 2 * kPairs}, y{DType::BF16, kRows, kHidden};
    const Groups groups{.form = GroupForm::Offsets, .data = offsets.data(), .size = c.kExperts + 1};
    const auto experts = [&](const ConstMatrix& all) {
        ConstMatrix one = all;
        one.rows /= c.kExperts;
        return ConstStack{one, c.kExperts, one.rows * one.row_stride};
    };
    route(context, {.ids = c.ids.view(),
                    .inverse = inverse.view(),
                    .numbers = offsets.view(),
                    .form = GroupForm::Offsets,
                    .experts = c.kExperts,
                    .first = c.kFirst,
                    .rows = kRows});
    permute_quantize(context,
                     {.x = c.x.view(), .inverse = inverse.view(), .q = {rows.view()}, .scales = {row_scales.view()}});
    grouped_gemm(context, {{rows.view()},
                           {row_scales.view()},
                           experts(c.gate_up.codes.view()),
                           experts(c.gate_up.scales.view()),
                           {between.view()},
                           groups});
    const auto expert_of = [&](int64_t row) {
        int64_t e = 0;
        while (offsets.at(0, e + 1) <= row) ++e;
        return e;
    };
    for (int64_t row = 0; row < offsets.at(0, c.kExperts); ++row)
        for (int64_t i = 0; i < 2 * kPairs; ++i)
            biased.at(row, i) = float_of_bf16(between.at(row, i)) + c.gate_up_bias.at(expert_of(row), i);
    SwigluOptions swiglu{.gate_limit = c.options.gate_limit, .gate_alpha = c.options.gate_alpha};
    swiglu.up_offset = c.options.up_offset, swiglu.to_bf16 = true;
    swiglu_quantize(
        context, {.x = {biased.view()}, .q = {codes.view()}, .scales = {code_scales.view()}, .groups = groups}, swiglu);
    grouped_gemm(context, {{codes.view()},
                           {code_scales.view()},
                           experts(c.down.codes.view()),
                           experts(c.down.scales.view()),
                           {y.view()},
                           groups});
    return sums_with_biases(c, y, inverse, expert_of);
}

TEST(Moe, AddsBiasesOfExpertsBeforeTheActivationAndBehindTheSecondProduct) {
    const std::pair<const char*, void (*)(MoeCallInC&)> cases[] = {
        {"usual", [](MoeCallInC&) {}},
        {"as gpt-oss has it",
         [](MoeCallInC& c) { c.options.gate_limit = 7, c.options.gate_alpha = 1.702f, c.options.up_offset = 1; }},
        {"clamped a lot", [](MoeCallInC& c) { c.options.gate_limit = 0.25f; }}};
    for (const auto& [name, change] : cases) {
        MoeCallInC c;
        change(c), c.add_biases();
        const Codes wanted = by_steps_with_biases(c);
        EXPECT_EQ(result_of([&](MoeCallInC& other) { change(other), other.add_biases(); }), wanted) << name;
        EXPECT_NE(result_of(change), wanted) << name;
    }
    const CContext context;
    MoeCallInC old;
    old.add_biases(), old.options.struct_size = offsetof(finegemm_moe_options, gate_up_bias);
    EXPECT_EQ(result_of(old, context), result_of()) << "programs were compiled without them";
}

TEST(Moe, MultipliesTheBiasOfDownByWeightsThatCameFirst) {
    const auto with = [](int32_t first, bool weighted) {
        return result_of([&](MoeCallInC& c) {
            c.add_biases(), c.options.weights_first = first;
            for (int64_t t = 0; t < c.kTokens; ++t)
                for (int64_t i = 0; i < c.kChoices; ++i) c.weights.at(t, i) = t % 2 == 0 ? 0.5f : -2.0f;
            if (!weighted) c.args.weights = {};
        });
    };
    EXPECT_EQ(with(1, true), with(0, true)) << "powers of two change no rounding";
    EXPECT_EQ(with(1, false), with(0, false));
    EXPECT_NE(with(1, true), with(1, false));
}

TEST(Moe, KeepsNanOfABiasInTokensThatChooseItsExpert) {
    const auto biased = [](MoeCallInC& c) { c.add_biases(); };
    const Codes all = result_of(biased);
    EXPECT_EQ(all[2 * MoeCallInC::kHidden], 0) << "a token without experts has no bias";
    for (const bool down : {false, true}) {
        const Codes spoilt = result_of([&](MoeCallInC& c) {
            c.add_biases();
            for (int64_t i = 0; i < 2 * c.kPairs; ++i)
                down ? void(c.down_bias.at(1, i) = 0x7fff) : void(c.gate_up_bias.at(1, i) = kNan);  // of expert 5
        });
        for (int64_t t = 0; t < MoeCallInC::kTokens; ++t) {
            const bool chooses = t == 0 || t == 3;
            EXPECT_EQ(token(spoilt, t) == token(all, t), !chooses) << t;
            EXPECT_EQ(std::isnan(float_of_bf16(token(spoilt, t)[0])), chooses) << t;
        }
    }
}

TEST(Moe, TakesWideIdsAndTokensThatAreCodes) {
    const Codes all = result_of();
    std::vector<int64_t> wide;
    for (const auto& of_token : MoeCallInC::kIds) wide.insert(wide.end(), std::begin(of_token), std::end(of_token));
    EXPECT_EQ(all, result_of([&](MoeCallInC& c) { c.args.ids.data = wide.data(), c.args.ids.dtype = FINEGEMM_I64; }));
    Context context(cpu_options());
    Buffer<uint8_t> codes{DType::E4M3, MoeCallInC::kTokens, MoeCallInC::kHidden};
    Buffer<float> scales{DType::F32, MoeCallInC::kTokens, 2};
    quantize_rows(context, MoeCallInC().x.view(), codes.view(), scales.view());
    EXPECT_EQ(all, result_of([&](MoeCallInC& c) {
                  c.args.x = c_matrix(ConstMatrix(codes.view())),
                  c.args.x_scales = c_matrix(ConstMatrix(scales.view()));
              }));
}

TEST(Moe, WritesNothingBesideTheMemoryThatItAskedFor) {
    finegemm_moe_shape shape{};
    shape.struct_size = sizeof shape;
    shape.tokens = MoeCallInC::kTokens, shape.choices = MoeCallInC::kChoices, shape.hidden = MoeCallInC::kHidden;
    shape.intermediate = MoeCallInC::kPairs, shape.experts = MoeCallInC::kExperts;
    int64_t bytes = 0;
    ASSERT_EQ(finegemm_moe_workspace_bytes(&shape, &bytes, nullptr), FINEGEMM_OK);
    const int64_t bytes_of_all = bytes;
    shape.rows = 3;
    ASSERT_EQ(finegemm_moe_workspace_bytes(&shape, &bytes, nullptr), FINEGEMM_OK);
    EXPECT_LT(bytes, bytes_of_all);
    for (const auto& [rows, size] : {std::pair{int64_t{0}, bytes_of_all}, {shape.rows, bytes}})
        for (const int32_t fused : {FINEGEMM_ON, FINEGEMM_OFF}) {
            Buffer<uint8_t> memory{DType::E4M3, 1, size};
            std::fill_n(memory.data(), size, 0xff);
            EXPECT_EQ(result_of([&](MoeCallInC& c) { c.options.rows = rows; }), result_of([&](MoeCallInC& c) {
                          c.args.workspace = memory.data(), c.args.workspace_bytes = size;
                          c.options.rows = rows, c.options.fused = fused;
                      }));
            EXPECT_TRUE(memory.surroundings_intact()) << rows;
        }
}

TEST(Moe, DropsChoicesForWhichThereAreNoRows) {
    const Codes all = result_of(), few = result_of([](MoeCallInC& c) { c.options.rows = 3; });
    EXPECT_EQ(token(few, 1), token(all, 1)) << "expert 4 has tokens 0, 1 and 4";
    EXPECT_EQ(token(few, 3), kZeros) << "expert 5 has none";
    EXPECT_EQ(all, result_of([](MoeCallInC& c) { c.options.rows = 10; })) << "as many as are chosen";
}

TEST(Moe, OfNoTokensDoesNothing) {
    const CContext context;
    MoeCallInC c;
    for (finegemm_matrix* x : {&c.args.x, &c.args.ids, &c.args.weights, &c.args.out}) x->rows = 0, x->data = nullptr;
    EXPECT_EQ(c.run(context.get()), FINEGEMM_OK) << c.error.message;
}

TEST(Moe, IsOneLineOfALog) {
    std::vector<std::string> lines;
    Options options = cpu_options();
    options.log = [&](const LoggedCall& call) { lines.push_back(call.line); };
    Context context(options);
    MoeCallInC c;
    const auto stack = [](const finegemm_stack& s) {
        const finegemm_matrix& m = s.matrix;
        return ConstStack{{m.data, static_cast<DType>(m.dtype), m.rows, m.cols, m.row_stride}, s.count, s.stride};
    };
    const MoeArgs args{.x = c.x.view(),
                       .ids = c.ids.view(),
                       .gate_up = stack(c.args.gate_up),
                       .gate_up_scales = stack(c.args.gate_up_scales),
                       .down = stack(c.args.down),
                       .down_scales = stack(c.args.down_scales),
                       .first = c.kFirst,
                       .out = c.out.view()};
    moe(context, args);
    EXPECT_EQ(lines, (std::vector<std::string>{"moe 5x256 bf16, 3 of 4 experts, 128 pairs"}));
}

TEST(Moe, IsExplainedLaunchByLaunch) {
    MoeShape shape{.tokens = 64, .choices = 8, .hidden = 7168, .intermediate = 2048, .experts = 256};
    for (const bool fused : {true, false}) {
        shape.fused = fused;
        const auto told = nlohmann::json::parse(explain(shape, "h200"));
        EXPECT_EQ(told["fused"], fused);
        EXPECT_EQ(told["launches"].size(), fused ? 5u : 6u);
        EXPECT_EQ(told["launches"][2]["kernel"].get<std::string>().ends_with("_gated"), fused);
        EXPECT_EQ(told["workspace_bytes"], moe_workspace_bytes(shape));
        double us = 0;
        for (const auto& launch : told["launches"]) us += launch["us"].get<double>();
        EXPECT_NEAR(told["us"], us, 1e-9);
        const double weights = told["launches"][2]["bytes"];
        EXPECT_GT(weights, 220.0 * 4096 * 7168) << "nearly all experts have rows";
        EXPECT_EQ(told["launches"][2]["line"].get<std::string>().substr(0, 23), "gemm 512x4096x7168 e4m3");
    }
    shape.fused.reset();
    const auto few = nlohmann::json::parse(explain(shape, "h200"));
    shape.tokens = 16384;
    const auto many = nlohmann::json::parse(explain(shape, "h200"));
    EXPECT_EQ(many["fused"], true) << many["why"];
    EXPECT_GT(many["us"], few["us"]);
    shape.intermediate = 1040;
    EXPECT_EQ(nlohmann::json::parse(explain(shape, "h200"))["fused"], false);
}

TEST(Moe, ExplainsThatBiasesTakeALaunchForTheActivation) {
    MoeShape shape{.tokens = 4096, .choices = 8, .hidden = 7168, .intermediate = 2048, .experts = 256, .biased = true};
    const auto told = nlohmann::json::parse(explain(shape, "h200"));
    EXPECT_EQ(told["fused"], false);
    EXPECT_TRUE(told["why"][0].get<std::string>().starts_with("biases are added with the activation")) << told["why"];
    ASSERT_EQ(told["launches"].size(), 6u);
    EXPECT_EQ(told["launches"][3]["kernel"], "FineGEMM_swiglu_quantize_BF16_biased");
    EXPECT_EQ(told["launches"][5]["kernel"], "FineGEMM_routing_combine_biased");
}

TEST(Moe, ExpectsAsManyRowsAsItIsTold) {
    MoeShape shape{.tokens = 4096, .choices = 8, .hidden = 7168, .intermediate = 2048, .experts = 8};
    const double all = nlohmann::json::parse(explain(shape, "h200"))["us"];
    shape.expected_m = 128;
    EXPECT_LT(nlohmann::json::parse(explain(shape, "h200"))["us"], all / 4);
}

}  // namespace
}  // namespace finegemm::test
