// What the Hopper backend launches for a GEMM, seen by the mock driver. Layer tests.
#include <finegemm/gemm/arithmetic.h>
#include <finegemm/gemm/boxes.h>
#include <finegemm/gemm/schedule.h>

#include "plan/plan.h"
#include "support/hopper.h"

namespace finegemm::hopper_gemm_test {
namespace {

using test::address;
using test::contains;
using test::error_of;
using test::operands;

constexpr int kUint8 = 0, kBf16 = 9;

GemmConfig planned(const GemmArgs& args, const char* device = "h200") {
    return plan::choose(problem_of({args, {}}), *plan::find_device(device)).config;
}

/// The variant of a kernel for the scales of these operands.
GemmConfig variant(const GemmConfig& c, const GemmArgs& args) {
    const auto has_vectors = [&](const ConstMatrix& s) {
        const ScaleView view{static_cast<const float*>(s.data), s.row_stride, s.col_stride};
        return has_scale_vectors(view, static_cast<uint32_t>(s.cols), c.k_splits());
    };
    return has_vectors(args.sfa) && (!c.row_b_scales() || has_vectors(args.sfb)) ? plan::for_row_scales(c) : c;
}

int swizzle_code(Swizzle s) { return s == Swizzle::B128 ? 3 : s == Swizzle::B64 ? 2 : s == Swizzle::B32 ? 1 : 0; }

mock::Description described(const ConstMatrix& x, int64_t row_stride, const TmaBox& box) {
    return {x.data,
            static_cast<uint64_t>(x.cols),
            static_cast<uint64_t>(x.rows),
            static_cast<uint64_t>(row_stride * size_of(x.dtype)),
            box.cols,
            box.rows,
            x.dtype == DType::E4M3 ? kUint8 : kBf16,
            swizzle_code(box.swizzle)};
}

class HopperGemm : public test::HopperTest {};

/// Everything about the last launch that follows from the operands and the configuration.
void expect_launch_of(const mock::Launch& launch, const GemmArgs& args, const GemmConfig& kernel) {
    const GemmConfig c = variant(kernel, args);
    const auto m = static_cast<uint32_t>(args.d.rows), n = static_cast<uint32_t>(args.d.cols);
    const SegmentedParams& p = launch.gemm;
    EXPECT_EQ(launch.entry, jit::gemm_entry(c, plan::name_of(c)));
    EXPECT_EQ(launch.block, c.threads());
    EXPECT_EQ(launch.cluster, c.cluster);
    EXPECT_EQ(launch.smem_bytes, kernel_plan(c).smem.total);
    const uint32_t tiles = raster(c, m, n).size(), resident = c.cluster > 1 ? 60u : 2 * 132;
    const bool one_tile_each = c.cluster_use == ClusterUse::SplitK || c.k_slices() > 1;
    EXPECT_EQ(launch.grid, c.cluster * (one_tile_each ? tiles : std::min(tiles, resident)));
    // Where no tile is whole, there is no map for one.
    const TmaBox a_whole = m < c.tile_m && c.a_sharers() == 1 ? a_boxes(c, m).last : a_boxes(c, m).whole;
    const TmaBox b_whole = n < segment_cols(c, 0) && c.b_sharers() == 1 ? b_boxes(c, n).last : b_boxes(c, n).whole;
    EXPECT_EQ(mock::description_of(p.a.whole), described(args.a, args.a.row_stride, a_whole));
    EXPECT_EQ(mock::description_of(p.a.last), described(args.a, args.a.row_stride, a_boxes(c, m).last));
    EXPECT_EQ(mock::description_of(p.b.whole), described(args.b, args.b.row_stride, b_whole));
    EXPECT_EQ(mock::description_of(p.b.last), described(args.b, args.b.row_stride, b_boxes(c, n).last));
    for (uint32_t segment = 1; segment < n_segments(c); ++segment) {
        EXPECT_EQ(mock::description_of(p.b_segments[segment - 1]),
                  described(args.b, args.b.row_stride, b_segment_box(c, segment)));
    }
    for (uint32_t width = 0; width < kPanelWidths; ++width) {
        const bool stored_by = kernel_plan(c).tma_store() && panels_of_width(c, width) > 0;
        const mock::Description of_d = described(args.d, args.d.row_stride, d_box(width));
        EXPECT_EQ(mock::description_of(p.d[width]), stored_by ? of_d : mock::description_of({})) << panel_width(width);
    }
    EXPECT_EQ(p.sfa.data, args.sfa.data);
    EXPECT_EQ(p.sfa.mn_stride, args.sfa.row_stride);
    EXPECT_EQ(p.sfa.k_stride, args.sfa.col_stride);
    EXPECT_EQ(p.sfb.data, args.sfb.data);
    EXPECT_EQ(p.sfb.mn_stride, args.sfb.row_stride);
    EXPECT_EQ(p.sfb.k_stride, args.sfb.col_stride);
    EXPECT_EQ(p.d_data, args.d.data);
    EXPECT_EQ(p.d_row_stride, args.d.row_stride);
    EXPECT_EQ(std::tuple(p.m, p.n, p.k_blocks), std::tuple(m, n, static_cast<uint32_t>((args.a.cols + 127) / 128)));
    EXPECT_EQ(p.a_rows_of_last, rows_of_last_tile(m, c.tile_m, c.a_sharers()));
    EXPECT_EQ(p.b_rows_of_last, b_rows_of_last(c, n));
    EXPECT_EQ(p.raster, raster(c, m, n));
}

TEST_F(HopperGemm, LaunchesWhatThePlannerChooses) {
    const auto hopper = backend();
    std::set<ClusterUse> uses;
    for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{{2, 8, 16},
                                                                     {64, 2112, 7168},
                                                                     {5, 24, 1040},
                                                                     {100, 576, 7168},
                                                                     {129, 4096, 7168},
                                                                     {4096, 7168, 2048},
                                                                     {4095, 24576, 1536},
                                                                     {8192, 4096, 7168},
                                                                     {300, 520, 144},
                                                                     {2048, 2112, 7168}}) {
        SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k);
        const GemmArgs args = operands(m, n, k);
        hopper->gemm({args, {}});
        expect_launch_of(last_launch(), args, planned(args));
        uses.insert(planned(args).cluster_use);
    }
    EXPECT_GE(uses.size(), 2u) << "the shapes should reach kernels with and without clusters";
}

