// What the Hopper backend launches for weights of 4 bits. Layer tests.
#include <algorithm>

#include "ops/four_bit/planner.h"
#include "support/hopper.h"

namespace finegemm::hopper_four_bit_test {
namespace {

class HopperFourBit : public test::HopperTest {
protected:
    struct Wish {
        GroupForm form = GroupForm::Whole;
        int64_t groups = 1, m = 16, n = 4096, k = 7168, expected_m = 0;
        FourBitFormat format = FourBitFormat::Mxfp4;
        bool fp8 = false;
    };
    mock::Launch run(const Wish& w, const FourBitOptions& options = {}) {
        const Device where{DeviceType::Cuda, 0};
        const bool whole = w.form == GroupForm::Whole, stacked = whole || w.form == GroupForm::Masked;
        const int64_t count = stacked ? w.groups : 1, blocks = (w.k + 127) / 128;
        FourBitArgs args{
            .a = {{test::address(0x1000), DType::E4M3, w.m, w.k, w.k + 16, 1, where}, count, w.m * (w.k + 16)},
            .sfa = {{test::address(0x2000), DType::F32, w.m, blocks, 1, w.m, where}, count, w.m * blocks},
            .b = {test::address(0x3000), w.format, w.groups, w.n, w.k, where},
            .d = {{test::address(0x4000), DType::BF16, w.m, w.n, w.n + 8, 1, where}, count, w.m * (w.n + 8)},
            .groups = {.form = w.form,
                       .data = whole ? nullptr : static_cast<const int32_t*>(test::address(0x5000)),
                       .size = whole ? 0 : w.groups + (w.form == GroupForm::Offsets ? 1 : 0),
                       .alignment = 128,
                       .expected_m = w.expected_m,
                       .device = where}};
        if (w.fp8) {
            const int64_t rows = w.format == FourBitFormat::Mxfp4 ? (w.n + 127) / 128 : w.n;
            args.fp8 = {{test::address(0x10000), DType::E4M3, w.n, w.k, w.k, 1, where}, w.groups, w.n * w.k};
            args.fp8_scales = {
                {test::address(0x20000), DType::F32, rows, blocks, blocks, 1, where}, w.groups, rows * blocks};
        }
        hopper_->run(FourBitCall{args, options});
        return last_launch();
    }
    std::unique_ptr<Backend> hopper_ = backend();
};

TEST_F(HopperFourBit, PassesMatricesAndGroupsOn) {
    const mock::Launch launch = run({.form = GroupForm::Masked, .groups = 8, .m = 16, .n = 4104, .k = 7200},
                                    {.pdl = true, .stream = test::address(0x50)});
    const FourBitParams& p = launch.four_bit;
    EXPECT_EQ(std::tuple(launch.entry, launch.stream, launch.block, launch.programmatic),
              std::tuple("FineGEMM_four_bit_Mxfp4", test::address(0x50), 576u, true));
    EXPECT_EQ(std::tuple<const void*>(p.b), std::tuple(test::address(0x3000)));
    EXPECT_EQ(std::tuple<const void*>(p.sfa), std::tuple(test::address(0x2000)));
    EXPECT_EQ(std::tuple<const void*>(p.d), std::tuple(test::address(0x4000)));
    EXPECT_EQ(std::tuple(p.sfa_row_stride, p.sfa_col_stride, p.sfa_stride), std::tuple(1, 16, 912));
    EXPECT_EQ(std::tuple(p.d_row_stride, p.d_stride), std::tuple(4112, 65'792));
    EXPECT_EQ(std::tuple(p.n, p.n_blocks, p.k_blocks), std::tuple(4104u, 33u, 57u));
    EXPECT_EQ(std::tuple(p.groups.stacked, p.groups.groups, p.groups.rows), std::tuple(true, 8u, 16u));
    EXPECT_EQ(launch.grid, 132u) << "of 136 tiles";
    const mock::Description a = mock::description_of(p.a);
    EXPECT_EQ(std::tuple(a.rows, a.cols, a.count, a.box_rows, a.box_cols), std::tuple(16u, 7200u, 8u, 16u, 128u));
}

TEST_F(HopperFourBit, HasAKernelForEachFormat) {
    EXPECT_EQ(run({.format = FourBitFormat::Int4}).entry, "FineGEMM_four_bit_Int4");
    EXPECT_EQ(run({.m = 1024, .format = FourBitFormat::Int4}).entry, "FineGEMM_four_bit_Int4_many");
}

TEST_F(HopperFourBit, TakesAKernelForManyRowsByThoseThatAreExpected) {
    const mock::Launch many = run({.form = GroupForm::Masked, .groups = 8, .m = 600, .expected_m = 300});
    EXPECT_EQ(std::tuple(many.entry, many.block, many.grid), std::tuple("FineGEMM_four_bit_Mxfp4_many", 512u, 132u));
    EXPECT_EQ(mock::description_of(many.four_bit.a).box_rows, 32u);
    const mock::Launch few = run({.form = GroupForm::Masked, .groups = 8, .m = 600, .expected_m = 16});
    EXPECT_EQ(few.entry, "FineGEMM_four_bit_Mxfp4") << "of the same memory";
}

TEST_F(HopperFourBit, TakesFp8WhereThatIsGivenAndExpectedToBeFaster) {
    for (const FourBitFormat format : {FourBitFormat::Mxfp4, FourBitFormat::Int4})
        for (const GroupForm form : {GroupForm::Masked, GroupForm::Whole, GroupForm::Offsets}) {
            const auto with = [&](int64_t rows, bool fp8) {
                const int64_t m = form == GroupForm::Offsets ? 8 * rows : rows;
                return run({form, 8, m, 4096, 7168, rows, format, fp8}).entry;
            };
            const std::string four_bit = with(16, false);
            EXPECT_TRUE(four_bit.starts_with("FineGEMM_four_bit_"));
            for (const int64_t rows : {1, 16, 48}) EXPECT_TRUE(with(rows, true).starts_with(four_bit)) << rows;
            for (const int64_t rows : {256, 1024, 4096}) {
                const FourBitShape shape{
                    .format = format, .m = 8 * rows, .n = 4096, .k = 7168, .groups = 8, .expected_m = rows};
                const bool faster = is_fp8_faster(plan::problem_of(fp8_shape(shape)), *plan::find_device("h200"));
                const char* const ending = !faster                         ? "_many"
                                           : format == FourBitFormat::Int4 ? "_grouped_1d1d"
                                                                           : "_grouped";
                EXPECT_TRUE(with(rows, true).ends_with(ending)) << rows << ": " << with(rows, true);
                EXPECT_EQ(with(rows, false), four_bit + "_many") << rows;
            }
        }
    const std::string dense = run({.m = 4096, .fp8 = true}).entry;
    EXPECT_TRUE(dense.starts_with("FineGEMM_e4m3_gemm_") && !dense.ends_with("_grouped")) << dense;
}

TEST_F(HopperFourBit, ExpectsTheTimesOfTheRecord) {
    // Groups, rows, N, K, and microseconds of an H200 (bench/results/four_bit_h200.json, four_bit_many_h200.json).
    struct Row {
        FourBitFormat format;
        int64_t groups, m, n, k;
        double us;
    };
    constexpr FourBitFormat kMxfp4 = FourBitFormat::Mxfp4, kInt4 = FourBitFormat::Int4;
    const Row rows[] = {
        {kMxfp4, 8, 1, 4096, 7168, 39.97},  {kMxfp4, 16, 16, 4096, 7168, 72.06}, {kMxfp4, 32, 48, 4096, 7168, 162.97},
        {kMxfp4, 8, 32, 7168, 2048, 26.69}, {kMxfp4, 16, 48, 7168, 2048, 50.37}, {kMxfp4, 32, 16, 7168, 2048, 72},
        {kMxfp4, 8, 64, 4096, 7168, 62.7},  {kMxfp4, 8, 256, 4096, 7168, 112.3}, {kMxfp4, 32, 1024, 7168, 2048, 878.8},
        {kInt4, 8, 48, 4096, 7168, 50.91},  {kInt4, 32, 16, 4096, 7168, 153.25}, {kInt4, 16, 32, 7168, 2048, 54.59},
        {kInt4, 8, 128, 4096, 7168, 92.35}, {kInt4, 8, 1024, 4096, 7168, 536.16}};
    const plan::DeviceSpec& h200 = *plan::find_device("h200");
    for (const auto& [format, groups, m, n, k, us] : rows) {
        const FourBitShape shape{.format = format, .m = groups * m, .n = n, .k = k, .groups = groups, .expected_m = m};
        const double predicted = four_bit_cost(plan::problem_of(fp8_shape(shape)), h200).us;
        EXPECT_NEAR(predicted / us, 1, 0.07) << groups << " x " << m << "x" << n << "x" << k;
    }
}

TEST_F(HopperFourBit, TakesTheFormThatIsFasterInTheRecordWhereTheyMeet) {
    // Microseconds of an H200 with weights of 4 bits, and with FP8 (bench/results/four_bit_many_h200.json).
    struct Row {
        FourBitFormat format;
        int64_t groups, m, n, k;
        double four_bit, fp8;
    };
    constexpr FourBitFormat kMxfp4 = FourBitFormat::Mxfp4, kInt4 = FourBitFormat::Int4;
    const Row rows[] = {{kMxfp4, 8, 48, 4096, 7168, 44.3, 66.7},    {kMxfp4, 8, 64, 4096, 7168, 62.6, 67.9},
                        {kMxfp4, 8, 96, 4096, 7168, 77, 70},        {kMxfp4, 32, 64, 4096, 7168, 239.7, 244.9},
                        {kMxfp4, 8, 64, 7168, 2048, 39, 37.6},      {kMxfp4, 32, 64, 7168, 2048, 128.2, 132.1},
                        {kMxfp4, 32, 96, 7168, 2048, 158.2, 142.3}, {kInt4, 32, 48, 7168, 2048, 101, 136.4},
                        {kInt4, 8, 64, 4096, 7168, 69.6, 70.4},     {kInt4, 32, 64, 4096, 7168, 266.6, 254.7},
                        {kInt4, 32, 64, 7168, 2048, 142.6, 139.8},  {kInt4, 32, 96, 7168, 2048, 162.9, 144.3},
                        {kInt4, 32, 256, 7168, 2048, 291.8, 249.4}};
    for (const auto& [format, groups, m, n, k, four_bit, fp8] : rows) {
        const FourBitShape shape{.format = format, .m = groups * m, .n = n, .k = k, .groups = groups, .expected_m = m};
        const bool faster = is_fp8_faster(plan::problem_of(fp8_shape(shape)), *plan::find_device("h200"));
        EXPECT_LE((faster ? fp8 : four_bit) / std::min(four_bit, fp8), 1.02)
            << groups << " x " << m << "x" << n << "x" << k;
    }
}

TEST_F(HopperFourBit, HasNoMoreCtasThanTilesOrSms) {
    EXPECT_EQ(run({.m = 1, .n = 1024}).grid, 4u);
    EXPECT_EQ(run({.groups = 8, .m = 1}, {.num_sms = 20}).grid, 20u);
    EXPECT_EQ(run({.form = GroupForm::Offsets, .groups = 60, .m = 2, .n = 512}).grid, 4u);
}

}  // namespace
}  // namespace finegemm::hopper_four_bit_test
