// Calls of routing that are wrong, for misuse_test.cpp, and right ones in C. Layer tests.
#pragma once

#include "api/calls.h"

namespace finegemm::test {

/// Three tokens choose two of the experts 4 and 5, or others; 9 rows, of which expert 5 begins at a multiple of 4.
struct RouteCallInC {
    Buffer<int32_t> ids{DType::I32, 3, 2}, inverse{DType::I32, 3, 2}, numbers{DType::I32, 1, 2},
        permutation{DType::I32, 1, 9};
    finegemm_route_args args{};
    finegemm_route_options options{sizeof(finegemm_route_options), 0, 0, 0, nullptr, nullptr, nullptr};
    finegemm_error error{};

    RouteCallInC() {
        constexpr int32_t kIds[] = {5, 4, 7, 5, 4, -1};
        for (int64_t i = 0; i < 6; ++i) ids.at(i / 2, i % 2) = kIds[i];
        args = {.ids = c_matrix(ConstMatrix(ids.view())),
                .inverse = c_matrix(ConstMatrix(inverse.view())),
                .numbers = c_matrix(ConstMatrix(numbers.view())),
                .permutation = c_matrix(ConstMatrix(permutation.view())),
                .form = FINEGEMM_PREFIX_SUMS,
                .reserved = 0,
                .experts = 2,
                .first = 4,
                .rows = 9,
                .alignment = 4};
    }
    int32_t run(finegemm_context* context) { return finegemm_route(context, &args, &options, &error); }
};

/// Tokens of 128 bf16 whose elements are 448, 896 and 1344, to 9 rows of e4m3.
struct PermuteCallInC {
    Buffer<uint16_t> x{DType::BF16, 3, 128};
    Buffer<int32_t> inverse{DType::I32, 3, 2};
    Buffer<uint8_t> q{DType::E4M3, 9, 128};
    Buffer<float> scales{DType::F32, 9, 1};
    finegemm_permute_quantize_args args{};
    finegemm_permute_options options{sizeof(finegemm_permute_options), 0, 0, 0, 0, 0, nullptr, nullptr, nullptr};
    finegemm_error error{};

    PermuteCallInC() {
        constexpr uint16_t kElements[] = {0x43e0, 0x4460, 0x44a8};
        constexpr int32_t kRows[] = {4, 0, -1, 5, 1, -1};
        for (int64_t t = 0; t < 3; ++t) {
            for (int64_t i = 0; i < 128; ++i) x.at(t, i) = kElements[t];
            for (int64_t c = 0; c < 2; ++c) inverse.at(t, c) = kRows[t * 2 + c];
        }
        args.x = c_matrix(ConstMatrix(x.view()));
        args.inverse = c_matrix(ConstMatrix(inverse.view()));
        args.q = {c_matrix(ConstMatrix(q.view())), 1, 0};
        args.scales = {c_matrix(ConstMatrix(scales.view())), 1, 0};
    }
    int32_t run(finegemm_context* context) { return finegemm_permute_quantize(context, &args, &options, &error); }
};

/// Nine rows of 8 bf16, each of its number, to three tokens.
struct CombineCallInC {
    Buffer<uint16_t> y{DType::BF16, 9, 8}, out{DType::BF16, 3, 8};
    Buffer<int32_t> inverse{DType::I32, 3, 2};
    Buffer<float> weights{DType::F32, 3, 2};
    finegemm_combine_args args{};
    finegemm_combine_options options{sizeof(finegemm_combine_options), 0, 0, 0, nullptr, nullptr, nullptr};
    finegemm_error error{};