TEST_F(HopperGemm, LaunchesEveryKernelByName) {
    const auto hopper = backend();
    const GemmArgs args = operands(1024, 1024, 2048);
    for (const GemmConfig& c : plan::candidates()) {
        hopper->gemm({args, {.config = plan::name_of(c)}});
        expect_launch_of(last_launch(), args, c);
    }
}

TEST_F(HopperGemm, RowMajorScalesInWholeVectorsGetTheKernelForThem) {
    const auto hopper = backend();
    const auto entry = [&](const GemmArgs& args, const char* config) {
        hopper->gemm({args, {.config = config}});
        return last_launch().entry;
    };
    const GemmArgs rows = operands(512, 1024, 2048);
    EXPECT_EQ(entry(rows, "m128n128s6w2"), "FineGEMM_e4m3_gemm_m128n128s6w2_rows");
    EXPECT_EQ(entry(rows, "m64n64s5w1_x2"), "FineGEMM_e4m3_gemm_m64n64s5w1_x2") << "64 rows need no other kernel";

    GemmArgs mn_major = rows, odd_stride = rows, odd_address = rows;
    mn_major.sfa.row_stride = 1;
    mn_major.sfa.col_stride = 512;
    odd_stride.sfa.row_stride = 18;
    odd_address.sfa.data = address(0x200000004);
    for (const GemmArgs& args : {mn_major, odd_stride, odd_address, operands(512, 1024, 2048 + 128)})
        EXPECT_EQ(entry(args, "m128n128s6w2"), "FineGEMM_e4m3_gemm_m128n128s6w2");
    EXPECT_EQ(entry(operands(512, 1024, 512 * 3), "m128n32s8w2_splitK4"), "FineGEMM_e4m3_gemm_m128n32s8w2_splitK4")
        << "a fourth of K begins inside of a vector";
    EXPECT_EQ(entry(operands(512, 1024, 512 * 4), "m128n32s8w2_splitK4"),
              "FineGEMM_e4m3_gemm_m128n32s8w2_splitK4_rows");
    EXPECT_EQ(entry(operands(512, 1024, 2048), "m128n224s4w2"), "FineGEMM_e4m3_gemm_m128n224s4w2")
        << "no registers for vectors";
}

