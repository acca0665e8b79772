// What the Hopper backend launches for a change of scales' layout. Layer tests.
#include "support/hopper.h"

namespace finegemm {
namespace {

using test::address;

class HopperScaleLayout : public test::HopperTest {
protected:
    static constexpr Device kGpu{DeviceType::Cuda, 0};

    /// Row-major scales to MN-major ones at addresses that nobody reads.
    static ScaleLayoutArgs args(DType from, DType to, int64_t rows, int64_t cols, int64_t pitch) {
        const int64_t words = (cols + 3) / 4;
        const int64_t in_cols = from == DType::UE8M0x4 ? words : cols, out_cols = to == DType::UE8M0x4 ? words : cols;
        return {.sf = {{address(0x1000), from, rows, in_cols, in_cols + 5, 1, kGpu}, 3, 50000},
                .out = {{address(0x2000), to, rows, out_cols, 1, pitch, kGpu}, 3, 60000}};
    }
    mock::Launch run(const ScaleLayoutArgs& args, const ScaleLayoutOptions& options = {}) {
        hopper_->run(ScaleLayoutCall{args.sf, args.out, args.groups, options});
        return last_launch();
    }
    std::unique_ptr<Backend> hopper_ = backend();
};

TEST_F(HopperScaleLayout, TakesTheKernelOfTheFormatsAndOfGroups) {
    const DType f32 = DType::F32, packed = DType::UE8M0x4;
    EXPECT_EQ(run(args(f32, f32, 64, 56, 64)).entry, "finegemm_scale_layout_transpose_fp32");
    EXPECT_EQ(run(args(f32, packed, 64, 56, 64)).entry, "finegemm_scale_layout_pack_fp32_into_ue8m0");
    EXPECT_EQ(run(args(packed, f32, 64, 56, 64)).entry, "finegemm_scale_layout_unpack_ue8m0");
    EXPECT_EQ(run(args(packed, packed, 64, 56, 64)).entry, "finegemm_scale_layout_transpose_fp32");
    EXPECT_EQ(mock->libraries, 3);
    EXPECT_EQ(run(args(f32, f32, 64, 56, 64), {.power_of_two_scales = true}).entry, "finegemm_scale_layout_round_fp32");
    ScaleLayoutArgs grouped = args(f32, packed, 64, 56, 64);
    grouped.groups = {.form = ScaleGroupForm::Rows,
                      .data = static_cast<const int32_t*>(address(0x3000)),
                      .size = 7,
                      .alignment = 16,
                      .device = kGpu};
    const mock::Launch launch = run(grouped);
    EXPECT_EQ(launch.entry, "finegemm_scale_layout_pack_fp32_into_ue8m0_grouped");
    const ScaleGrouper& groups = launch.scale_layout.groups;
    EXPECT_EQ(groups.numbers, address(0x3000));
    EXPECT_EQ(std::tuple(groups.groups, groups.alignment, groups.scale_k), std::tuple(7u, 16u, 128u));
    EXPECT_TRUE(groups.of_rows());
    run(args(packed, f32, 32, 8, 32));
    EXPECT_EQ(mock->libraries, 5);
}

TEST_F(HopperScaleLayout, PassesMatricesAndOptionsOn) {
    const mock::Launch launch =
        run(args(DType::F32, DType::UE8M0x4, 300, 57, 304), {.power_of_two_scales = true, .stream = address(0x50)});
    const ScaleLayoutParams& p = launch.scale_layout;
    EXPECT_EQ(launch.stream, address(0x50));
    EXPECT_EQ(launch.block, 256u);
    EXPECT_EQ(static_cast<const void*>(p.in), address(0x1000));
    EXPECT_EQ(static_cast<void*>(p.out), address(0x2000));
    EXPECT_EQ(std::tuple(p.in_strides.matrix, p.in_strides.row, p.in_strides.col), std::tuple(200000, 4 * 62, 4));
    EXPECT_EQ(std::tuple(p.out_strides.matrix, p.out_strides.row, p.out_strides.col), std::tuple(240000, 4, 4 * 304));
    EXPECT_EQ(std::tuple(p.rows, p.in_cols, p.out_cols, p.row_shift), std::tuple(300u, 57u, 15u, 0u));
    EXPECT_EQ(p.rounding.add, ScaleRounding::up().add);
    EXPECT_EQ(p.tile, (ScaleTile{.rows = 64, .words = 15}));
    EXPECT_EQ(launch.grid, 3u * 5);
}

TEST_F(HopperScaleLayout, StoresFourRowsAtOnceWhereColumnsAreAlignedTo16Bytes) {
    const auto unit = [&](const ScaleLayoutArgs& a) { return run(a).scale_layout.store.unit; };
    const ScaleLayoutArgs aligned = args(DType::F32, DType::F32, 64, 56, 64);
    EXPECT_EQ(unit(aligned), 4u);
    EXPECT_EQ(unit(args(DType::F32, DType::F32, 64, 56, 66)), 1u);
    ScaleLayoutArgs shifted = aligned;
    shifted.out.matrix.data = address(0x2004);
    EXPECT_EQ(unit(shifted), 1u);
    ScaleLayoutArgs odd_matrices = aligned;
    odd_matrices.out.stride += 2;
    EXPECT_EQ(unit(odd_matrices), 1u);
    ScaleLayoutArgs column = args(DType::F32, DType::F32, 64, 1, 1);  // no step is taken to another one
    EXPECT_EQ(unit(column), 4u);
    ScaleLayoutArgs row_major = aligned;
    row_major.out.matrix.row_stride = 56, row_major.out.matrix.col_stride = 1;
    EXPECT_EQ(unit(row_major), 1u);
}

TEST_F(HopperScaleLayout, LoadsFourColumnsAtOnceWhereRowsAreAlignedTo16BytesAndHaveNoOthers) {
    const auto unit = [&](const ScaleLayoutArgs& a) { return run(a).scale_layout.load.unit; };
    ScaleLayoutArgs aligned = args(DType::F32, DType::F32, 64, 56, 64);
    aligned.sf.matrix.row_stride = 60;
    EXPECT_EQ(unit(aligned), 4u);
    ScaleLayoutArgs odd_rows = aligned;
    odd_rows.sf.matrix.row_stride = 61;
    EXPECT_EQ(unit(odd_rows), 1u);
    ScaleLayoutArgs shifted = aligned;
    shifted.sf.matrix.data = address(0x1004);
    EXPECT_EQ(unit(shifted), 1u);
    ScaleLayoutArgs more = args(DType::F32, DType::F32, 64, 57, 64);
    more.sf.matrix.row_stride = 60;
    EXPECT_EQ(unit(more), 1u);
    ScaleLayoutArgs grouped = aligned;
    grouped.sf.count = grouped.out.count = 1;
    grouped.groups = {ScaleGroupForm::Rows, static_cast<const int32_t*>(address(0x3000)), 1, 1, 1, kGpu};
    EXPECT_EQ(unit(grouped), 1u);
}

TEST_F(HopperScaleLayout, ATileHasWholeRowsOrEqualPartsOfThem) {
    const auto tile = [](ScaleTransform transform, uint32_t rows, uint32_t words) {
        return scale_tile({.transform = transform}, rows, words);
    };
    using enum ScaleTransform;
    EXPECT_EQ(tile(Copy, 4096, 56), (ScaleTile{.rows = 64, .words = 56}));
    EXPECT_EQ(tile(Copy, 4096, 144), (ScaleTile{.rows = 64, .words = 48}));
    EXPECT_EQ(tile(Copy, 1 << 20, 1), (ScaleTile{.rows = 4096, .words = 1}));
    EXPECT_EQ(tile(Pack, 4096, 14), (ScaleTile{.rows = 64, .words = 14}));
    EXPECT_EQ(tile(Unpack, 5, 40), (ScaleTile{.rows = 32, .words = 16}));
    for (const ScaleTransform transform : {Copy, Round, Pack, Unpack})
        for (uint32_t rows = 1; rows < 10000; rows = 3 * rows / 2 + 1)
            for (uint32_t words = 1; words < 300; ++words) {
                const ScaleLayoutConfig c{.transform = transform};
                const ScaleTile t = tile(transform, rows, words);
                EXPECT_LE(t.words * t.rows, c.tile_words());
                EXPECT_LE(t.words, c.max_words());
            }
}

TEST_F(HopperScaleLayout, AFailedLaunchNamesTheKernel) {
    mock.fail("cuLaunchKernelEx", 1);
    const Error error = test::error_of([&] { run(args(DType::F32, DType::F32, 64, 56, 64)); });
    EXPECT_TRUE(test::contains(error, "cuLaunchKernelEx(finegemm_scale_layout_transpose_fp32) failed")) << error.what();
}

}  // namespace
}  // namespace finegemm
