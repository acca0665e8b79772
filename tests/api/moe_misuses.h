// A layer of experts in C: right, and wrong for misuse_test.cpp. Layer tests.
#pragma once

#include <string>

#include "api/calls.h"

namespace finegemm::test {

/// Five tokens choose three of the experts 4 to 7, or others: one an expert twice, one none at all. H is 256, I 128.
struct MoeCallInC {
    static constexpr int64_t kTokens = 5, kChoices = 3, kExperts = 4, kHidden = 256, kPairs = 128, kFirst = 4;
    static constexpr int32_t kIds[kTokens][kChoices] = {{7, 4, 5}, {4, -1, 11}, {3, 8, -7}, {5, 5, 7}, {7, 6, 4}};

    Buffer<uint16_t> x{DType::BF16, kTokens, kHidden}, out{DType::BF16, kTokens, kHidden};
    Buffer<int32_t> ids{DType::I32, kTokens, kChoices};
    Buffer<float> weights{DType::F32, kTokens, kChoices};
    /// Weights of all experts, one below the other, with a scale for each 128x128 of them.
    struct Weights {
        Buffer<uint8_t> codes;
        Buffer<float> scales;
        Weights(int64_t rows, int64_t cols, uint32_t seed)
            : codes(DType::E4M3, rows, cols), scales(DType::F32, rows / 128, cols / 128) {
            std::minstd_rand random(seed);
            for (int64_t i = 0; i < rows * cols; ++i) {
                const auto bits = static_cast<uint32_t>(random()) >> 8;
                codes.data()[i] =
                    static_cast<uint8_t>((bits & 0x80) | (0x28 + bits % 16));  // from 1/4 to 1, or below 0
            }
            for (int64_t i = 0; i < rows / 128 * (cols / 128); ++i)
                scales.data()[i] = 0.25f + static_cast<float>(i % 5) / 16;
        }
    };
    Weights gate_up{kExperts * 2 * kPairs, kHidden, 3}, down{kExperts * kHidden, kPairs, 4};
    Buffer<float> gate_up_bias{DType::F32, kExperts, 2 * kPairs};
    Buffer<uint16_t> down_bias{DType::BF16, kExperts, kHidden};
    finegemm_moe_args args{};
    finegemm_moe_options options{};
    finegemm_error error{};

