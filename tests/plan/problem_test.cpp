// Problems: their line of text, and which fields belong to which. Layer tests.
#include "plan/problem.h"

#include <gtest/gtest.h>

#include <set>

#include "plan/fields.h"
#include "support/error_of.h"

namespace finegemm::plan {
namespace {

using test::contains;
using test::error_of;

constexpr Operand kRowScales{.scaling = Scaling::Rows}, kMx{.scaling = Scaling::Mx},
    kBF16 = unscaled(Element::BF16), kF16 = unscaled(Element::F16), kMnBF16 = unscaled(Element::BF16, Major::MN),
    kE5m2{.element = Element::E5M2};

const std::pair<Problem, const char*> kLines[] = {
    {{64, 2112, 7168}, "gemm 64x2112x7168 e4m3:row128 e4m3:block128 bf16"},
    {{64, 2112, 7168, true, 60}, "gemm 64x2112x7168 e4m3:row128 e4m3:block128 bf16 num_sms=60 batch_invariant"},
    {{.m = 1, .n = 8, .k = 16, .b = kRowScales}, "gemm 1x8x16 e4m3:row128 e4m3:row128 bf16"},
    {{.m = 1, .n = 8, .k = 16, .b = kRowScales, .d = {DType::F32, true}},
     "gemm 1x8x16 e4m3:row128 e4m3:row128 f32 accumulate"},
    {{.m = 8192, .n = 4096, .k = 7168, .groups = {Grouping::Rows, 64, 100, 128}},
     "gemm 8192x4096x7168 e4m3:row128 e4m3:block128 bf16 groups=64 expected_m=100 alignment=128"},
    {{.m = 4096, .n = 7168, .k = 32768, .b = kRowScales, .d = {DType::F32}, .groups = {Grouping::K, 8}},
     "gemm 4096x7168x32768 e4m3:row128 e4m3:row128 f32 k_groups=8"},
    {{.m = 64, .n = 2112, .k = 7168, .a = kBF16, .b = kBF16}, "gemm 64x2112x7168 bf16 bf16 bf16"},
    {{.m = 64, .n = 2112, .k = 7176, .a = kBF16, .b = kBF16, .d = {DType::F32}, .groups = {Grouping::Rows, 4}},
     "gemm 64x2112x7176 bf16 bf16 f32 groups=4"},
    {{.m = 64, .n = 2112, .k = 7168, .a = kBF16, .b = kBF16, .d = {DType::F32, true}, .groups = {Grouping::K, 4}},
     "gemm 64x2112x7168 bf16 bf16 f32 k_groups=4 accumulate"},
    {{.m = 64, .n = 2112, .k = 7168, .d = {DType::F16}}, "gemm 64x2112x7168 e4m3:row128 e4m3:block128 f16"},
    {{.m = 64, .n = 2112, .k = 7168, .d = {DType::F32, false, Finish::Affine}},
     "gemm 64x2112x7168 e4m3:row128 e4m3:block128 f32 affine"},
    {{.m = 64,
      .n = 2112,
      .k = 7168,
      .a = kBF16,
      .b = kBF16,
      .d = {.finish = Finish::Affine},
      .groups = {Grouping::Rows, 4}},
     "gemm 64x2112x7168 bf16 bf16 bf16 groups=4 affine"},
    {{.m = 64, .n = 2048, .k = 512, .d = {.finish = Finish::HeadGaps}},
     "gemm 64x2048x512 e4m3:row128 e4m3:block128 bf16 head_gaps"},
    {{.m = 64, .n = 2048, .k = 512, .d = {.finish = Finish::Gated}},
     "gemm 64x2048x512 e4m3:row128 e4m3:block128 bf16 gated"},
    {{.m = 1, .n = 8, .k = 16, .a = kMx, .b = kMx}, "gemm 1x8x16 e4m3:row32 e4m3:row32 bf16"},
    {{.m = 1, .n = 8, .k = 16, .b = kMx, .groups = {Grouping::Rows, 2}},
     "gemm 1x8x16 e4m3:row128 e4m3:row32 bf16 groups=2"},
    {{.m = 64, .n = 2112, .k = 7168, .a = kF16, .b = kF16, .d = {DType::F16}}, "gemm 64x2112x7168 f16 f16 f16"},
    {{.m = 64, .n = 2112, .k = 7168, .a = kF16, .b = kF16, .d = {DType::F32}, .groups = {Grouping::K, 4}},
     "gemm 64x2112x7168 f16 f16 f32 k_groups=4"},
    {{.m = 64, .n = 2112, .k = 7168, .a = kBF16, .b = kBF16, .d = {DType::F32, true}, .groups = {Grouping::Sum, 7}},
     "gemm 64x2112x7168 bf16 bf16 f32 summed=7 accumulate"},
    {{.m = 64, .n = 2112, .k = 7168, .a = kBF16, .b = kMnBF16}, "gemm 64x2112x7168 bf16 bf16 bf16 b_mn_major"},
    {{.m = 64, .n = 2112, .k = 7168, .a = kMnBF16, .b = kBF16}, "gemm 64x2112x7168 bf16 bf16 bf16 a_mn_major"},
    {{.m = 64, .n = 2112, .k = 7168, .a = kMnBF16, .b = kMnBF16, .d = {DType::F32}, .groups = {Grouping::K, 4}},
     "gemm 64x2112x7168 bf16 bf16 f32 k_groups=4 a_mn_major b_mn_major"},
    {{.m = 64, .n = 2112, .k = 7168, .a = kE5m2}, "gemm 64x2112x7168 e5m2:row128 e4m3:block128 bf16"},
    {{.m = 64, .n = 2112, .k = 7168, .b = kE5m2, .d = {DType::F32}}, "gemm 64x2112x7168 e4m3:row128 e5m2:row128 f32"},
    {{.m = 64, .n = 2112, .k = 7168, .a = kE5m2, .b = kRowScales, .d = {DType::F32}, .groups = {Grouping::K, 4}},
     "gemm 64x2112x7168 e5m2:row128 e4m3:row128 f32 k_groups=4"},
};

TEST(Line, SaysAProblemAndIsReadBack) {
    for (const auto& [problem, line] : kLines) {
        EXPECT_EQ(text_of(problem), line);
        const GemmShape shape = parse_shape(line);
        EXPECT_NO_THROW(check_shape(shape)) << line;
        EXPECT_EQ(problem_of(shape), problem) << line;
        EXPECT_EQ(problem_of(shape_of(problem)), problem) << line;
    }
}

TEST(Line, MayLeaveOutWhatHasItsDefault) {
    EXPECT_EQ(problem_of(parse_shape("gemm 64x2112x7168")), kLines[0].first);
    EXPECT_EQ(problem_of(parse_shape(" gemm  64x2112x7168 batch_invariant num_sms=60 ")), kLines[1].first);
    EXPECT_EQ(problem_of(parse_shape("gemm 4096x7168x32768 k_groups=8")), kLines[5].first);
}

TEST(Line, MayHaveACommentAsLogsHave) {
    const Problem problem = problem_of(parse_shape("gemm 1x8x16  # cuda:0, m64n128s6w1, pack, 3.1 us"));
    EXPECT_EQ(problem, problem_of(parse_shape("gemm 1x8x16")));
    EXPECT_THROW(parse_shape("# gemm 1x8x16"), Error);
}

TEST(Line, ThatIsNoneIsRejectedWithTheWord) {
    for (const auto& [line, word] : {std::pair{"", ""},
                                     {"64x2112x7168", "64x2112x7168"},
                                     {"gemm", ""},
                                     {"gemm 64x2112", "64x2112"},
                                     {"gemm 64x2112x7168x1", "64x2112x7168x1"},
                                     {"gemm 64x2112xK", "64x2112xK"},
                                     {"gemm 1x8x16 e4m3:row128", ""},
                                     {"gemm 1x8x16 e4m3:row128 bf16:block128 bf16", "bf16:block128"},
                                     {"gemm 1x8x16 e4m3:row128 e4m3:block128 f64", "f64"},
                                     {"gemm 1x8x128 e4m3:row128 e4m3:block128 f32 k_groups=2", "e4m3:block128"},
                                     {"gemm 1x8x16 bf16 e4m3:block128 bf16", "e4m3:block128"},
                                     {"gemm 1x8x16 sideways", "sideways"},
                                     {"gemm 1x8x16 groups", "groups"},
                                     {"gemm 1x8x16 groups=", "groups="},
                                     {"gemm 1x8x16 groups=4x", "groups=4x"},
                                     {"gemm 1x8x16 accumulate=1", "accumulate=1"}}) {
        const Error e = error_of([&line = line] { parse_shape(line); });
        EXPECT_EQ(e.code(), Errc::InvalidArgument) << line;
        EXPECT_TRUE(contains(e, std::string("problem: '") + line + "' is not understood at '" + word + "', must be"))
            << e.what();
    }
}

TEST(Fields, ThatDoNotBelongToAProductAreRejectedByName) {
    const GemmShape dense{.m = 1, .n = 8, .k = 128};
    GemmShape rows = dense, of_k = dense;
    rows.groups = 4, of_k.k_groups = 4;
    for (const GemmShape& good : {dense, rows, of_k}) EXPECT_NO_THROW(check_shape(good));
    const auto rejected = [](GemmShape shape, auto member, auto value) {
        shape.*member = value;
        return std::string(error_of([&] { check_shape(shape); }).what());
    };
    EXPECT_EQ(rejected(dense, &GemmShape::expected_m, 5),
              "expected_m: is 5, does not belong to one product; leave it out");
    EXPECT_EQ(rejected(of_k, &GemmShape::alignment, 64),
              "alignment: is 64, does not belong to groups of K; leave it out");
    EXPECT_EQ(rejected(rows, &GemmShape::accumulate, true),
              "accumulate: is true, does not belong to groups of rows; leave it out");
    EXPECT_EQ(rejected(rows, &GemmShape::k_groups, 2),
              "k_groups: is 2, does not belong to groups of rows; leave it out");
    EXPECT_EQ(rejected(dense, &GemmShape::summed, 2),
              "dtype: is e4m3, must be bf16 or f16 where products are summed; "
              "set it");
    GemmShape sum = dense;
    sum.dtype = DType::BF16, sum.k = 48;
    EXPECT_NO_THROW(check_shape(sum));
    for (const int64_t fits : {1, 2, 6}) {
        sum.summed = fits;
        EXPECT_NO_THROW(check_shape(sum)) << fits;
    }
    EXPECT_EQ(rejected(sum, &GemmShape::summed, 4),
              "K: is 48, must be 4 times the K of each matrix, a multiple of 8; pad A and B with zeros");
}

TEST(Fields, SayWhichLayoutsThereAreKernelsFor) {
    const GemmShape good{.m = 64, .n = 64, .k = 1024, .dtype = DType::BF16, .b_mn_major = true};
    const auto rejected = [&](auto member, auto value, auto... more) {
        GemmShape shape = good;
        shape.*member = value;
        ((shape.*(more.first) = more.second), ...);
        return std::string(error_of([&] { check_shape(shape); }).what());
    };
    EXPECT_NO_THROW(check_shape(good));
    EXPECT_EQ(rejected(&GemmShape::dtype, std::nullopt),
              "b_mn_major: is set, but a and b are of e4m3, must be of bf16 or f16; leave it out, or set dtype");
    EXPECT_EQ(rejected(&GemmShape::k_groups, 4),
              "b_mn_major: is set, but a_mn_major is not; groups of K take both or neither");
}

/// Not its default.
template <typename T>
void set(T& member) {
    if constexpr (std::is_same_v<T, std::optional<DType>>) member = DType::BF16;
    else member = static_cast<T>(64);
}

TEST(Fields, ReachTheProblemAndAreToldFromIt) {
    const GemmShape dense{.m = 64, .n = 64, .k = 8192};
    GemmShape rows = dense, of_k = dense, sum = dense;
    rows.groups = 4, of_k.k_groups = 4, sum.summed = 4;
    std::set<std::string> kept;
    const auto told_of = [&](GemmShape shape) {
        const GemmShape told = shape_of(problem_of(shape));
        fields(
            [&](const Field& field, const auto& given, const auto& found) {
                if (is_set(given) && found == given) kept.insert(field.name);
            },
            shape, told);
    };
    for (const GemmShape& base : {dense, rows, of_k, sum})
        fields(
            [&](const Field& of, const auto&) {
                GemmShape shape = base;
                shape.row_b_scales = of.name == std::string_view("out_dtype");  // else the type of D is not told
                fields(
                    [&](const Field& field, auto& member) {
                        if (field.name == of.name && field.takers.have(grouping_of(base))) set(member);
                    },
                    shape);
                told_of(shape);
            },
            base);
    fields([&](const Field& field, auto&) { EXPECT_TRUE(kept.contains(field.name)) << field.name << " is lost"; },
           dense);
}

TEST(Fields, TellProblemsApart) {
    std::set<size_t> hashes;
    for (const auto& [problem, line] : kLines) {
        EXPECT_EQ(ProblemHash()(problem), ProblemHash()(problem_of(parse_shape(line))));
        EXPECT_TRUE(hashes.insert(ProblemHash()(problem)).second) << line;
    }
}

}  // namespace
}  // namespace finegemm::plan
