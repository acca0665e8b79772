// The validation mode's look at scales.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/check_values.h"
#include "engine/cpu.h"
#include "support/error_of.h"
#include "support/matrix.h"

namespace finegemm {
namespace {

/// What is said when sfa of row 2, k-block 1 is `bad`, with scales stored MN-major.
std::string message(float bad) {
    test::Problem p(4, 256, 256, 1, true);
    p.sfa.at(1, 2) = bad;
    const Error error = test::error_of([&] { make_cpu_backend({})->check_values({p.args(), {}}); });
    EXPECT_EQ(error.code(), Errc::InvalidArgument);
    return error.what();
}

TEST(CheckScales, NamesTheScaleItsValueTheRuleAndTheWayOut) {
    EXPECT_EQ(message(-1),
              "sfa[2, 1] is -1: scales are finite and not negative; look at what computed it "
              "(quantize_rows and quantize_blocks never make such a scale)");
    EXPECT_TRUE(message(NAN).starts_with("sfa[2, 1] is nan: "));
    EXPECT_TRUE(message(std::numeric_limits<float>::infinity()).starts_with("sfa[2, 1] is inf: "));
}

TEST(CheckScales, NamesTheFirstOfSeveralRowByRow) {
    float scales[6] = {1, 1, 1, -2, 1, 1};  // (2, 3)
    scales[5] = -3;
    const auto check = [&](int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride) {
        const ConstMatrix sfa{nullptr, DType::F32, 0, cols},
            sfb{scales, DType::F32, rows, cols, row_stride, col_stride};
        return test::error_of([&] { check_scale_values({GemmArgs{{}, sfa, {}, sfb, {}}, {}}); });
    };
    EXPECT_TRUE(test::contains(check(2, 3, 3, 1), "sfb[1, 0] is -2"));
    EXPECT_TRUE(test::contains(check(3, 2, 1, 3), "sfb[0, 1] is -2"));
}

TEST(CheckScales, LooksAtThoseOfBToo) {
    test::Problem p(4, 256, 256, 1);
    p.sfb.at(1, 0) = -4;
    const Error error = test::error_of([&] { make_cpu_backend({})->check_values({p.args(), {}}); });
    EXPECT_TRUE(test::contains(error, "sfb[1, 0] is -4"));
}

TEST(CheckScales, AcceptsZeroAndDoesNotLookBesideTheMatrix) {
    test::Problem p(4, 256, 256, 1, false, 16);
    p.sfa.at(0, 0) = p.sfb.at(1, 1) = 0;
    EXPECT_NO_THROW(make_cpu_backend({})->check_values({p.args(), {}}));
    const float padded[] = {1, 2, -1, 3, 4, -1};  // (2, 2), rows of 3
    const ConstMatrix sfa{padded, DType::F32, 2, 2, 3}, sfb{};
    EXPECT_NO_THROW(check_scale_values({GemmArgs{{}, sfa, {}, sfb, {}}, {}}));
}

}  // namespace
}  // namespace finegemm