TEST_F(HopperGemm, AKernelForRowMajorScalesCannotBeNamedEvenWhenItIsLoaded) {
    const auto hopper = backend();
    hopper->gemm({operands(512, 1024, 2048), {.config = "m128n128s6w2"}});
    ASSERT_EQ(last_launch().entry, "FineGEMM_e4m3_gemm_m128n128s6w2_rows");
    const Error error = error_of([&] { hopper->gemm({operands(512, 1024, 2048), {.config = "m128n128s6w2_rows"}}); });
    EXPECT_EQ(error.code(), Errc::InvalidArgument);
    EXPECT_EQ(mock->launches.size(), 1u);
}

TEST_F(HopperGemm, BatchInvariantCallsHaveOneOrderOfSums) {
    const GemmArgs args = operands(16, 576, 7168);
    const GemmConfig invariant = plan::choose({16, 576, 7168, true}, *plan::find_device("h200")).config;
    ASSERT_NE(arithmetic_of(planned(args)), Arithmetic{});
    {
        const auto hopper = backend();
        for (int i = 0; i < 2; ++i) {  // kept calls are kept apart
            hopper->gemm({args, {.batch_invariant = true}});
            expect_launch_of(last_launch(), args, invariant);
            hopper->gemm({args, {}});
            expect_launch_of(last_launch(), args, planned(args));
        }
        const std::string split = plan::name_of(planned(args));
        const Error error = error_of([&] { hopper->gemm({args, {.batch_invariant = true, .config = split}}); });
        EXPECT_EQ(error.code(), Errc::InvalidArgument);
        EXPECT_TRUE(contains(error, "batch-invariant")) << error.what();
    }
    Options options = backend_options();
    options.batch_invariant = true;
    const auto hopper = make_hopper_backend(options, 0, test::fake_kernel);
    hopper->gemm({args, {}});
    expect_launch_of(last_launch(), args, invariant);
    hopper->gemm({args, {.batch_invariant = false}});
    expect_launch_of(last_launch(), args, planned(args));
}

TEST_F(HopperGemm, LaunchesNoMoreCtasThanSmsMayBeUsed) {
    const auto hopper = backend();
    const GemmArgs args = operands(4096, 4096, 7168);
    for (const int32_t sms : {131, 66, 7, 1}) {
        hopper->gemm({args, {.num_sms = sms}});
        EXPECT_LE(last_launch().grid, static_cast<uint32_t>(sms));
        EXPECT_GE(last_launch().grid, static_cast<uint32_t>(sms / 2 * 2)) << "all but an odd one, in clusters of two";
    }
    hopper->gemm({args, {.num_sms = 66, .config = "m64n64s5w1_x2"}});
    EXPECT_EQ(last_launch().grid, 66u) << "one for each SM, though two would fit";
    const Error error = error_of([&] { hopper->gemm({args, {.num_sms = 66, .config = "m64n32s7w1_splitK3_x2"}}); });
    EXPECT_TRUE(contains(error, "SMs may be used")) << error.what();
}

