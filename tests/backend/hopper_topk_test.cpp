// What the Hopper backend launches for selections. Layer tests.
#include "support/hopper.h"

namespace finegemm::hopper_topk_test {
namespace {

using test::address;

class HopperTopk : public test::HopperTest {
protected:
    static constexpr Device kGpu{DeviceType::Cuda, 0};

    static Matrix matrix(uintptr_t at, DType type, int64_t rows, int64_t cols) {
        return {address(at), type, rows, cols, cols, 1, kGpu};
    }
    static TopkOutputs outputs(int64_t rows) { return {matrix(0x100000, DType::I32, rows, 2048), {}, {}}; }
    mock::Launch select(int64_t rows, int64_t cols, const TopkOptions& options = {}) {
        const ConstMatrix logits = matrix(0x10000, DType::F32, rows, cols);
        hopper_->run(TopkCall{{.logits = logits, .starts = {}, .ends = {}, .out = outputs(rows)}, options});
        return last_launch();
    }
    std::vector<mock::Launch> prefill(int64_t queries, int64_t keys, bool with_logits = false,
                                      const TopkOptions& options = {}) {
        MqaTopkArgs args{.q = {matrix(0x10000, DType::E4M3, 64, 128), queries, 64 * 128},
                         .k = matrix(0x20000, DType::E4M3, keys, 128),
                         .sfk = matrix(0x30000, DType::F32, 1, keys),
                         .w = matrix(0x40000, DType::F32, queries, 64),
                         .starts = matrix(0x50000, DType::I32, 1, queries),
                         .ends = matrix(0x60000, DType::I32, 1, queries),
                         .out = outputs(queries),
                         .logits = {}};
        if (with_logits) args.logits = matrix(0x70000, DType::F32, queries, keys);
        mock->launches.clear();
        hopper_->run(MqaTopkCall{args, options});
        return mock->launches;
    }
    std::unique_ptr<Backend> hopper_ = backend();
};

TEST_F(HopperTopk, GivesARowACtaOrAsManyAsWouldBeIdleOrMark131072ColumnsEach) {
    EXPECT_EQ(select(4096, 8192).entry, "FineGEMM_topk_c1");
    EXPECT_EQ(select(4096, 131072).entry, "FineGEMM_topk_c1");
    EXPECT_EQ(select(4096, 131073).entry, "FineGEMM_topk_c2");
    EXPECT_EQ(select(4096, 1 << 24).entry, "FineGEMM_topk_c8");
    EXPECT_EQ(select(1, 150000).entry, "FineGEMM_topk_c8");
    EXPECT_EQ(select(60, 70000).entry, "FineGEMM_topk_c2");
    EXPECT_EQ(select(32, 140000).entry, "FineGEMM_topk_c4");
}

TEST_F(HopperTopk, KeepsFewRowsInClusters) {
    EXPECT_EQ(select(1, 8192).entry, "FineGEMM_topk_c1");
    EXPECT_EQ(select(2, 8193).entry, "FineGEMM_topk_few_c8");
    EXPECT_EQ(select(1, 131072).entry, "FineGEMM_topk_few_c8");
    EXPECT_EQ(select(32, 65536).entry, "FineGEMM_topk_few_c4");
    EXPECT_EQ(select(32, 131072).entry, "FineGEMM_topk_few_c8");  // places for two CTAs on an SM
    EXPECT_EQ(select(67, 16384).entry, "FineGEMM_topk_c1");
    EXPECT_FALSE(last_launch().programmatic);
}

TEST_F(HopperTopk, LaunchesAClusterForEachRowOrForTheSmsThatItMayUse) {
    const mock::Launch all = select(1000, 200000);
    EXPECT_EQ(std::tuple(all.grid, all.cluster, all.block), std::tuple(2000u, 2u, 512u));
    EXPECT_EQ(all.smem_bytes, TopkConfig{2}.smem_bytes());
    EXPECT_EQ(select(1000, 200000, {.num_sms = 7}).grid, 14u);
    EXPECT_EQ(select(1000, 20000, {.num_sms = 7}).grid, 28u);
    EXPECT_TRUE(select(3, 99, {.pdl = true}).programmatic);
    EXPECT_EQ(all.topk.width, 200000u);
    EXPECT_EQ(all.topk.k, 2048u);
    EXPECT_EQ(all.topk.ends, nullptr);
}

TEST_F(HopperTopk, ComputesNoMoreLogitsAtOnceThanItsMemoryHolds) {
    for (const auto& [queries, keys, steps] : {std::tuple(100, 1001, 1u), {4096, 32768, 2u}, {20, 1 << 24, 2u}}) {
        const bool pdl = steps == 1;
        const auto launches = prefill(queries, keys, false, {.pdl = pdl});
        ASSERT_EQ(launches.size(), 2 * steps);
        const int64_t stride = (keys + 3) / 4 * 4;
        uint32_t rows = 0;
        for (size_t i = 0; i < launches.size(); i += 2) {
            const MqaParams& logits = launches[i].mqa;
            const TopkParams& selected = launches[i + 1].topk;
            EXPECT_EQ(launches[i].programmatic, pdl || i > 0);  // asked for of the first launch
            EXPECT_TRUE(launches[i + 1].programmatic);
            EXPECT_EQ(static_cast<const void*>(logits.logits), selected.logits);
            EXPECT_EQ(std::tuple(logits.logits_stride, selected.logits_stride), std::tuple(4 * stride, stride));
            EXPECT_EQ(logits.fill, 0u);
            EXPECT_EQ(logits.starts, static_cast<int32_t*>(address(0x50000)) + rows);
            EXPECT_EQ(selected.ends, static_cast<int32_t*>(address(0x60000)) + rows);
            EXPECT_EQ(selected.indices, static_cast<int32_t*>(address(0x100000)) + rows * 2048);
            EXPECT_EQ(mock::description_of(logits.q).data, static_cast<uint8_t*>(address(0x10000)) + rows * 64 * 128);
            rows += selected.rows;
        }
        EXPECT_EQ(rows, static_cast<uint32_t>(queries));
    }
}

TEST_F(HopperTopk, LeavesNoSmMoreThanItsShareOfASelectionBehindLogits) {
    const uint32_t of_sm = 228 * 1024;
    for (const auto& [queries, share] : {std::pair(32, 1u), {132, 1u}, {133, 2u}, {256, 2u}, {300, 3u}, {500, 4u}}) {
        const uint32_t bytes = prefill(queries, 8192).back().smem_bytes + 1024;  // those of the system, too
        EXPECT_LE(share * bytes, of_sm);
        EXPECT_GT((share + 1) * bytes, of_sm);
        EXPECT_EQ(select(queries, 8192).smem_bytes, TopkConfig{1}.smem_bytes());
    }
    EXPECT_GT(2 * (prefill(1, 131072).back().smem_bytes + 1024), of_sm);
}

TEST_F(HopperTopk, ComputesAllLogitsThatAreAskedForWhereTheyAreWanted) {
    const auto launches = prefill(2048, 32768, true);
    ASSERT_EQ(launches.size(), 2u);
    EXPECT_EQ(static_cast<const void*>(launches[0].mqa.logits), address(0x70000));
    EXPECT_EQ(launches[0].mqa.fill, 1u);
    EXPECT_EQ(launches[1].topk.rows, 2048u);
    EXPECT_EQ(mock->pools, 0);
}

TEST_F(HopperTopk, TakesWholeRequestsOfPages) {
    constexpr int64_t kRequests = 100, kEach = 3, kPages = 8192, kKeys = kPages * 64;
    const PagedMqaTopkArgs args{.q = {matrix(0x10000, DType::E4M3, 64, 128), kRequests * kEach, 64 * 128},
                                .cache = matrix(0x20000, DType::E4M3, 5000, 64 * 132),
                                .w = matrix(0x40000, DType::F32, kRequests * kEach, 64),
                                .lengths = matrix(0x50000, DType::I32, kRequests, 1),
                                .block_table = matrix(0x60000, DType::I32, kRequests, kPages),
                                .out = outputs(kRequests * kEach),
                                .logits = {}};
    const TopkOptions options;
    hopper_->run(PagedMqaTopkCall{args, options});
    const auto& launches = mock->launches;
    ASSERT_EQ(launches.size(), 2 * 3u);  // 42 requests have 252 MiB of logits, 34 each are as many steps
    EXPECT_EQ(launches[2].mqa.items, 34u);
    EXPECT_EQ(launches[2].mqa.table, static_cast<int32_t*>(address(0x60000)) + 34 * kPages);
    EXPECT_EQ(launches[3].topk.ends, static_cast<int32_t*>(address(0x50000)) + 34);
    EXPECT_EQ(launches[3].topk.rows, 102u);
    EXPECT_EQ(std::tuple(launches[3].topk.each, launches[3].topk.own_lengths), std::tuple(3u, 0u));
    EXPECT_EQ(launches[3].topk.width, static_cast<uint32_t>(kKeys));
}

}  // namespace
}  // namespace finegemm::hopper_topk_test