    MoeCallInC() {
        std::mt19937 random(43);
        std::normal_distribution<float> normal;
        for (int64_t t = 0; t < kTokens; ++t) {
            for (int64_t i = 0; i < kHidden; ++i) x.at(t, i) = bf16_of_float(normal(random));
            for (int64_t c = 0; c < kChoices; ++c)
                ids.at(t, c) = kIds[t][c], weights.at(t, c) = 0.25f + 0.125f * static_cast<float>(t + c);
        }
        args.x = c_matrix(ConstMatrix(x.view()));
        args.ids = c_matrix(ConstMatrix(ids.view()));
        args.weights = c_matrix(ConstMatrix(weights.view()));
        args.gate_up = experts(gate_up.codes.view()), args.gate_up_scales = experts(gate_up.scales.view());
        args.down = experts(down.codes.view()), args.down_scales = experts(down.scales.view());
        args.first = kFirst;
        args.out = c_matrix(ConstMatrix(out.view()));
        options.struct_size = sizeof options;
        options.gate_alpha = 1;
    }
    /// Rows of all experts as a matrix for each.
    static finegemm_stack experts(ConstMatrix all) {
        all.rows /= kExperts;
        return {c_matrix(all), kExperts, all.rows * all.row_stride};
    }
    void add_biases() {
        for (int64_t e = 0; e < kExperts; ++e) {
            for (int64_t i = 0; i < 2 * kPairs; ++i)
                gate_up_bias.at(e, i) = static_cast<float>((i * 7 + e * 5) % 23) / 16 - 0.6f;
            for (int64_t i = 0; i < kHidden; ++i)
                down_bias.at(e, i) = bf16_of_float(static_cast<float>((i * 5 + e * 3) % 19) / 2 - 4);
        }
        options.gate_up_bias = c_matrix(ConstMatrix(gate_up_bias.view()));
        options.down_bias = c_matrix(ConstMatrix(down_bias.view()));
    }
    int32_t run(finegemm_context* context) { return finegemm_moe(context, &args, &options, &error); }
};

struct MoeMisuse {
    const char* name;
    void (*spoil)(MoeCallInC&);
};

inline const MoeMisuse kMoe[] = {
    {"x is f32", [](MoeCallInC& c) { c.args.x.dtype = FINEGEMM_F32; }},
    {"x has 40 columns", [](MoeCallInC& c) { c.args.x.cols = 40; }},
    {"x has 2^21 columns", [](MoeCallInC& c) { c.args.x.cols = 1 << 21; }},
    {"x has 2^30 rows of 2^20 columns", [](MoeCallInC& c) { c.args.x.rows = 1 << 30, c.args.x.cols = 1 << 20; }},
    {"numerics are 3", [](MoeCallInC& c) { c.options.numerics = 3; }},
    {"x has -1 rows", [](MoeCallInC& c) { c.args.x.rows = -1; }},
    {"x is e4m3 without scales", [](MoeCallInC& c) { c.args.x.dtype = FINEGEMM_E4M3; }},
    {"x is bf16 with scales", [](MoeCallInC& c) { c.args.x_scales = c.args.weights; }},
    {"x_scales are of 32 columns",
     [](MoeCallInC& c) { c.args.x.dtype = FINEGEMM_E4M3, c.args.x_scales = c.args.weights; }},
    {"ids are f32", [](MoeCallInC& c) { c.args.ids.dtype = FINEGEMM_F32; }},
    {"ids are of four tokens", [](MoeCallInC& c) { c.args.ids.rows = 4; }},
    {"17 choices", [](MoeCallInC& c) { c.args.ids.cols = 17; }},
    {"2^24 choices", [](MoeCallInC& c) { c.args.x.rows = c.args.ids.rows = 1 << 20, c.args.ids.cols = 16; }},
    {"weights are bf16", [](MoeCallInC& c) { c.args.weights.dtype = FINEGEMM_BF16; }},
    {"weights are transposed", [](MoeCallInC& c) { set_shape(c.args.weights, 3, 5); }},
    {"gate_up is bf16", [](MoeCallInC& c) { c.args.gate_up.matrix.dtype = FINEGEMM_BF16; }},
    {"no expert", [](MoeCallInC& c) { c.args.gate_up.count = 0; }},
    {"1025 experts", [](MoeCallInC& c) { c.args.gate_up.count = 1025; }},
    {"gate_up is transposed", [](MoeCallInC& c) { set_shape(c.args.gate_up.matrix, 256, 128); }},
    {"gate_up has 40 rows",
     [](MoeCallInC& c) { c.args.gate_up.matrix.rows = 40, c.args.gate_up_scales.matrix.rows = 1; }},
    {"gate_up_scales are of rows", [](MoeCallInC& c) { c.args.gate_up_scales.matrix.rows = 256; }},
    {"gate_up_scales are of three experts", [](MoeCallInC& c) { c.args.gate_up_scales.count = 3; }},
    {"gate_up has overlapping rows", [](MoeCallInC& c) { c.args.gate_up.matrix.row_stride = 128; }},
    {"down is of three experts", [](MoeCallInC& c) { c.args.down.count = 3; }},
    {"down has 64 columns", [](MoeCallInC& c) { c.args.down.matrix.cols = 64; }},
    {"down has 128 rows", [](MoeCallInC& c) { c.args.down.matrix.rows = 128, c.args.down_scales.matrix.rows = 1; }},
    {"down_scales are e4m3", [](MoeCallInC& c) { c.args.down_scales.matrix.dtype = FINEGEMM_E4M3; }},
    {"down is null", [](MoeCallInC& c) { c.args.down.matrix.data = nullptr; }},
    {"down is on a GPU", [](MoeCallInC& c) { c.args.down.matrix.device_type = FINEGEMM_CUDA; }},
    {"out is f32", [](MoeCallInC& c) { c.args.out.dtype = FINEGEMM_F32; }},
    {"out has four rows", [](MoeCallInC& c) { c.args.out.rows = 4; }},
    {"out is x", [](MoeCallInC& c) { c.args.out.data = c.args.x.data; }},
    {"the workspace has 100 bytes",
     [](MoeCallInC& c) { c.args.workspace = c.out.data(), c.args.workspace_bytes = 100; }},
    {"the workspace is the weights",
     [](MoeCallInC& c) { c.args.workspace = c.gate_up.codes.data(), c.args.workspace_bytes = 1 << 16; }},
    {"gate_alpha is 0", [](MoeCallInC& c) { c.options.gate_alpha = 0; }},
    {"gate_limit is -1", [](MoeCallInC& c) { c.options.gate_limit = -1; }},
    {"up_offset is NaN", [](MoeCallInC& c) { c.options.up_offset = kNan; }},
    {"f32 between without a gated product",
     [](MoeCallInC& c) { c.options.f32_between = 1, c.options.fused = FINEGEMM_OFF; }},
    {"a gated product of 64 pairs",
     [](MoeCallInC& c) {
         c.args.gate_up.matrix.rows = 128, c.args.gate_up_scales.matrix.rows = 1;
         c.args.down.matrix.cols = 64, c.options.fused = FINEGEMM_ON;
     }},
    {"fused is 3", [](MoeCallInC& c) { c.options.fused = 3; }},
    {"-1 rows", [](MoeCallInC& c) { c.options.rows = -1; }},
    {"-1 expected rows", [](MoeCallInC& c) { c.options.expected_m = -1; }},
    {"num_sms is -1", [](MoeCallInC& c) { c.options.num_sms = -1; }},
    {"more choices than rows", [](MoeCallInC& c) { c.options.rows = 5, c.options.check_values = FINEGEMM_ON; }},
    {"a scale of gate_up is NaN",
     [](MoeCallInC& c) { c.gate_up.scales.at(3, 1) = kNan, c.options.check_values = FINEGEMM_ON; }},
    {"a scale of down is negative",
     [](MoeCallInC& c) { c.down.scales.at(3, 0) = -1, c.options.check_values = FINEGEMM_ON; }},
    {"weights_first is 2", [](MoeCallInC& c) { c.options.weights_first = 2; }},
    {"options have half their size", [](MoeCallInC& c) { c.options.struct_size = 44; }},
    {"a bias of gate_up alone", [](MoeCallInC& c) { c.add_biases(), c.options.down_bias = {}; }},
    {"a bias of down alone", [](MoeCallInC& c) { c.add_biases(), c.options.gate_up_bias = {}; }},
    {"gate_up_bias is f16", [](MoeCallInC& c) { c.add_biases(), c.options.gate_up_bias.dtype = FINEGEMM_F16; }},
    {"gate_up_bias has 3 rows", [](MoeCallInC& c) { c.add_biases(), c.options.gate_up_bias.rows = 3; }},
    {"down_bias has 128 columns", [](MoeCallInC& c) { c.add_biases(), c.options.down_bias.cols = 128; }},
    {"rows of down_bias overlap", [](MoeCallInC& c) { c.add_biases(), c.options.down_bias.row_stride = 128; }},
    {"down_bias is on a GPU", [](MoeCallInC& c) { c.add_biases(), c.options.down_bias.device_type = FINEGEMM_CUDA; }},
    {"down_bias is out",
     [](MoeCallInC& c) {
         c.add_biases(), c.options.down_bias.data = c.args.out.data, c.options.down_bias.row_stride = c.kHidden;
     }},
    {"biases and a gated product", [](MoeCallInC& c) { c.add_biases(), c.options.fused = FINEGEMM_ON; }},
    {"biases and f32 between", [](MoeCallInC& c) { c.add_biases(), c.options.f32_between = 1; }},
};

/// What the library says to each, by name.
template <typename Sentences>
Sentences moe_misuses() {
    Sentences said;
    const CContext context;
    for (const MoeMisuse& m : kMoe) {
        MoeCallInC call;
        m.spoil(call);
        call.run(context.get());
        said[std::string("moe: ") + m.name] = {call.error.code, call.error.message};
    }
    finegemm_error e;
    const auto record = [&](const char* name) { said[std::string("moe: ") + name] = {e.code, e.message}; };
    finegemm_moe(context.get(), nullptr, nullptr, &e), record("args are null");
    int64_t bytes = 0;
    const std::pair<const char*, void (*)(finegemm_moe_shape&)> shapes[] = {
        {"a shape of -1 tokens", [](finegemm_moe_shape& s) { s.tokens = -1; }},
        {"a shape of 17 choices", [](finegemm_moe_shape& s) { s.choices = 17; }},
        {"a shape of 2^24 choices", [](finegemm_moe_shape& s) { s.tokens = 1 << 20, s.choices = 16; }},
        {"a shape of 100 hidden", [](finegemm_moe_shape& s) { s.hidden = 100; }},
        {"a shape without pairs", [](finegemm_moe_shape& s) { s.intermediate = 0; }},
        {"a shape without experts", [](finegemm_moe_shape& s) { s.experts = 0; }},
        {"a shape of four_bit 9", [](finegemm_moe_shape& s) { s.four_bit = 9; }},
        {"a shape of four_bit_alone without a format", [](finegemm_moe_shape& s) { s.four_bit_alone = 1; }},
        {"a shape of int4 and FP8", [](finegemm_moe_shape& s) { s.four_bit = FINEGEMM_INT4; }},
        {"a shape that is biased and fused", [](finegemm_moe_shape& s) { s.biased = 1, s.fused = FINEGEMM_ON; }},
        {"a shape has a reserved field", [](finegemm_moe_shape& s) { s.reserved = 1; }},
    };
    for (const auto& [name, spoil] : shapes) {
        finegemm_moe_shape shape{.struct_size = sizeof shape,
                                 .num_sms = 0,
                                 .f32_between = 0,
                                 .fused = 0,
                                 .tokens = 5,
                                 .choices = 3,
                                 .hidden = 256,
                                 .intermediate = 128,
                                 .experts = 4,
                                 .rows = 0,
                                 .expected_m = 0,
                                 .device = "h200",
                                 .four_bit = 0,
                                 .four_bit_alone = 0,
                                 .biased = 0,
                                 .reserved = 0};
        spoil(shape);
        finegemm_moe_workspace_bytes(&shape, &bytes, &e), record(name);
    }
    finegemm_explain_moe(nullptr, nullptr, 0, nullptr, &e), record("a shape is null");
    return said;
}

}  // namespace finegemm::test