TEST_F(HopperGemm, OverlapsWithTheKernelBeforeOnlyWhenAsked) {
    const auto hopper = backend();
    const GemmConfig clusters = test::candidate({ClusterUse::SplitK});
    for (const std::string& config : {std::string("m64n64s5w1_x2"), plan::name_of(clusters)})
        for (const bool pdl : {false, true, false}) {
            hopper->gemm({operands(16, 64, 4096), {.pdl = pdl, .config = config}});
            EXPECT_EQ(last_launch().programmatic, pdl);
            EXPECT_EQ(last_launch().cluster, config == "m64n64s5w1_x2" ? 1u : clusters.cluster);
        }
}

TEST_F(HopperGemm, LoadsWeightsBeforeTheKernelsBeforeItEndOnlyWhenAsked) {
    const auto hopper = backend();
    for (const bool prefetch : {false, true, false}) {
        hopper->gemm({operands(16, 64, 4096), {.pdl = true, .prefetch_weights = prefetch}});
        EXPECT_EQ(last_launch().gemm.prefetch_weights, prefetch);
    }
}

TEST_F(HopperGemm, TakesStridesOfAnyLayoutAsTheyAre) {
    GemmArgs args = operands(300, 512, 1040);
    args.a.row_stride = 1056;
    args.b.row_stride = 4096;
    args.d.row_stride = 520;
    args.sfa.row_stride = 1, args.sfa.col_stride = 304;
    args.sfb.row_stride = 3, args.sfb.col_stride = 17;
    backend()->gemm({args, {}});
    expect_launch_of(last_launch(), args, planned(args));
}

TEST_F(HopperGemm, ASingleRowMayHaveAnyStride) {
    for (const int64_t stride : {int64_t{0}, int64_t{7}, int64_t{1} << 50}) {
        GemmArgs args = operands(1, 520, 1040);
        args.a.row_stride = args.d.row_stride = stride;
        backend()->gemm({args, {}});
        EXPECT_EQ(mock::description_of(last_launch().gemm.a.last).row_stride_bytes, 1040u);
    }
}

TEST_F(HopperGemm, FewRowsKeepActivationsInL2AndStreamWeights) {
    const auto hopper = backend();
    hopper->gemm({operands(384, 512, 512), {}});
    EXPECT_NE(last_launch().gemm.a_policy, last_launch().gemm.b_policy);
    hopper->gemm({operands(385, 512, 512), {}});
    EXPECT_EQ(last_launch().gemm.a_policy, last_launch().gemm.b_policy);
}

TEST_F(HopperGemm, ExtentsAndStridesGoBeyond32Bits) {
    GemmArgs args = operands(INT32_MAX, 64, 16);
    args.a.row_stride = 1ll << 36;
    args.d.row_stride = 1ll << 36;
    args.sfa.row_stride = 1ll << 40;
    backend()->gemm({args, {}});
    expect_launch_of(last_launch(), args, planned(args));
    EXPECT_EQ(mock::description_of(last_launch().gemm.a.last).row_stride_bytes, 1ull << 36);
    EXPECT_EQ(last_launch().gemm.sfa.mn_stride, 1ll << 40);
}

TEST_F(HopperGemm, ARowStrideBeyondTheCopyEngineIsNamed) {
    GemmArgs args = operands(16, 64, 16);
    args.b.row_stride = 1ll << 40;
    const Error error = error_of([&] { backend()->gemm({args, {}}); });
    EXPECT_EQ(error.code(), Errc::Unsupported);
    EXPECT_TRUE(contains(error, "b: has row stride 1099511627776, must be below 1099511627776")) << error.what();
    args.b.row_stride -= 16;
    backend()->gemm({args, {}});
}

TEST_F(HopperGemm, SplitsOfMoreTilesThanAGridHoldsAreRefused) {
    const GemmArgs args = operands(INT32_MAX, INT32_MAX / 8 * 8, 16);
    const Error error = error_of([&] { backend()->gemm({args, {}}); });
    EXPECT_EQ(error.code(), Errc::Unsupported);
    EXPECT_TRUE(contains(error, "2147483647x2147483640x16")) << error.what();
}

