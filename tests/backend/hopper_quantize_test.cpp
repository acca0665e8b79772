// What the Hopper backend launches for a quantisation. Layer tests.
#include "support/hopper.h"

namespace finegemm::hopper_quantize_test {
namespace {

using test::address;

class HopperQuantize : public test::HopperTest {
protected:
    /// Runs it on matrices of its own at addresses that nobody reads, and returns the launch.
    mock::Launch run(ScaleShape shape, DType dtype, int64_t rows, int64_t cols, const QuantizeOptions& options = {}) {
        const bool by_blocks = shape == ScaleShape::Blocks;
        const int64_t across = shape == ScaleShape::WholeRows ? 1 : (cols + 127) / 128;
        const Device where{DeviceType::Cuda, 0};
        const ConstMatrix x{address(0x1000), dtype, rows, cols, cols + 32, 1, where};
        const Matrix q{address(0x2000), DType::E4M3, rows, cols, cols + 16, 1, where};
        const Matrix scales{address(0x3000), DType::F32, by_blocks ? (rows + 127) / 128 : rows, across, 1, 5000, where};
        hopper_->run(QuantizeCall{shape, x, q, scales, options});
        return last_launch();
    }
    mock::Launch run_columns(DType dtype, int64_t rows, int64_t cols, int64_t columns, bool with_rows, int64_t groups) {
        const Device where{DeviceType::Cuda, 0};
        QuantizeColumnsArgs args{.x = {address(0x1000), dtype, rows, cols, cols + 32, 1, where},
                                 .q = {address(0x2000), DType::E4M3, cols, columns, columns + 16, 1, where},
                                 .scales = {address(0x3000), DType::F32, cols, (columns + 127) / 128, 1, 5000, where}};
        if (with_rows) {
            args.row_q = {address(0x4000), DType::E4M3, rows, cols, cols + 48, 1, where};
            args.row_scales = {address(0x5000), DType::F32, rows, (cols + 127) / 128, 70, 1, where};
        }
        if (groups > 0) {
            args.offsets = {address(0x6000), DType::I32, 1, groups + 1, groups + 1, 1, where};
            args.begins = {address(0x7000), DType::I32, 1, groups + 1, groups + 1, 1, where};
        }
        const QuantizeOptions options{.power_of_two_scales = true, .stream = address(0x50)};
        hopper_->run(QuantizeColumnsCall{args, options});
        return last_launch();
    }
    /// A stack of two. Words are MN-major, scales row-major.
    mock::Launch run_reencode(int64_t rows, int64_t cols, bool by_blocks, const ReencodeOptions& options = {},
                              bool counted = true) {
        const Device where{DeviceType::Cuda, 0};
        const int64_t across = (cols + 127) / 128, down = by_blocks ? (rows + 127) / 128 : rows;
        ReencodeArgs args{.codes = {{address(0x1000), DType::E4M3, rows, cols, cols + 32, 1, where}, 2, 1 << 20},
                          .words = {{address(0x2000), DType::UE8M0x4, rows, across, 1, 4000, where}, 2, 2 << 20},
                          .q = {{address(0x3000), DType::E4M3, rows, cols, cols + 16, 1, where}, 2, 3 << 20},
                          .scales = {{address(0x4000), DType::F32, down, across, across + 3, 1, where}, 2, 4 << 20}};
        if (counted) args.changed = {address(0x5000), DType::I32, 1, 1, 1, 1, where};
        hopper_->run(ReencodeCall{args, options});
        return last_launch();
    }
    std::unique_ptr<Backend> hopper_ = backend();
};

TEST_F(HopperQuantize, TakesTheKernelOfTheTypeAndTheShapeOfTheScales) {
    EXPECT_EQ(run(ScaleShape::Rows, DType::BF16, 8, 256).entry, "FineGEMM_quantize_rows_BF16");
    EXPECT_EQ(run(ScaleShape::Rows, DType::F16, 8, 256).entry, "FineGEMM_quantize_rows_F16");
    EXPECT_EQ(run(ScaleShape::Rows, DType::F32, 8, 256).entry, "FineGEMM_quantize_rows_F32");
    EXPECT_EQ(run(ScaleShape::Blocks, DType::BF16, 8, 256).entry, "FineGEMM_quantize_blocks_BF16");
    EXPECT_EQ(run(ScaleShape::Blocks, DType::F16, 8, 256).entry, "FineGEMM_quantize_blocks_F16");
    EXPECT_EQ(run(ScaleShape::Blocks, DType::F32, 8, 256).entry, "FineGEMM_quantize_blocks_F32");
    EXPECT_EQ(mock->libraries, 6);
    run(ScaleShape::Blocks, DType::F32, 8, 256);
    EXPECT_EQ(mock->libraries, 6);
    EXPECT_EQ(run(ScaleShape::WholeRows, DType::BF16, 8, 256).entry, "FineGEMM_quantize_whole_rows_BF16");
    EXPECT_EQ(run(ScaleShape::WholeRows, DType::F32, 8, 256).entry, "FineGEMM_quantize_whole_rows_F32");
}

TEST_F(HopperQuantize, PassesMatricesAndOptionsOn) {
    const mock::Launch launch =
        run(ScaleShape::Rows, DType::BF16, 300, 4112, {.power_of_two_scales = true, .stream = address(0x50)});
    const QuantizeParams& p = launch.quantize;
    EXPECT_EQ(launch.stream, address(0x50));
    EXPECT_EQ(launch.block, 256u);
    EXPECT_EQ(p.x, address(0x1000));
    EXPECT_EQ(p.q, address(0x2000));
    EXPECT_EQ(p.scales, address(0x3000));
    EXPECT_EQ(std::tuple(p.x_row_stride, p.q_row_stride, p.scale_row_stride, p.scale_col_stride),
              std::tuple(4144, 4128, 1, 5000));
    EXPECT_EQ(std::tuple(p.rows, p.cols, p.power_of_two), std::tuple(300u, 4112u, 1u));
    EXPECT_EQ(run(ScaleShape::Rows, DType::BF16, 300, 4112).quantize.power_of_two, 0u);
}

TEST_F(HopperQuantize, HasAWarpForConsecutiveBlocksAndACtaForEachSquareUpToALimit) {
    EXPECT_EQ(run(ScaleShape::Blocks, DType::BF16, 129, 4112).grid, 2u * 33);
    EXPECT_EQ(run(ScaleShape::Rows, DType::BF16, 17, 1024).grid,
              3u);  // a warp takes eight blocks of bf16, a CTA has eight
    EXPECT_EQ(run(ScaleShape::Rows, DType::F32, 17, 1024).grid, 5u);  // four blocks of float
    EXPECT_EQ(run(ScaleShape::Blocks, DType::BF16, INT32_MAX, 1 << 20).grid, 1u << 20);
}

TEST_F(HopperQuantize, TakesWholeRowsByAsManyWarpsAsHoldOne) {
    const auto ctas = [&](DType dtype, int64_t rows, int64_t cols) {
        const mock::Launch launch = run(ScaleShape::WholeRows, dtype, rows, cols);
        EXPECT_EQ(launch.block, 512u);
        return launch.grid;
    };
    EXPECT_EQ(ctas(DType::BF16, 33, 1024), 3u) << "a warp a row";
    EXPECT_EQ(ctas(DType::BF16, 33, 1040), 5u) << "two warps";
    EXPECT_EQ(ctas(DType::BF16, 33, 7168), 17u);
    EXPECT_EQ(ctas(DType::BF16, 33, 1 << 20), 33u) << "all of a CTA, in parts";
    EXPECT_EQ(ctas(DType::F32, 33, 1024), 5u);
    EXPECT_EQ(ctas(DType::BF16, INT32_MAX, 1 << 20), 1u << 20);
}

TEST_F(HopperQuantize, PassesWhatColumnsNeedOn) {
    const mock::Launch launch = run_columns(DType::BF16, 300, 4112, 768, true, 4);
    const QuantizeColumnsParams& p = launch.quantize_columns;
    EXPECT_EQ(launch.entry, "FineGEMM_quantize_columns_BF16");
    EXPECT_EQ(std::tuple(launch.stream, launch.block, launch.grid), std::tuple(address(0x50), 256u, 6u * 17));
    EXPECT_EQ(p.cta_tiles, 2u) << "of groups of few rows";
    EXPECT_EQ(run_columns(DType::BF16, 600, 4112, 1024, true, 4).quantize_columns.cta_tiles, 1u);
    EXPECT_EQ(std::tuple(p.rows.x, p.rows.q, p.rows.scales),
              std::tuple(address(0x1000), address(0x4000), address(0x5000)));
    EXPECT_EQ(std::tuple(p.rows.x_row_stride, p.rows.q_row_stride, p.rows.scale_row_stride, p.rows.scale_col_stride),
              std::tuple(4144, 4160, 70, 1));
    EXPECT_EQ(std::tuple(p.rows.rows, p.rows.cols, p.rows.power_of_two), std::tuple(300u, 4112u, 1u));
    EXPECT_EQ(std::tuple<const void*>(p.q), std::tuple(address(0x2000)));
    EXPECT_EQ(std::tuple<const void*>(p.scales), std::tuple(address(0x3000)));
    EXPECT_EQ(std::tuple(p.q_row_stride, p.scale_row_stride, p.scale_col_stride, p.cols),
              std::tuple(784, 1, 5000, 768u));
    EXPECT_EQ(std::tuple<const void*>(p.groups.offsets), std::tuple(address(0x6000)));
    EXPECT_EQ(std::tuple<const void*>(p.groups.begins), std::tuple(address(0x7000)));
    EXPECT_EQ(p.groups.groups, 4u);
}

TEST_F(HopperQuantize, ColumnsHaveACtaForEachTileUpToALimitAndForGroupsAtLeastOne) {
    const mock::Launch launch = run_columns(DType::F32, 129, 272, 144, false, 0);
    EXPECT_EQ(std::tuple(launch.entry, launch.block, launch.grid),
              std::tuple("FineGEMM_quantize_columns_F32", 512u, 2u * 3));
    EXPECT_EQ(launch.quantize_columns.rows.q, nullptr);
    EXPECT_EQ(launch.quantize_columns.groups.offsets, nullptr);
    EXPECT_EQ(run_columns(DType::F16, INT32_MAX - 15, 1 << 20, INT32_MAX - 15, false, 0).grid, INT32_MAX + 0u);
    EXPECT_EQ(run_columns(DType::F16, 0, 16, 0, false, 1).grid, 1u) << "which writes where groups begin";
}

TEST_F(HopperQuantize, PassesCodesWithExponentsOn) {
    const mock::Launch launch = run_reencode(300, 4112, false, {.stream = address(0x50), .pdl = true});
    const ReencodeParams& p = launch.reencode;
    EXPECT_EQ(std::tuple(launch.entry, launch.stream, launch.programmatic),
              std::tuple("FineGEMM_reencode_rows", address(0x50), true));
    EXPECT_EQ(std::tuple<const void*>(p.codes), std::tuple(address(0x1000)));
    EXPECT_EQ(std::tuple<const void*>(p.words), std::tuple(address(0x2000)));
    EXPECT_EQ(std::tuple<const void*>(p.q), std::tuple(address(0x3000)));
    EXPECT_EQ(std::tuple<const void*>(p.scales), std::tuple(address(0x4000)));
    EXPECT_EQ(std::tuple<const void*>(p.changed), std::tuple(address(0x5000)));
    EXPECT_EQ(std::tuple(p.code_row_stride, p.q_row_stride, p.word_row_stride, p.word_col_stride, p.scale_row_stride,
                         p.scale_col_stride),
              std::tuple(4144, 4128, 1, 4000, 36, 1));
    EXPECT_EQ(std::tuple(p.rows, p.cols, p.matrices), std::tuple(300u, 4112u, 2u));
    EXPECT_EQ(std::tuple(p.code_stride, p.word_stride, p.q_stride, p.scale_stride),
              std::tuple(1 << 20, 2 << 20, 3 << 20, 4 << 20));
    EXPECT_EQ(run_reencode(300, 4112, false, {}, false).reencode.changed, nullptr);
    EXPECT_FALSE(last_launch().programmatic);
}

TEST_F(HopperQuantize, ReencodesBlocksByACtaEachAndRowsByWarpsUpToALimit) {
    const mock::Launch blocks = run_reencode(129, 272, true);
    EXPECT_EQ(std::tuple(blocks.entry, blocks.block, blocks.grid),
              std::tuple("FineGEMM_reencode_blocks", 1024u, 2u * 2 * 3));
    const mock::Launch rows = run_reencode(17, 1040, false);
    EXPECT_EQ(std::tuple(rows.block, rows.grid), std::tuple(256u, 2u * 3 * 2)) << "a warp has 1024 columns";
    EXPECT_EQ(run_reencode(1, 16, false).entry, "FineGEMM_reencode_rows") << "where blocks have as many scales";
    EXPECT_EQ(run_reencode(INT32_MAX, 1 << 20, true).grid, 1u << 20);
}

TEST_F(HopperQuantize, AFailedLaunchNamesTheKernel) {
    mock.fail("cuLaunchKernelEx", 1);
    const Error error = test::error_of([&] { run(ScaleShape::Rows, DType::F16, 8, 256); });
    EXPECT_TRUE(test::contains(error, "cuLaunchKernelEx(FineGEMM_quantize_rows_F16) failed")) << error.what();
    EXPECT_EQ(mock.context_depth(), 0u);
}

}  // namespace
}  // namespace finegemm::hopper_quantize_test
