// What the Hopper backend launches where each row of B has scales, and D may be f32. Layer tests.
#include <finegemm/gemm/kernel_plan.h>

#include "plan/plan.h"
#include "support/hopper.h"

namespace finegemm::hopper_row_scales_test {
namespace {

using test::address;
using test::contains;
using test::error_of;

class HopperRowScales : public test::HopperTest {};

GemmArgs operands(int64_t m, int64_t n, int64_t k, DType output = DType::F32) {
    GemmArgs args = test::operands(m, n, k);
    args.sfb.rows = n;
    args.d.dtype = output;
    return args;
}

TEST_F(HopperRowScales, EachKindOfGemmGetsAKernelOfItsOwn) {
    const auto hopper = backend();
    std::set<std::string> entries;
    for (const GemmArgs& args :
         {operands(512, 1024, 2176), operands(512, 1024, 2176, DType::BF16), test::operands(512, 1024, 2176)})
        for (int i = 0; i < 2; ++i) {  // the second time as kept
            hopper->gemm({args, {}});
            entries.insert(last_launch().entry);
        }
    ASSERT_EQ(entries.size(), 3u);
    const auto ends = [&](const char* end) {
        return std::ranges::count_if(entries, [&](const std::string& entry) { return entry.ends_with(end); });
    };
    EXPECT_EQ(ends("_1d1d_f32"), 1);
    EXPECT_EQ(ends("_1d1d"), 1);
}

TEST_F(HopperRowScales, LaunchesEveryKernelByName) {
    const auto hopper = backend();
    for (const DType d : {DType::F32, DType::BF16, DType::F16})
        for (const GemmConfig& c : plan::candidates({.b = kRowScaled, .output = find_type(d)->output.value()})) {
            const GemmArgs args = operands(1024, 1024, 2176, d);
            hopper->gemm({args, {.config = plan::name_of(c)}});
            EXPECT_EQ(last_launch().entry, entry_of(c));
            EXPECT_EQ(last_launch().smem_bytes, kernel_plan(c).smem.total);
            EXPECT_EQ(last_launch().gemm.sfb.mn_stride, args.sfb.row_stride);
        }
}

TEST_F(HopperRowScales, AKernelOfAnotherKindIsRefused) {
    const auto hopper = backend();
    const auto refused = [&](const GemmArgs& args, const char* config, const char* why) {
        const Error error = error_of([&] { hopper->gemm({args, {.config = config}}); });
        EXPECT_EQ(error.code(), Errc::InvalidArgument);
        EXPECT_TRUE(contains(error, why)) << error.what();
    };
    refused(operands(512, 1024, 2048), "m128n128s6w2", "takes scales of B for other blocks");
    refused(test::operands(512, 1024, 2048), "m128n128s5w2_1d1d", "takes scales of B for other blocks");
    refused(operands(512, 1024, 2048), "m128n128s5w2_1d1d", "writes D in another type");
}

TEST_F(HopperRowScales, RowMajorOnesOfBothOperandsTakeTheVariantForThem) {
    const auto hopper = backend();
    const auto launched = [&](const GemmArgs& args, const char* config) {
        hopper->gemm({args, {.config = config}});
        return last_launch().entry;
    };
    const GemmArgs row_major = operands(512, 1024, 2048);
    GemmArgs mn_major = row_major, odd_base = row_major, short_vector = operands(512, 1024, 2176);
    mn_major.sfb.row_stride = 1, mn_major.sfb.col_stride = 1024;
    odd_base.sfb.data = static_cast<const float*>(odd_base.sfb.data) + 1;
    EXPECT_EQ(launched(row_major, "m128n128s5w2_1d1d_f32"), "FineGEMM_e4m3_gemm_m128n128s5w2_1d1d_f32_rows");
    for (const GemmArgs& args : {mn_major, odd_base, short_vector})
        EXPECT_EQ(launched(args, "m128n128s5w2_1d1d_f32"), "FineGEMM_e4m3_gemm_m128n128s5w2_1d1d_f32");
    EXPECT_EQ(launched(row_major, "m128n192s4w2_1d1d_f32"), "FineGEMM_e4m3_gemm_m128n192s4w2_1d1d_f32")
        << "it has none";
}

TEST_F(HopperRowScales, AddsToDOnlyWhenAsked) {
    const auto hopper = backend();
    for (const bool accumulate : {false, true, false}) {
        hopper->gemm({operands(512, 1024, 2048), {.accumulate = accumulate}});
        EXPECT_EQ(last_launch().gemm.accumulate, accumulate ? 1u : 0u);
    }
}

TEST_F(HopperRowScales, TheOldDIsLoadedWhereKIsShortAndItIsAddedTo) {
    const auto hopper = backend();
    const GemmArgs args = operands(8192, 4096, 640);  // five k-blocks: no whole vectors of scales
    const auto launched = [&](const GemmOptions& options) {
        hopper->gemm({args, options});
        return last_launch().entry;
    };
    EXPECT_EQ(launched({.accumulate = true}), "FineGEMM_e4m3_gemm_m128n128s4w2_1d1d_f32");
    const mock::Description d = mock::description_of(last_launch().gemm.d[0]);
    EXPECT_EQ(d.data, args.d.data);
    EXPECT_EQ(d.box_rows, 16u);
    EXPECT_EQ(d.row_stride_bytes, static_cast<uint64_t>(args.d.row_stride) * 4);
    EXPECT_EQ(launched({}), "FineGEMM_e4m3_gemm_m128n128s5w2_1d1d_f32") << "the room is better used for a stage";
    EXPECT_EQ(launched({.config = "m128n128s4w2_1d1d_f32"}), "FineGEMM_e4m3_gemm_m128n128s4w2_1d1d_f32")
        << "as it is asked for";
}

TEST_F(HopperRowScales, ZeroKWritesZerosOrLeavesWhatIsAddedTo) {
    std::vector<float> memory(8 * 32, 7);
    GemmArgs args = operands(7, 24, 0);
    args.d.data = memory.data() + 4;
    args.d.row_stride = 32;
    backend()->gemm({args, {.accumulate = true}});
    EXPECT_EQ(memory, std::vector<float>(8 * 32, 7));
    backend()->gemm({args, {}});
    for (size_t i = 0; i < memory.size(); ++i) {
        const bool inside = i >= 4 && (i - 4) % 32 < 24 && (i - 4) / 32 < 7;
        ASSERT_EQ(memory[i], inside ? 0 : 7) << "element " << i;
    }
    EXPECT_TRUE(mock->launches.empty());
}

}  // namespace
}  // namespace finegemm::hopper_row_scales_test