TEST_F(HopperGemm, PassesTheStreamOn) {
    const auto hopper = backend();
    hopper->gemm({operands(64, 64, 128), {.stream = address(0xabc0)}});
    EXPECT_EQ(last_launch().stream, address(0xabc0));
    hopper->gemm({operands(64, 64, 128), {}});
    EXPECT_EQ(last_launch().stream, nullptr);
}

TEST_F(HopperGemm, AConfigByNameReplacesThePlannersChoice) {
    const auto hopper = backend();
    const GemmArgs args = operands(4096, 4096, 4096);
    const GemmConfig other = plan::candidates()[0];
    ASSERT_NE(planned(args), other);
    hopper->gemm({args, {.config = plan::name_of(other)}});
    expect_launch_of(last_launch(), args, other);
    hopper->gemm({args, {}});
    expect_launch_of(last_launch(), args, planned(args));
}

TEST_F(HopperGemm, AConfigThatDoesNotExistOrCannotTakeTheShapeIsExplained) {
    const auto hopper = backend();
    const Error unknown = error_of([&] { hopper->gemm({operands(64, 64, 128), {.config = "m1n1"}}); });
    EXPECT_EQ(unknown.code(), Errc::InvalidArgument);
    EXPECT_TRUE(contains(unknown, "'m1n1'")) << unknown.what();
    const GemmConfig split = test::candidate({ClusterUse::SplitK});
    const std::string name = plan::name_of(split);
    for (int i = 0; i < 2; ++i) {  // before and after it was loaded for another shape
        const Error error = error_of([&] { hopper->gemm({operands(64, 64, 128), {.config = name}}); });
        EXPECT_EQ(error.code(), Errc::InvalidArgument);
        for (const std::string& text : {name, std::string("64 x 64 x 128"), std::string("splits K finer than 128"),
                                        std::string("finegemm explain 'gemm 64x64x128 ")})
            EXPECT_TRUE(contains(error, text)) << error.what();
        hopper->gemm({operands(split.tile_m, 64, 128 * split.cluster), {.config = name}});
    }
    EXPECT_EQ(mock->count("cuLibraryLoadData"), 1);
}

TEST_F(HopperGemm, ZeroKWritesZerosIntoDAndNothingElse) {
    std::vector<uint16_t> memory(8 * 32, 0xa5a5);
    GemmArgs args = operands(7, 24, 0);
    args.d.data = memory.data() + 8;
    args.d.row_stride = 32;
    backend()->gemm({args, {}});
    for (size_t i = 0; i < memory.size(); ++i) {
        const bool inside = i >= 8 && (i - 8) % 32 < 24 && (i - 8) / 32 < 7;
        ASSERT_EQ(memory[i], inside ? 0 : 0xa5a5) << "element " << i;
    }
    EXPECT_TRUE(mock->launches.empty());
    args.d.rows = 1, args.d.row_stride = 0;  // a single row's stride means nothing
    backend()->gemm({args, {}});
}

TEST_F(HopperGemm, KnowsGpusByTheWordsOfTheirNames) {
    struct Case {
        const char *name, *device;
        int sms;
    };
    for (const auto& [name, device, sms] :
         {Case{"NVIDIA H200", "h200", 132}, Case{"NVIDIA H20", "h20", 78}, Case{"NVIDIA H20-3e", "h20", 78},
          Case{"NVIDIA H100 80GB HBM3", "h100", 132}, Case{"NVIDIA GH200 480GB", "gh200", 132}}) {
        mock->gpus[0].name = name;
        mock->gpus[0].sms = sms;
        const auto hopper = backend();
        for (int64_t m = 16; m <= 8192; m *= 2) {
            const GemmArgs args = operands(m, 2112, 7168);
            hopper->gemm({args, {}});
            ASSERT_EQ(last_launch().entry, entry_of(variant(planned(args, device), args))) << name << ", m = " << m;
        }
    }
}

}  // namespace
}  // namespace finegemm::hopper_gemm_test
