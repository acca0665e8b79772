// What the Hopper backend launches for a change of scales' layout. Layer tests.
#include "support/hopper.h"

namespace finegemm::hopper_scale_layout_test {
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
    EXPECT_EQ(run(args(f32, f32, 64, 56, 64)).entry, "FineGEMM_scale_layout_transpose_fp32");
    EXPECT_EQ(run(args(f32, packed, 64, 56, 64)).entry, "FineGEMM_scale_layout_pack_fp32_into_ue8m0");
    EXPECT_EQ(run(args(packed, f32, 64, 56, 64)).entry, "FineGEMM_scale_layout_unpack_ue8m0");
    EXPECT_EQ(run(args(packed, packed, 64, 56, 64)).entry, "FineGEMM_scale_layout_transpose_fp32");
    EXPECT_EQ(mock->libraries, 3);
    EXPECT_EQ(run(args(f32, f32, 64, 56, 64), {.power_of_two_scales = true}).entry, "FineGEMM_scale_layout_round_fp32");
    ScaleLayoutArgs grouped = args(f32, packed, 64, 56, 64);
    grouped.groups = {.form = ScaleGroupForm::Rows,
                      .data = static_cast<const int32_t*>(address(0x3000)),
                      .size = 7,
                      .alignment = 16,
                      .device = kGpu};
    const mock::Launch launch = run(grouped);
    EXPECT_EQ(launch.entry, "FineGEMM_scale_layout_pack_fp32_into_ue8m0_grouped");
    const ScaleGrouper& groups = launch.scale_layout.groups;
    EXPECT_EQ(groups.numbers, address(0x3000));
    EXPECT_EQ(std::tuple(groups.groups, groups.alignment.divisor, groups.scale_k.divisor), std::tuple(7u, 16u, 128u));
    EXPECT_TRUE(groups.of_rows());
    run(args(packed, f32, 32, 8, 32));
    EXPECT_EQ(mock->libraries, 5);
    grouped.groups.form = ScaleGroupForm::KSizes;
    EXPECT_EQ(run(grouped).entry, "FineGEMM_scale_layout_pack_fp32_into_ue8m0_kgrouped");
}

TEST_F(HopperScaleLayout, PacksDirectlyWhereFourRowsOfAWordAreWholeVectors) {
    const std::string of_rows = "FineGEMM_scale_layout_pack_fp32_into_ue8m0_by_rows",
                      of_columns = "FineGEMM_scale_layout_pack_fp32_into_ue8m0_by_columns",
                      neither = "FineGEMM_scale_layout_pack_fp32_into_ue8m0";
    ScaleLayoutArgs rows = args(DType::F32, DType::UE8M0x4, 64, 56, 64);
    rows.sf.matrix.row_stride = 60;
    EXPECT_EQ(run(rows).entry, of_rows);
    ScaleLayoutArgs columns = args(DType::F32, DType::UE8M0x4, 64, 57, 64);
    EXPECT_EQ(run(columns).entry, neither);
    columns.sf.matrix.row_stride = 1, columns.sf.matrix.col_stride = 64;
    EXPECT_EQ(run(columns).entry, of_columns);
    columns.out.matrix.col_stride = 66;
    EXPECT_EQ(run(columns).entry, neither);
}

TEST_F(HopperScaleLayout, RoundsAColumnThatIsPackedIntoTheLowestBytes) {
    const auto packed = [&](int64_t cols) { return run(args(DType::F32, DType::UE8M0x4, 64, cols, 64)); };
    EXPECT_EQ(packed(1).entry, "FineGEMM_scale_layout_round_fp32");
    EXPECT_EQ(packed(1).scale_layout.rounding.place, 0u);
    EXPECT_EQ(packed(2).entry, "FineGEMM_scale_layout_pack_fp32_into_ue8m0");
}

