// What the Hopper backend launches for an indexer's scores. Layer tests.
#include "support/hopper.h"

namespace finegemm::hopper_mqa_test {
namespace {

using test::address;

class HopperMqa : public test::HopperTest {
protected:
    static constexpr Device kGpu{DeviceType::Cuda, 0};
    static constexpr int64_t kQueries = 37, kKeys = 1001;

    static ConstStack queries(int64_t count, int64_t heads, int64_t dim) {
        return {{address(0x10000), DType::E4M3, heads, dim, dim, 1, kGpu}, count, heads * dim};
    }
    static ConstMatrix numbers(uintptr_t at, int64_t rows, int64_t cols) {
        return {address(at), DType::I32, rows, cols, cols, 1, kGpu};
    }
    mock::Launch prefill(int64_t heads, int64_t dim, const MqaOptions& options = {}, DType type = DType::F32) {
        hopper_->run(MqaCall{.q = queries(kQueries, heads, dim),
                             .k = {address(0x20000), DType::E4M3, kKeys, dim, dim, 1, kGpu},
                             .sfk = {address(0x30000), DType::F32, 1, kKeys, kKeys, 1, kGpu},
                             .w = {address(0x40000), DType::F32, kQueries, heads, heads + 3, 1, kGpu},
                             .starts = numbers(0x50000, 1, kQueries),
                             .ends = numbers(0x60000, 1, kQueries),
                             .d = {address(0x70000), type, kQueries, kKeys, 1024, 1, kGpu},
                             .options = options});
        return last_launch();
    }
    mock::Launch paged(int64_t page_keys, int64_t each, int64_t lengths, const MqaOptions& options = {}) {
        constexpr int64_t kRequests = 5, kHeads = 64, kDim = 128, kPages = 900;
        hopper_->run(PagedMqaCall{
            .q = queries(kRequests * each, kHeads, kDim),
            .cache = {address(0x20000), DType::E4M3, kPages, page_keys * 132, page_keys * 132 + 32, 1, kGpu},
            .w = {address(0x40000), DType::F32, kRequests * each, kHeads, kHeads, 1, kGpu},
            .lengths = numbers(0x50000, kRequests, lengths),
            .block_table = {address(0x60000), DType::I32, kRequests, 70, 99, 1, kGpu},
            .schedule = numbers(0x80000, 133, 2),
            .d = {address(0x70000), DType::BF16, kRequests * each, 4000, 4096, 1, kGpu},
            .options = options});
        return last_launch();
    }
    std::unique_ptr<Backend> hopper_ = backend();
};

TEST_F(HopperMqa, TakesTheKernelOfTheHeadsTheirWidthAndTheForm) {
    EXPECT_EQ(prefill(64, 128).entry, "FineGEMM_mqa_logits_h64_d128");
    EXPECT_EQ(prefill(8, 32).entry, "FineGEMM_mqa_logits_h8_d32");
    EXPECT_EQ(prefill(32, 64, {.relu = Relu::Abs}).entry, "FineGEMM_mqa_logits_h32_d64_abs");
    EXPECT_EQ(prefill(16, 64, {.relu = Relu::Abs}).entry, "FineGEMM_mqa_logits_h16_d64");
    EXPECT_EQ(paged(64, 2, 1).entry, "FineGEMM_paged_mqa_logits_h64_d128");
    EXPECT_EQ(paged(64, 2, 1, {.relu = Relu::Abs}).entry, "FineGEMM_paged_mqa_logits_h64_d128");
}

TEST_F(HopperMqa, LaunchesACtaForEachSmThatItMayUse) {
    const mock::Launch all = prefill(64, 128);
    EXPECT_EQ(all.grid, 132u);
    EXPECT_EQ(all.block, 640u);
    EXPECT_EQ(all.smem_bytes, mqa_smem({64, 128, MqaKeys::Rows, MqaForm::Exact}).total);
    EXPECT_FALSE(all.programmatic);
    EXPECT_EQ(prefill(64, 128, {.num_sms = 100}).grid, 100u);
    EXPECT_EQ(paged(64, 1, 1, {.num_sms = 1000}).grid, 132u);
    EXPECT_TRUE(prefill(64, 128, {.pdl = true}).programmatic);
    EXPECT_EQ(prefill(64, 128, {.stream = address(0x77)}).stream, address(0x77));
}

TEST_F(HopperMqa, KeepsTheLaunchesOfCallsThatRepeat) {
    const auto encoded_by = [&](const auto& call) {
        const long before = encodings();
        call();
        return encodings() - before;
    };
    const auto rows = [&] { prefill(64, 128); };
    const auto pages = [&] { paged(64, 2, 1); };
    EXPECT_EQ(encoded_by(rows), 3);
    EXPECT_EQ(encoded_by(pages), 2);
    EXPECT_EQ(encoded_by(rows), 0);
    EXPECT_EQ(encoded_by(pages), 0);
    EXPECT_EQ(prefill(64, 128).mqa.starts, address(0x50000));
    EXPECT_EQ(encoded_by([&] { EXPECT_EQ(prefill(64, 128, {.num_sms = 50}).grid, 50u); }), 3);
    EXPECT_EQ(encoded_by([&] { EXPECT_EQ(prefill(64, 128, {}, DType::BF16).mqa.bf16, 1u); }), 3);
    EXPECT_EQ(encoded_by([&] { EXPECT_EQ(paged(64, 2, 2).mqa.own_lengths, 1u); }), 2);
    EXPECT_EQ(encoded_by([&] { EXPECT_EQ(paged(32, 2, 1).mqa.page_log2, 5u); }), 2);
}

TEST_F(HopperMqa, DescribesQueriesKeysAndScales) {
    const MqaParams p = prefill(16, 64, {.form = LogitsForm::Untouched}, DType::BF16).mqa;
    const mock::Description q = mock::description_of(p.q), k = mock::description_of(p.k);
    const mock::Description scales = mock::description_of(p.k_scales);
    EXPECT_EQ(q, (mock::Description{address(0x10000), 64, 16, 64, 64, 16, 0, 2, kQueries, 16 * 64}));
    EXPECT_EQ(k, (mock::Description{address(0x20000), 64, kKeys, 64, 64, 64, 0, 2}));
    EXPECT_EQ(scales, (mock::Description{address(0x30000), kKeys, 1, 4016, 64, 1, 7, 0}));
    EXPECT_EQ(p.items, 5u);  // of eight queries
    EXPECT_EQ(p.item_queries, 8u);
    EXPECT_EQ(p.rows, static_cast<uint32_t>(kQueries));
    EXPECT_EQ(p.logits_stride, 2048);
    EXPECT_EQ(p.weights_stride, 19);
    EXPECT_EQ(p.fill, 0u);
    EXPECT_EQ(p.compressed, 0u);
    EXPECT_EQ(p.bf16, 1u);
}

TEST_F(HopperMqa, SaysWhatBecomesOfColumnsWithoutALogit) {
    EXPECT_EQ(prefill(64, 128).mqa.fill, 1u);
    const MqaParams compressed = prefill(64, 128, {.form = LogitsForm::Compressed}).mqa;
    EXPECT_EQ(compressed.fill, 0u);
    EXPECT_EQ(compressed.compressed, 1u);
}

TEST_F(HopperMqa, DescribesPagesAndLengths) {
    const MqaParams p = paged(16, 7, 7).mqa;
    const mock::Description pages = mock::description_of(p.k);
    EXPECT_EQ(pages, (mock::Description{address(0x20000), 128, 16, 128, 128, 16, 0, 3, 900, 16 * 132 + 32}));
    EXPECT_EQ(p.page_log2, 4u);
    EXPECT_EQ(p.page_stride, 16 * 132 + 32);
    EXPECT_EQ(p.page_count, 900u);
    EXPECT_EQ(p.items, 5u);
    EXPECT_EQ(p.item_queries, 7u);
    EXPECT_EQ(p.item_parts, 4u);
    EXPECT_EQ(p.own_lengths, 1u);
    EXPECT_EQ(p.ends_stride, 7);
    EXPECT_EQ(p.keys, 70u * 16);
    EXPECT_EQ(p.width, 4000u);
    EXPECT_EQ(p.table_stride, 99);
    EXPECT_EQ(paged(64, 2, 1).mqa.own_lengths, 0u);
    EXPECT_EQ(paged(4, 1, 1).mqa.page_log2, 2u);
}

TEST_F(HopperMqa, RefusesMoreTilesThanItCanNumber) {
    constexpr int64_t kRows = int64_t{1} << 20, kMany = int64_t{1} << 22, kHeads = 8, kDim = 32;
    const MqaOptions options{.form = LogitsForm::Compressed};
    const auto call = [&](int64_t rows) {
        hopper_->run(MqaCall{.q = queries(rows, kHeads, kDim),
                             .k = {address(0x20000), DType::E4M3, kMany, kDim, kDim, 1, kGpu},
                             .sfk = {address(0x30000), DType::F32, 1, kMany, kMany, 1, kGpu},
                             .w = {address(0x40000), DType::F32, rows, kHeads, kHeads, 1, kGpu},
                             .starts = numbers(0x50000, 1, rows),
                             .ends = numbers(0x60000, 1, rows),
                             .d = {address(0x70000), DType::F32, rows, 64, 64, 1, kGpu},
                             .options = options});
    };
    call(kRows / 2);
    const Error error = test::error_of([&] { call(kRows); });
    EXPECT_EQ(error.code(), Errc::Unsupported);
    EXPECT_TRUE(test::contains(error, "q: has 1048576 queries of 4194304 keys, whose tiles")) << error.what();
}

TEST_F(HopperMqa, LaunchesOneCtaForASchedule) {
    const Matrix schedule{address(0x80000), DType::I32, 67, 2, 5, 1, kGpu};
    const PagedMqaScheduleOptions options{.pdl = true};
    hopper_->run(PagedMqaScheduleCall{numbers(0x50000, 9, 4), 4, schedule, options});
    const mock::Launch launch = last_launch();
    EXPECT_EQ(launch.entry, "FineGEMM_paged_mqa_schedule");
    EXPECT_EQ(launch.grid, 1u);
    EXPECT_EQ(launch.block, 1024u);
    EXPECT_TRUE(launch.programmatic);
    EXPECT_EQ(launch.mqa_schedule.lengths, static_cast<int32_t*>(address(0x50000)) + 3);
    EXPECT_EQ(launch.mqa_schedule.lengths_stride, 4);
    EXPECT_EQ(launch.mqa_schedule.schedule_stride, 5);
    EXPECT_EQ(launch.mqa_schedule.slots, 66u);
    EXPECT_EQ(launch.mqa_schedule.requests, 9u);
    EXPECT_EQ(launch.mqa_schedule.atoms, 2u);
}

}  // namespace
}  // namespace finegemm::hopper_mqa_test
