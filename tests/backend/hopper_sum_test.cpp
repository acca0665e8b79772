// What the Hopper backend launches for sums over stacks. Layer tests.
#include <finegemm/gemm/schedule.h>

#include "support/hopper.h"

namespace finegemm::hopper_sum_test {
namespace {

using test::address;

class HopperSum : public test::HopperTest {
protected:
    static SummedGemmArgs operands(int64_t count, int64_t m, int64_t n, int64_t k, DType d = DType::F32) {
        const Device where{DeviceType::Cuda, 0};
        return {.a = {{address(0x100000000), DType::BF16, m, k, k, 1, where}, count, m * k},
                .b = {{address(0x200000000), DType::BF16, n, k, k, 1, where}, count, n * k},
                .d = {address(0x300000000), d, m, n, n, 1, where}};
    }
};

TEST_F(HopperSum, CutsKIntoAPieceForEachCtaAndAddsThem) {
    mock->resident_clusters = 132, mock->resident_ctas = 1;
    auto hopper = backend();
    hopper->gemm({operands(129, 128, 384, 128), {.config = "m128n128s4w2_bf16_f32_summed"}});
    ASSERT_EQ(mock->launches.size(), 2u);
    const mock::Launch &pieces = mock->launches[0], &adds = mock->launches[1];
    EXPECT_EQ(pieces.entry, "FineGEMM_bf16_gemm_m128n128s4w2_bf16_f32_summed_bmn_bnk_mn_gemm_impl");
    EXPECT_EQ(pieces.grid, 132u);
    EXPECT_EQ(pieces.summed.pieces, 44u);
    EXPECT_EQ(pieces.summed.k_blocks, 129u * 2);
    EXPECT_EQ(pieces.summed.matrix_blocks, Divider::by(2));
    EXPECT_EQ(pieces.summed.d_stride, 128 * 384);
    EXPECT_EQ(pieces.summed.d_row_stride, 384);
    EXPECT_EQ(pieces.summed.accumulate, 0u);
    EXPECT_EQ(pieces.summed.a_policy, pieces.summed.b_policy) << "neither stays in L2 for the other";
    const mock::Description a = mock::description_of(pieces.summed.a.whole),
                            b = mock::description_of(pieces.summed.b.whole);
    EXPECT_EQ(mock::l2_promotion_of(pieces.summed.a.whole), mock::kPromotes128) << "not what is asked for later";
    EXPECT_EQ(a.count, 129u);
    EXPECT_EQ(a.stride_bytes, 128u * 128 * 2);
    EXPECT_EQ(b.rows, 384u);
    EXPECT_EQ(b.box_cols, 64u);

    EXPECT_EQ(adds.entry, "FineGEMM_add_pieces_f32");
    EXPECT_EQ(adds.add_pieces.sums, pieces.summed.d_data);
    EXPECT_EQ(adds.add_pieces.d, address(0x300000000));
    EXPECT_EQ(adds.add_pieces.pieces, 44u);
    EXPECT_EQ(adds.grid * adds.block * AddPiecesConfig::columns(), 128u * 384);
    EXPECT_EQ(pieces.summed.old_d.data, nullptr) << "D is overwritten";
    hopper.reset();
    EXPECT_EQ(mock->allocations, 0) << "what was taken is given back";
}

TEST_F(HopperSum, KOfAMatrixHasWholeBlocks) {
    const auto hopper = backend();
    hopper->gemm({operands(5, 100, 136, 72, DType::BF16), {}});
    EXPECT_EQ(mock->launches[0].summed.k_blocks, 10u);
    EXPECT_EQ(mock->launches[0].summed.matrix_blocks, Divider::by(2));
    EXPECT_EQ(mock->launches[0].summed.pieces, 10u) << "no more than there are k-blocks";
    EXPECT_EQ(mock->launches[1].entry, "FineGEMM_add_pieces_bf16");
}

TEST_F(HopperSum, AddsToDInTheSecondKernel) {
    const auto hopper = backend();
    hopper->gemm({operands(5, 100, 136, 72), {.num_sms = 3, .pdl = true, .accumulate = true}});
    EXPECT_EQ(mock->launches[0].summed.accumulate, 0u);
    EXPECT_TRUE(mock->launches[0].programmatic);
    EXPECT_LE(mock->launches[0].grid, 3u);
    EXPECT_EQ(mock->launches[0].summed.old_d.data, address(0x300000000)) << "comes to L2 for the second";
    EXPECT_EQ(mock->launches[0].summed.old_d.row_bytes, 136 * 4);
    EXPECT_EQ(mock->launches[0].summed.old_d.lines, Divider::by(5));
    EXPECT_EQ(mock->launches[1].add_pieces.accumulate, 1u);
    EXPECT_FALSE(mock->launches[1].programmatic) << "it waits for all of the first";
}

TEST_F(HopperSum, ALongDStaysInMemoryUntilItIsAddedTo) {
    const auto hopper = backend();
    hopper->gemm({operands(5, 8192, 136, 72), {.accumulate = true}});
    EXPECT_EQ(mock->launches[0].summed.old_d.data, nullptr);
}

TEST_F(HopperSum, PiecesDoNotDependOnMWhereBitsMayNot) {
    const auto hopper = backend();
    for (const int64_t m : {1, 128, 4096}) {
        hopper->gemm({operands(129, m, 384, 128), {.batch_invariant = true}});
        EXPECT_EQ(mock->launches[mock->launches.size() - 2].summed.pieces, kInvariantPieces);
    }
}

TEST_F(HopperSum, KeepsItsMapsAndItsPoolForTheNextCall) {
    {
        const auto hopper = backend();
        hopper->gemm({operands(129, 128, 384, 128), {}});
        const long maps = encodings();
        hopper->gemm({operands(129, 128, 384, 128), {}});
        EXPECT_EQ(encodings(), maps);
        EXPECT_EQ(mock->pools, 1);
    }
    EXPECT_EQ(mock->pools, 0);
}

TEST_F(HopperSum, CallsThatComeAgainAreOneLaunchOfBothKernels) {
    {
        const auto hopper = backend();
        const SummedGemmArgs args = operands(129, 128, 384, 128);
        int stream = 0;
        hopper->gemm({args, {}});
        const std::vector<mock::Launch> first = mock->launches;
        for (int call = 0; call < 3; ++call) {
            mock->launches.clear();
            hopper->gemm({args, {.stream = &stream}});
            ASSERT_EQ(mock->launches.size(), 2u);
            for (size_t i = 0; i < 2; ++i) {
                EXPECT_EQ(mock->launches[i].entry, first[i].entry);
                EXPECT_EQ(mock->launches[i].grid, first[i].grid);
                EXPECT_EQ(mock->launches[i].stream, &stream);
            }
            EXPECT_EQ(mock->launches[1].add_pieces.sums, mock->launches[0].summed.d_data);
            EXPECT_EQ(mock->launches[1].add_pieces.d, address(0x300000000));
        }
        EXPECT_EQ(mock->count("cuGraphLaunch"), 3);
        EXPECT_EQ(mock->count("cuGraphInstantiateWithFlags"), 1);
        EXPECT_EQ(mock->count("cuLaunchKernelEx"), 4) << "of the first call, and those that were recorded";
        EXPECT_EQ(mock->count("cuMemAllocFromPoolAsync"), 2) << "likewise";
        EXPECT_EQ(std::tuple(mock->streams, mock->graphs), std::tuple(0, 1));
    }
    EXPECT_EQ(mock->graphs, 0);
}

TEST_F(HopperSum, CallsThatAreCapturedOrOverlapAreTwoLaunches) {
    const auto hopper = backend();
    const auto twice = [&](const SummedGemmArgs& args, GemmOptions options) {
        for (int call = 0; call < 2; ++call) hopper->gemm({args, options});
    };
    twice(operands(129, 128, 384, 128), {.pdl = true});
    mock->capturing = true;
    twice(operands(129, 128, 256, 128), {});
    mock->capturing = false;
    EXPECT_EQ(mock->count("cuStreamCreate"), 0);
    EXPECT_EQ(mock->launches.size(), 8u);
    twice(operands(129, 128, 256, 128), {});
    EXPECT_EQ(mock->count("cuGraphLaunch"), 2) << "once nothing is captured";
}

TEST_F(HopperSum, ARecordingThatFailsLeavesNothing) {
    for (const char* call : {"cuMemAllocFromPoolAsync", "cuStreamCreate", "cuStreamBeginCapture", "cuLaunchKernelEx",
                             "cuStreamEndCapture", "cuGraphInstantiateWithFlags"}) {
        auto hopper = backend();
        const SummedGemmArgs args = operands(129, 128, 384, 128);
        hopper->gemm({args, {}});
        mock.fail(call, 2);
        EXPECT_TRUE(test::contains(test::error_of([&] { hopper->gemm({args, {}}); }), call));
        EXPECT_EQ(std::tuple(mock->allocations, mock->streams, mock->graphs), std::tuple(1, 0, 0))
            << call << ": of the first call alone";
        mock->failures.clear();
        hopper->gemm({args, {}});
        EXPECT_EQ(mock->count("cuGraphLaunch"), 1) << call;
        hopper.reset();
        EXPECT_EQ(mock->allocations, 0) << call;
        mock->calls.clear();
    }
}

TEST_F(HopperSum, NamesAnAllocationThatFails) {
    const auto hopper = backend();
    mock.fail("cuMemAllocFromPoolAsync", 2);
    EXPECT_TRUE(test::contains(test::error_of([&] { hopper->gemm({operands(129, 128, 384, 128), {}}); }),
                               "cuMemAllocFromPoolAsync"));
    EXPECT_EQ(mock->launches.size(), 0u);
}

}  // namespace
}  // namespace finegemm::hopper_sum_test