TEST_F(HopperScaleLayout, CtasShareTheTilesOfGroupsOfK) {
    ScaleLayoutArgs many = args(DType::F32, DType::UE8M0x4, 1 << 20, 128, 1 << 20);
    many.sf.count = many.out.count = 1;
    const mock::Launch each = run(many);
    EXPECT_EQ(std::tuple(each.grid, each.scale_layout.share, each.scale_layout.rest), std::tuple(32768u, 1u, 0u));
    many.groups = {ScaleGroupForm::KSizes, static_cast<const int32_t*>(address(0x3000)), 1, 1, 1, kGpu};
    const mock::Launch shared = run(many);
    EXPECT_LT(shared.grid, 1000u);
    EXPECT_EQ(shared.grid * shared.scale_layout.share + shared.scale_layout.rest, 32768u);
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

TEST_F(HopperScaleLayout, StoresFourAtOnceWhereRowsOrColumnsAreAlignedTo16Bytes) {
    const auto access = [&](const ScaleLayoutArgs& a) { return run(a).scale_layout.store.access; };
    const ScaleLayoutArgs aligned = args(DType::F32, DType::F32, 64, 56, 64);
    EXPECT_EQ(access(aligned), ScaleAccess::FourRows);
    EXPECT_EQ(access(args(DType::F32, DType::F32, 64, 56, 66)), ScaleAccess::Single);
    ScaleLayoutArgs shifted = aligned;
    shifted.out.matrix.data = address(0x2004);
    EXPECT_EQ(access(shifted), ScaleAccess::Single);
    ScaleLayoutArgs odd_matrices = aligned;
    odd_matrices.out.stride += 2;
    EXPECT_EQ(access(odd_matrices), ScaleAccess::Single);
    ScaleLayoutArgs column = args(DType::F32, DType::F32, 64, 1, 1);  // no step is taken to another one
    EXPECT_EQ(access(column), ScaleAccess::FourRows);
    ScaleLayoutArgs row_major = aligned;
    row_major.out.matrix.row_stride = 56, row_major.out.matrix.col_stride = 1;
    EXPECT_EQ(access(row_major), ScaleAccess::FourCols);
    row_major.out.matrix.row_stride = 57;
    EXPECT_EQ(access(row_major), ScaleAccess::Single);
}

TEST_F(HopperScaleLayout, LoadsFourColumnsAtOnceWhereRowsAreAlignedTo16BytesAndHaveNoOthers) {
    const auto access = [&](const ScaleLayoutArgs& a) { return run(a).scale_layout.load.access; };
    ScaleLayoutArgs aligned = args(DType::F32, DType::UE8M0x4, 64, 56, 64);
    aligned.sf.matrix.row_stride = 60;
    EXPECT_EQ(access(aligned), ScaleAccess::FourCols);
    ScaleLayoutArgs odd_rows = aligned;
    odd_rows.sf.matrix.row_stride = 61;
    EXPECT_EQ(access(odd_rows), ScaleAccess::Single);
    ScaleLayoutArgs shifted = aligned;
    shifted.sf.matrix.data = address(0x1004);
    EXPECT_EQ(access(shifted), ScaleAccess::Single);
    ScaleLayoutArgs more = args(DType::F32, DType::UE8M0x4, 64, 57, 64);
    more.sf.matrix.row_stride = 60;
    EXPECT_EQ(access(more), ScaleAccess::Single);
    ScaleLayoutArgs grouped = aligned;
    grouped.sf.count = grouped.out.count = 1;
    grouped.groups = {ScaleGroupForm::Rows, static_cast<const int32_t*>(address(0x3000)), 1, 1, 1, kGpu};
    EXPECT_EQ(access(grouped), ScaleAccess::FourCols);
    grouped.groups.form = ScaleGroupForm::KSizes;  // a group begins at any column
    EXPECT_EQ(access(grouped), ScaleAccess::Single);
}

TEST_F(HopperScaleLayout, LoadsFourRowsAtOnceWhereColumnsAreAlignedTo16BytesAndHaveNoOthers) {
    const auto access = [&](const ScaleLayoutArgs& a) { return run(a).scale_layout.load.access; };
    ScaleLayoutArgs aligned = args(DType::F32, DType::F32, 64, 57, 64);
    aligned.sf.matrix.row_stride = 1, aligned.sf.matrix.col_stride = 68;
    EXPECT_EQ(access(aligned), ScaleAccess::FourRows);
    ScaleLayoutArgs odd_columns = aligned;
    odd_columns.sf.matrix.col_stride = 66;
    EXPECT_EQ(access(odd_columns), ScaleAccess::Single);
    ScaleLayoutArgs more = aligned;
    more.sf.matrix.rows = more.out.matrix.rows = 65;
    EXPECT_EQ(access(more), ScaleAccess::Single);
    ScaleLayoutArgs repeated = aligned;
    repeated.out.matrix.rows = 64 * kScaleBlock, repeated.out.matrix.col_stride = 64 * kScaleBlock;
    EXPECT_EQ(access(repeated), ScaleAccess::Single);
    ScaleLayoutArgs column = args(DType::F32, DType::F32, 64, 1, 64);
    column.sf.matrix.row_stride = 1;
    EXPECT_EQ(access(column), ScaleAccess::FourRows);
    ScaleLayoutArgs grouped = args(DType::F32, DType::UE8M0x4, 64, 57, 64);
    grouped.sf.matrix.row_stride = 1, grouped.sf.matrix.col_stride = 68;
    grouped.sf.count = grouped.out.count = 1;
    for (const ScaleGroupForm form : {ScaleGroupForm::Rows, ScaleGroupForm::KSizes, ScaleGroupForm::KPrefixSums}) {
        grouped.groups = {form, static_cast<const int32_t*>(address(0x3000)), 1, 1, 1, kGpu};
        EXPECT_EQ(access(grouped), ScaleAccess::FourRows);
    }
}

TEST_F(HopperScaleLayout, ATileHasWholeRowsOrEqualPartsOfThem) {
    const auto tile = [](ScaleTransform transform, uint32_t rows, uint32_t cols) {
        const ScaleLayoutConfig c{.transform = transform};
        return scale_tile(c, rows, ceil_div(cols, std::max(c.loaded(), c.stored())), cols, c.max_words());
    };
    using enum ScaleTransform;
    EXPECT_EQ(tile(Copy, 4096, 56), (ScaleTile{.rows = 64, .words = 56}));
    EXPECT_EQ(tile(Copy, 4096, 144), (ScaleTile{.rows = 64, .words = 48}));
    EXPECT_EQ(tile(Copy, 1 << 20, 1), (ScaleTile{.rows = 4096, .words = 1}));
    EXPECT_EQ(tile(Pack, 1 << 20, 1), (ScaleTile{.rows = 4096, .words = 1}));
    EXPECT_EQ(tile(Pack, 4096, 56), (ScaleTile{.rows = 64, .words = 14}));
    EXPECT_EQ(tile(Unpack, 5, 160), (ScaleTile{.rows = 32, .words = 16}));
    for (const ScaleTransform transform : {Copy, Round, Pack, Unpack})
        for (uint32_t rows = 1; rows < 10000; rows = 3 * rows / 2 + 1)
            for (uint32_t cols = 1; cols < 1200; ++cols) {
                const ScaleLayoutConfig c{.transform = transform};
                const ScaleTile t = tile(transform, rows, cols);
                EXPECT_LE(t.words * t.rows, c.tile_elements());
                EXPECT_LE(t.words, c.max_words());
            }
}

TEST_F(HopperScaleLayout, AFailedLaunchNamesTheKernel) {
    mock.fail("cuLaunchKernelEx", 1);
    const Error error = test::error_of([&] { run(args(DType::F32, DType::F32, 64, 56, 64)); });
    EXPECT_TRUE(test::contains(error, "cuLaunchKernelEx(FineGEMM_scale_layout_transpose_fp32) failed")) << error.what();
}

}  // namespace
}  // namespace finegemm::hopper_scale_layout_test
