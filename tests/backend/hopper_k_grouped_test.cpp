// What the Hopper backend launches for K-grouped GEMMs. Layer tests.
#include <finegemm/gemm/arithmetic.h>
#include <finegemm/gemm/kernel_plan.h>

#include <cstring>

#include "plan/plan.h"
#include "support/hopper.h"

namespace finegemm::hopper_k_grouped_test {
namespace {

using test::address;
using test::contains;
using test::error_of;

class HopperKGrouped : public test::HopperTest {};

constexpr plan::Kind kKind{.grouping = Grouping::K, .b = kRowScaled, .output = Output::F32};

KGroupedGemmArgs operands(int64_t m, int64_t n, int64_t k, int64_t groups, DType d = DType::F32) {
    GemmArgs one = test::operands(m, n, k);
    one.sfb.rows = n;
    one.d.dtype = d;
    return {.a = one.a,
            .sfa = one.sfa,
            .b = one.b,
            .sfb = one.sfb,
            .d = {one.d, groups, m * n + 64},
            .offsets = static_cast<const int32_t*>(address(0x900000000)),
            .groups = groups,
            .offsets_device = one.d.device};
}

TEST_F(HopperKGrouped, LaunchesEveryKernelByName) {
    const auto hopper = backend();
    const auto f32 = plan::candidates(kKind), bf16 = plan::candidates({.grouping = Grouping::K, .b = kRowScaled});
    std::vector<GemmConfig> all(f32.begin(), f32.end());
    all.insert(all.end(), bf16.begin(), bf16.end());
    for (const GemmConfig& c : all) {
        const DType d = c.output == Output::F32 ? DType::F32 : DType::BF16;
        const KGroupedGemmArgs args = operands(1000, 1032, 2176, 5, d);
        for (int i = 0; i < 2; ++i) {  // the second time as kept
            hopper->gemm({args, {.config = plan::name_of(c)}});
            const mock::Launch& launch = last_launch();
            EXPECT_EQ(launch.entry, entry_of(c));
            EXPECT_EQ(launch.smem_bytes, kernel_plan(c).smem.total);
            const KGroupedParams& p = launch.k_grouped;
            EXPECT_EQ(p.groups.offsets, args.offsets);
            EXPECT_EQ(p.groups.groups, 5u);
            EXPECT_EQ(p.groups.k_blocks, 17u);
            EXPECT_EQ(p.d_stride, args.d.stride);
            EXPECT_EQ(p.m, 1000u);
            EXPECT_EQ(p.raster, raster(c, 1000, 1032));
            EXPECT_EQ(mock::description_of(p.a.whole).cols, 2176u);
            EXPECT_EQ(mock::description_of(p.b.last).box_rows, rows_of_last_tile(1032, c.tile_n, 1));
        }
    }
    EXPECT_EQ(mock->count("cuLibraryLoadData"), static_cast<long>(all.size()));
}

TEST_F(HopperKGrouped, TheGridHasTheTilesOfAllGroupsOrWhatFits) {
    const auto hopper = backend();
    hopper->gemm({operands(128, 128, 1024, 3), {.config = "m128n128s5w2_1d1d_f32_kgrouped"}});
    EXPECT_EQ(last_launch().grid, 3u);
    hopper->gemm({operands(4096, 4096, 1024, 3), {.config = "m128n128s5w2_1d1d_f32_kgrouped"}});
    const uint32_t all = last_launch().grid;
    EXPECT_GT(all, 3u);
    EXPECT_LT(all, 3072u);
    hopper->gemm({operands(4096, 4096, 1024, 3), {.num_sms = 20, .config = "m128n128s5w2_1d1d_f32_kgrouped"}});
    EXPECT_EQ(last_launch().grid, 20u);
}

TEST_F(HopperKGrouped, BatchInvariantCallsTakeNoFactorsFromTensorCores) {
    const auto launched = [this](Backend& hopper, std::optional<bool> of_call) {
        hopper.gemm({operands(4096, 4096, 4224, 3), {.batch_invariant = of_call}});
        return arithmetic_of(plan::config_named(last_launch().entry.substr(std::strlen("FineGEMM_e4m3_gemm_"))));
    };
    const auto usual = backend();
    EXPECT_EQ(launched(*usual, {}), Arithmetic{.tensor_core_scales = true});
    EXPECT_EQ(launched(*usual, true), Arithmetic{});
    Options options = backend_options();
    options.batch_invariant = true;
    const auto invariant = make_hopper_backend(options, 0, test::fake_kernel);
    EXPECT_EQ(launched(*invariant, {}), Arithmetic{});
    EXPECT_EQ(launched(*invariant, false), Arithmetic{.tensor_core_scales = true});
}

TEST_F(HopperKGrouped, RowMajorScalesTakeTheVariantForThem) {
    const auto hopper = backend();
    for (const auto& [k, entry] : {std::pair{2048, "FineGEMM_e4m3_gemm_m128n128s5w2_1d1d_f32_kgrouped_rows"},
                                   {2176, "FineGEMM_e4m3_gemm_m128n128s5w2_1d1d_f32_kgrouped"}}) {
        hopper->gemm({operands(512, 1024, k, 3), {.config = "m128n128s5w2_1d1d_f32_kgrouped"}});
        EXPECT_EQ(last_launch().entry, entry);
    }
}

TEST_F(HopperKGrouped, CallsThatDifferAreNotMistakenForOneAnother) {
    const auto hopper = backend();
    const KGroupedGemmArgs args = operands(512, 1024, 2048, 4);
    hopper->gemm({args, {}});
    EXPECT_EQ(last_launch().gemm.accumulate, 0u);
    hopper->gemm({args, {.accumulate = true}});
    EXPECT_EQ(last_launch().gemm.accumulate, 1u);
    KGroupedGemmArgs other = args;
    other.offsets += 1;
    hopper->gemm({other, {}});
    EXPECT_EQ(last_launch().k_grouped.groups.offsets, args.offsets + 1);
    other.groups = other.d.count = 3;
    hopper->gemm({other, {}});
    EXPECT_EQ(last_launch().k_grouped.groups.groups, 3u);
    other.d.stride += 64;
    hopper->gemm({other, {}});
    EXPECT_EQ(last_launch().k_grouped.d_stride, args.d.stride + 64);
    const long encoded = encodings();
    hopper->gemm({args, {}});
    EXPECT_EQ(encodings(), encoded) << "the first call was kept";
    EXPECT_EQ(last_launch().k_grouped.groups.offsets, args.offsets);
}

/// Offsets of so many groups, the second of which is empty; on the host.
std::vector<int32_t> host_offsets(int64_t groups) {
    std::vector<int32_t> offsets{0, 256, 256};
    while (static_cast<int64_t>(offsets.size()) <= groups) offsets.push_back(offsets.back() + 128);
    return offsets;
}
KGroupedGemmArgs with_host_offsets(const std::vector<int32_t>& offsets, KLayout layout = KLayout::Columns) {
    KGroupedGemmArgs args = operands(1000, 1032, offsets.back(), static_cast<int64_t>(offsets.size()) - 1);
    args.offsets = offsets.data();
    args.offsets_device = {};
    args.layout = layout;
    return args;
}

TEST_F(HopperKGrouped, SizesOnTheHostAreCopiedIntoTheLaunch) {
    const auto hopper = backend();
    const std::vector<int32_t> offsets = host_offsets(kHostGroups);
    const KGroupedGemmArgs args = with_host_offsets(offsets);
    hopper->gemm({args, {.accumulate = true}});
    ASSERT_EQ(mock->launches.size(), 1u);
    const KGroupedParams p = last_launch().k_grouped;
    EXPECT_EQ(p.groups.offsets, nullptr);
    EXPECT_EQ(p.groups.groups, kHostGroups);
    EXPECT_EQ(p.accumulate, 1u);
    EXPECT_EQ(p.blocks, 0u);
    EXPECT_EQ(p.d_data, args.d.matrix.data);
    for (uint32_t g = 0; g < kHostGroups; ++g)
        ASSERT_EQ(p.k_groups().group(g),
                  (KRange{static_cast<uint32_t>(offsets[g]) / 128, static_cast<uint32_t>(offsets[g + 1]) / 128}));
    const long encoded = encodings();
    const std::vector<int32_t> others(kHostGroups + 1, 128);
    KGroupedGemmArgs again = args;
    again.offsets = others.data();
    hopper->gemm({again, {.accumulate = true}});
    EXPECT_EQ(encodings(), encoded) << "what does not depend on sizes was kept";
    EXPECT_EQ(last_launch().k_grouped.k_groups().group(kHostGroups - 1), (KRange{1, 1}));
}

TEST_F(HopperKGrouped, SizesOnTheHostThatComeAgainAreOneLaunchOfAllKernels) {
    for (const int64_t groups : {int64_t{kHostGroups}, int64_t{kHostGroups} + 1}) {
        const auto hopper = backend();
        const std::vector<int32_t> offsets = host_offsets(groups), others(offsets.size(), 128);
        const KGroupedGemmArgs args = with_host_offsets(offsets);
        KGroupedGemmArgs other = args;
        other.offsets = others.data();
        mock->calls.clear(), mock->launches.clear();
        hopper->gemm({args, {}});
        const size_t kernels = mock->launches.size();
        for (int call = 0; call < 2; ++call) hopper->gemm({args, {}});
        EXPECT_EQ(mock->count("cuGraphLaunch"), 2);
        ASSERT_EQ(mock->launches.size(), 3 * kernels);
        EXPECT_EQ(last_launch().k_grouped.d_data, args.d.matrix.data);
        EXPECT_EQ(last_launch().entry, mock->launches[kernels - 1].entry);
        hopper->gemm({other, {}});
        hopper->gemm({args, {.pdl = true}});
        hopper->gemm({args, {.pdl = true}});
        EXPECT_EQ(mock->count("cuGraphLaunch"), 2) << "of other sizes, and of launches that overlap";
        EXPECT_EQ(mock->graphs, 0) << "of sizes before the last ones";
    }
}

TEST_F(HopperKGrouped, SizesOnTheHostAndOnTheDeviceAreNotMistakenForOneAnother) {
    const auto hopper = backend();
    const std::vector<int32_t> offsets = host_offsets(4);
    const KGroupedGemmArgs host = with_host_offsets(offsets);
    KGroupedGemmArgs device = host;
    device.offsets = static_cast<const int32_t*>(address(0x900000000));
    device.offsets_device = host.d.matrix.device;
    for (int i = 0; i < 2; ++i) {
        hopper->gemm({host, {}});
        EXPECT_EQ(last_launch().k_grouped.groups.offsets, nullptr);
        const uint32_t grid = last_launch().grid;
        hopper->gemm({device, {}});
        EXPECT_EQ(last_launch().k_grouped.groups.offsets, device.offsets);
        EXPECT_EQ(last_launch().grid, grid);
    }
}

TEST_F(HopperKGrouped, EachBlockHasAMapOfItsOwn) {
    const auto hopper = backend();
    const std::vector<int32_t> offsets = host_offsets(kBlockGroups);
    const KGroupedGemmArgs args = with_host_offsets(offsets, KLayout::Blocks);
    for (const GemmConfig& c : plan::candidates(kKind)) {
        mock->launches.clear();
        hopper->gemm({args, {.config = plan::name_of(c)}});
        ASSERT_EQ(mock->launches.size(), 1u);
        const KGroupedParams& p = last_launch().k_grouped;
        EXPECT_EQ(p.blocks, 1u);
        EXPECT_EQ(p.listed_blocks, nullptr);
        for (size_t g = 0; g < kBlockGroups; ++g) {
            const int64_t begin = offsets[g], k = offsets[g + 1] - begin;
            if (k == 0) continue;
            const auto description = [&](const ConstMatrix& x, uint32_t tile) {
                mock::Description d = mock::description_of(p.a.whole);
                d.data = static_cast<const uint8_t*>(x.data) + x.rows * begin;
                d.rows = static_cast<uint64_t>(x.rows);
                d.cols = d.row_stride_bytes = static_cast<uint64_t>(k);
                d.box_rows = tile;
                return d;
            };
            EXPECT_EQ(mock::description_of(p.block_maps[2 * g]), description(args.a, c.tile_m)) << g;
            EXPECT_EQ(mock::description_of(p.block_maps[2 * g + 1]), description(args.b, c.tile_n)) << g;
        }
    }
}

TEST_F(HopperKGrouped, MapsOfBlocksAreKeptWhileSizesStay) {
    const auto hopper = backend();
    std::vector<int32_t> offsets = host_offsets(kBlockGroups);
    const KGroupedGemmArgs args = with_host_offsets(offsets, KLayout::Blocks);
    const auto encoded_by_call = [&] {
        const long before = encodings();
        hopper->gemm({args, {}});
        return encodings() - before;
    };
    EXPECT_GE(encoded_by_call(), 2 * (kBlockGroups - 1)) << "of A and B, for each of the groups that have k";
    EXPECT_EQ(encoded_by_call(), 0);
    offsets[1] = 128;  // its 128 k are of the second group now, which had none
    EXPECT_EQ(encoded_by_call(), 2 * kBlockGroups);
    EXPECT_EQ(last_launch().k_grouped.k_groups().group(1), (KRange{1, 2}));
}

TEST_F(HopperKGrouped, GroupsThatParametersHaveNoRoomForAreListedInMemory) {
    auto hopper = backend();
    for (const KLayout layout : {KLayout::Columns, KLayout::Blocks})
        for (const uint32_t groups : {1u, 11u, 12u, 64u, 65u, 896u, 897u, 20000u}) {
            const bool blocks = layout == KLayout::Blocks, listed = groups > (blocks ? kBlockGroups : kHostGroups);
            mock->launches.clear();
            const std::vector<int32_t> offsets = host_offsets(std::max(groups, 2u));
            KGroupedGemmArgs args = with_host_offsets(offsets, layout);
            args.groups = args.d.count = groups;
            hopper->gemm({args, {.pdl = true}});
            const KGroupedParams& p = last_launch().k_grouped;
            EXPECT_EQ(p.groups.groups, groups);
            EXPECT_EQ(p.blocks, blocks ? 1u : 0u);
            EXPECT_EQ(p.groups.offsets != nullptr, listed);
            EXPECT_EQ(p.listed_blocks != nullptr, listed && blocks);
            EXPECT_EQ(last_launch().programmatic, !listed) << "it reads what the lists' kernel writes";
            ASSERT_EQ(mock->launches.size(), 1 + (listed ? ceil_div(groups, kListedGroups) : 0));
            for (uint32_t i = 0; i + 1 < mock->launches.size(); ++i) {
                const GroupListParams& list = mock->launches[i].group_list;
                EXPECT_EQ(list.offsets_to, p.groups.offsets);
                EXPECT_EQ(list.maps_to, p.listed_blocks);
                EXPECT_EQ(list.first, i * kListedGroups);
                EXPECT_EQ(list.groups, std::min(kListedGroups, groups - list.first));
                EXPECT_GT(mock->launches[i].grid * mock->launches[i].block, list.groups);
                EXPECT_TRUE(std::equal(list.offsets, list.offsets + list.groups + 1, &offsets[list.first]));
            }
        }
    hopper.reset();
    EXPECT_EQ(mock->allocations, 0) << "what lists took was given back";
}

TEST_F(HopperKGrouped, AKernelOfAnotherKindIsRefused) {
    const auto hopper = backend();
    const Error error =
        error_of([&] { hopper->gemm({operands(512, 1024, 2048, 4), {.config = "m128n128s5w2_1d1d_f32"}}); });
    EXPECT_EQ(error.code(), Errc::InvalidArgument);
    EXPECT_TRUE(contains(error, "computes one product for groups, or the other way round")) << error.what();
}

TEST_F(HopperKGrouped, ZeroKWritesZerosOrLeavesWhatIsAddedTo) {
    std::vector<float> memory(3 * 8 * 32, 7);
    KGroupedGemmArgs args = operands(7, 24, 0, 3);
    args.d.matrix.data = memory.data() + 4;
    args.d.matrix.row_stride = 32;
    args.d.stride = 8 * 32;
    backend()->gemm({args, {.accumulate = true}});
    EXPECT_EQ(memory, std::vector<float>(3 * 8 * 32, 7));
    backend()->gemm({args, {}});
    for (size_t i = 0; i < memory.size(); ++i) {
        const bool inside = i >= 4 && (i - 4) % 32 < 24 && (i - 4) / 32 % 8 < 7;
        ASSERT_EQ(memory[i], inside ? 0 : 7) << "element " << i;
    }
    EXPECT_TRUE(mock->launches.empty());
}

TEST_F(HopperKGrouped, OffsetsAndScalesAreLookedAtInCopies) {
    const int32_t offsets[] = {0, 128, 256, 128};
    std::vector<float> sfa(16 * 2, 1.0f), sfb(24 * 2, 1.0f);
    KGroupedGemmArgs args = operands(16, 24, 256, 3);
    args.offsets = offsets;
    args.sfa.data = sfa.data(), args.sfb.data = sfb.data();
    Error error = error_of([&] { backend()->check_values({args, {}}); });
    EXPECT_TRUE(contains(error, "offsets: [3] is 128, must be at least the 256 before it")) << error.what();
    args.groups = args.d.count = 2;
    EXPECT_NO_THROW(backend()->check_values({args, {}}));
    sfb[47] = -1;
    error = error_of([&] { backend()->check_values({args, {}}); });
    EXPECT_TRUE(contains(error, "sfb[23, 1] is -1")) << error.what();

    const long copies = mock->count("cuMemcpyDtoHAsync");
    args.offsets_device = {};
    error_of([&] { backend()->check_values({args, {}}); });
    EXPECT_EQ(mock->count("cuMemcpyDtoHAsync"), copies + 2) << "of scales alone";
}

}  // namespace
}  // namespace finegemm::hopper_k_grouped_test