    CombineCallInC() {
        const PermuteCallInC rows;
        for (int64_t r = 0; r < 9; ++r)
            for (int64_t i = 0; i < 8; ++i) y.at(r, i) = bf16_of_float(static_cast<float>(r));
        constexpr int32_t kRows[] = {4, 0, -1, 5, 1, -1};
        for (int64_t i = 0; i < 6; ++i)
            inverse.at(i / 2, i % 2) = kRows[i], weights.at(i / 2, i % 2) = 0.5f * static_cast<float>(i + 1);
        args = {.y = {c_matrix(ConstMatrix(y.view())), 1, 0},
                .inverse = c_matrix(ConstMatrix(inverse.view())),
                .weights = c_matrix(ConstMatrix(weights.view())),
                .out = c_matrix(ConstMatrix(out.view()))};
    }
    int32_t run(finegemm_context* context) { return finegemm_combine(context, &args, &options, &error); }
};

template <typename Call>
struct RoutingMisuse {
    const char* name;
    void (*spoil)(Call&);
};

inline const RoutingMisuse<RouteCallInC> kRoute[] = {
    {"ids are f32", [](RouteCallInC& c) { c.args.ids.dtype = FINEGEMM_F32; }},
    {"17 choices", [](RouteCallInC& c) { set_shape(c.args.ids, 1, 17), set_shape(c.args.inverse, 1, 17); }},
    {"2^24 choices", [](RouteCallInC& c) { set_shape(c.args.ids, 1 << 20, 16); }},
    {"ids have -1 rows", [](RouteCallInC& c) { c.args.ids.rows = -1; }},
    {"form is 5", [](RouteCallInC& c) { c.args.form = FINEGEMM_WHOLE; }},
    {"no expert", [](RouteCallInC& c) { c.args.experts = 0; }},
    {"1025 experts", [](RouteCallInC& c) { c.args.experts = 1025; }},
    {"no row", [](RouteCallInC& c) { c.args.rows = 0; }},
    {"too many rows of masked groups", [](RouteCallInC& c) { c.args.form = FINEGEMM_MASKED, c.args.rows = 1 << 30; }},
    {"alignment is 3", [](RouteCallInC& c) { c.args.alignment = 3; }},
    {"alignment of indices is 4", [](RouteCallInC& c) { c.args.form = FINEGEMM_INDICES; }},
    {"inverse is i64", [](RouteCallInC& c) { c.args.inverse.dtype = FINEGEMM_I64; }},
    {"inverse is [2, 3]", [](RouteCallInC& c) { set_shape(c.args.inverse, 2, 3); }},
    {"numbers of offsets lack one", [](RouteCallInC& c) { c.args.form = FINEGEMM_OFFSETS; }},
    {"permutation has 8 columns", [](RouteCallInC& c) { c.args.permutation.cols = 8; }},
    {"permutation is in inverse", [](RouteCallInC& c) { c.args.permutation.data = c.args.inverse.data; }},
    {"numbers are ids", [](RouteCallInC& c) { c.args.numbers.data = c.args.ids.data; }},
    {"inverse is null", [](RouteCallInC& c) { c.args.inverse.data = nullptr; }},
    {"ids are transposed", [](RouteCallInC& c) { set_strides(c.args.ids, 1, 3); }},
    {"numbers are on a GPU", [](RouteCallInC& c) { c.args.numbers.device_type = FINEGEMM_CUDA; }},
    {"more choices than rows",
     [](RouteCallInC& c) { c.args.rows = c.args.permutation.cols = 5, c.options.check_values = 1; }},
    {"pdl is 2", [](RouteCallInC& c) { c.options.pdl = 2; }},
    {"args have a reserved field", [](RouteCallInC& c) { c.args.reserved = 1; }},
    {"options have half their size", [](RouteCallInC& c) { c.options.struct_size /= 2; }},
};

inline const RoutingMisuse<PermuteCallInC> kPermute[] = {
    {"x is f32", [](PermuteCallInC& c) { c.args.x.dtype = FINEGEMM_F32; }},
    {"q is f16 of bf16", [](PermuteCallInC& c) { c.args.q.matrix.dtype = FINEGEMM_F16; }},
    {"x has 100 columns", [](PermuteCallInC& c) { c.args.x.cols = 100; }},
    {"q has 64 columns", [](PermuteCallInC& c) { c.args.q.matrix.cols = 64; }},
    {"q has no row", [](PermuteCallInC& c) { c.args.q.matrix.rows = 0; }},
    {"inverse is f32", [](PermuteCallInC& c) { c.args.inverse.dtype = FINEGEMM_F32; }},
    {"inverse has two rows", [](PermuteCallInC& c) { c.args.inverse.rows = 2; }},
    {"scales are left out", [](PermuteCallInC& c) { c.args.scales.matrix = {}; }},
    {"scales have two columns", [](PermuteCallInC& c) { c.args.scales.matrix.cols = 2; }},
    {"scales are of two matrices", [](PermuteCallInC& c) { c.args.scales.count = 2; }},
    {"bf16 has scales", [](PermuteCallInC& c) { c.args.x_scales = c.args.scales.matrix; }},
    {"copies of bf16 have scales", [](PermuteCallInC& c) { c.args.q.matrix.dtype = FINEGEMM_BF16; }},
    {"e4m3 lacks scales", [](PermuteCallInC& c) { c.args.x.dtype = FINEGEMM_E4M3; }},
    {"q is x", [](PermuteCallInC& c) { c.args.q.matrix.data = c.args.x.data; }},
    {"two choices have a row", [](PermuteCallInC& c) { c.inverse.at(1, 0) = 4, c.options.check_values = 1; }},
    {"num_sms is -1", [](PermuteCallInC& c) { c.options.num_sms = -1; }},
    {"options have a reserved field", [](PermuteCallInC& c) { c.options.reserved = 1; }},
};

inline const RoutingMisuse<CombineCallInC> kCombine[] = {
    {"y is f32", [](CombineCallInC& c) { c.args.y.matrix.dtype = FINEGEMM_F32; }},
    {"out has 16 columns", [](CombineCallInC& c) { c.args.out.cols = 16; }},
    {"out has two rows", [](CombineCallInC& c) { c.args.out.rows = 2; }},
    {"weights are bf16", [](CombineCallInC& c) { c.args.weights.dtype = FINEGEMM_BF16; }},
    {"weights are transposed", [](CombineCallInC& c) { set_shape(c.args.weights, 2, 3); }},
    {"out is y", [](CombineCallInC& c) { c.args.out.data = c.args.y.matrix.data; }},
    {"a row does not exist", [](CombineCallInC& c) { c.inverse.at(2, 1) = 9, c.options.check_values = 1; }},
    {"y is on a GPU", [](CombineCallInC& c) { c.args.y.matrix.device_type = FINEGEMM_CUDA; }},
    {"pdl is -1", [](CombineCallInC& c) { c.options.pdl = -1; }},
};

/// What the library says to each, by name.
template <typename Sentences>
Sentences routing_misuses() {
    Sentences said;
    const CContext context;
    const auto record = [&]<typename Call>(const std::string& of, const RoutingMisuse<Call>& m) {
        Call call;
        m.spoil(call);
        call.run(context.get());
        said[of + ": " + m.name] = {call.error.code, call.error.message};
    };
    for (const auto& m : kRoute) record("route", m);
    for (const auto& m : kPermute) record("permute_quantize", m);
    for (const auto& m : kCombine) record("combine", m);
    finegemm_error e;
    finegemm_route(context.get(), nullptr, nullptr, &e), said["route: args are null"] = {e.code, e.message};
    return said;
}

}  // namespace finegemm::test
