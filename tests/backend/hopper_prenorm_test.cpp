// What the Hopper backend launches for a product before a norm. Layer tests.
#include "ops/prenorm/planner.h"
#include "support/hopper.h"

namespace finegemm::hopper_prenorm_test {
namespace {

using test::address;

class HopperPrenorm : public test::HopperTest {
protected:
    static constexpr Device kGpu{DeviceType::Cuda, 0};

    struct Shape {
        int64_t m = 4096, n = 24, k = 7168, slices = 1;
        int64_t a_stride = 7168, d_row = 24;
        uintptr_t d = 0x30000;
    };
    mock::Launch launch(const Shape& s, const PrenormOptions& options = {}) {
        hopper_->run(PrenormCall{.a = {address(0x10000), DType::BF16, s.m, s.k, s.a_stride, 1, kGpu},
                                 .b = {address(0x20000), DType::F32, s.n, s.k, s.k, 1, kGpu},
                                 .d = {{address(s.d), DType::F32, s.m, s.n, s.d_row, 1, kGpu}, s.slices, s.m * s.d_row},
                                 .sqrsum = {address(0x40000), DType::F32, s.slices, s.m, s.m + 3, 1, kGpu},
                                 .options = options});
        return last_launch();
    }
    static PrenormPlan plan(const Shape& s, int32_t num_sms = 0) {
        return plan_of(PrenormProblem{s.m, s.n, s.k, s.slices, num_sms}, *plan::find_device("h200"));
    }
    std::unique_ptr<Backend> hopper_ = backend();
};

TEST_F(HopperPrenorm, LaunchesThePlan) {
    for (const int64_t m : {1, 13, 137, 4096, 8192})
        for (const int64_t slices : {1, 16}) {
            const Shape s{.m = m, .slices = slices};
            const PrenormPlan p = plan(s);
            const PrenormConfig& c = p.kernel.config;
            const mock::Launch l = launch(s);
            EXPECT_EQ(l.entry, "FineGEMM_prenorm_" + std::to_string(c.rows) + "x24_tf32_hc_prenorm_gemm");
            EXPECT_EQ(l.cluster, p.kernel.cluster());
            EXPECT_EQ(l.grid, p.ctas());
            EXPECT_EQ(l.block, c.threads());
            EXPECT_EQ(l.smem_bytes, c.smem_bytes());
            EXPECT_EQ(l.prenorm.cluster(), l.cluster);
            EXPECT_EQ(l.prenorm.real_slices, Divider::by(p.slices));
            EXPECT_EQ(l.prenorm.slices, static_cast<uint32_t>(slices));
            EXPECT_EQ(l.prenorm.items, ceil_div(static_cast<uint32_t>(m), c.rows) * p.slices);
            EXPECT_EQ(l.prenorm.parts, PrenormParts::of(112 / c.blocks(), p.parts()));
        }
    EXPECT_NE(launch({.n = 32}).entry.find("x32_"), std::string::npos);
    EXPECT_NE(launch({.n = 8}).entry.find("x24_"), std::string::npos);
}

TEST_F(HopperPrenorm, KernelsWithOtherClustersAreLoadedOnceEach) {
    launch({.m = 13, .slices = 1});
    const long loaded = mock->count("cuLibraryLoadData");
    launch({.m = 13, .slices = 1});
    EXPECT_EQ(mock->count("cuLibraryLoadData"), loaded);
}

TEST_F(HopperPrenorm, KeepsLaunchesThatDifferInNothing) {
    const auto maps = [&] { return mock->count("cuTensorMapEncodeTiled"); };
    launch({});
    const long made = maps();
    launch({}, {.stream = address(0x77), .pdl = true});
    EXPECT_EQ(maps(), made);
    // Whatever a launch depends on tells it from the others.
    const Shape others[] = {{.m = 4095},        {.n = 16},     {.k = 7104},   {.slices = 2},
                            {.a_stride = 7232}, {.d_row = 28}, {.d = 0x50000}};
    for (const Shape& s : others) {
        const long before = maps();
        const mock::Launch l = launch(s);
        EXPECT_EQ(maps(), before + 2);
        EXPECT_EQ(l.prenorm.d, address(s.d));
    }
    EXPECT_LE(launch({}, {.num_sms = 8}).grid, 8u);
    const mock::Launch again = launch({});
    EXPECT_EQ(again.grid, plan({}).ctas());
    EXPECT_EQ(again.prenorm.rows, 4096u);
}

TEST_F(HopperPrenorm, UsesNoMoreSmsThanItMay) {
    for (const int32_t num_sms : {1, 5, 100, 1000}) {
        const mock::Launch l = launch({.m = 8192, .slices = 16}, {.num_sms = num_sms});
        EXPECT_LE(l.grid, static_cast<uint32_t>(std::min(num_sms, 132)));
        EXPECT_EQ(l.grid % l.cluster, 0u);
    }
}

TEST_F(HopperPrenorm, PassesStreamAndOverlap) {
    EXPECT_FALSE(launch({}).programmatic);
    EXPECT_TRUE(launch({}, {.pdl = true}).programmatic);
    EXPECT_EQ(launch({}, {.stream = address(0x77)}).stream, address(0x77));
}

TEST_F(HopperPrenorm, DescribesAAndB) {
    const PrenormParams p = launch({.m = 137, .a_stride = 8000}).prenorm;
    EXPECT_EQ(mock::description_of(p.a),
              (mock::Description{address(0x10000), 64, 137, 16000, 64, 64, 9, 3, 7168 / 64, 128, 2}));
    EXPECT_EQ(mock::description_of(p.b),
              (mock::Description{address(0x20000), 32, 24, 7168 * 4, 32, 24, 7, 3, 7168 / 32, 128, 4}));
    EXPECT_EQ(p.rows, 137u);
    EXPECT_EQ(p.cols, 24u);
    EXPECT_EQ(p.d_row_stride, 24);
    EXPECT_EQ(p.d_slice_stride, 137 * 24);
    EXPECT_EQ(p.squares_stride, 140);
}

TEST_F(HopperPrenorm, StoresVectorsWhereRowsOfDAllow) {
    EXPECT_EQ(launch({.m = 13}).prenorm.vectors, 1u);
    EXPECT_EQ(launch({.m = 13, .d_row = 28}).prenorm.vectors, 1u);
    EXPECT_EQ(launch({.m = 13, .d_row = 25}).prenorm.vectors, 0u);
    EXPECT_EQ(launch({.m = 13, .d = 0x30004}).prenorm.vectors, 0u);
    EXPECT_EQ(launch({.m = 1, .d_row = 25}).prenorm.vectors, 1u) << "one row has no stride";
}

TEST_F(HopperPrenorm, LeavesL2ToOthersUnlessAIsLong) {
    const uint64_t first = launch({.m = 8192}).prenorm.a_policy;
    EXPECT_EQ(launch({.m = 13}).prenorm.a_policy, first);
    EXPECT_NE(launch({.m = 32768}).prenorm.a_policy, first);
}

TEST_F(HopperPrenorm, OneRowMayHaveAnyStride) {
    const PrenormParams p = launch({.m = 1, .a_stride = 3}).prenorm;
    EXPECT_EQ(mock::description_of(p.a).row_stride_bytes, 7168u * 2);
}

}  // namespace
}  // namespace finegemm::hopper_prenorm_test
