// What front ends time on a (mock) GPU. Layer tests.
#include <gtest/gtest.h>

#include "support/mock_driver.h"
#include "workbench/gpu.h"

namespace finegemm::test {
namespace {

class GpuTime : public testing::Test {
protected:
    static Options options() {
        Options o;
        o.driver_path = FINEGEMM_MOCK_DRIVER;
        return o;
    }
    /// A call that takes these microseconds, one after the other, and leaves its name in `order`.
    std::function<void()> call(char name, std::vector<double> us) {
        return [this, name, us, i = size_t{0}]() mutable {
            order += name;
            mock->clock_us += us.at(i++);
        };
    }

    mock::Driver mock{FINEGEMM_MOCK_DRIVER};
    std::unique_ptr<Gpu> gpu = Gpu::open(options(), 0);
    std::string order;
};

TEST_F(GpuTime, OfSeveralCallsIsTakenInTurn) {
    gpu->time(3, std::vector{call('a', {1, 1, 1, 1}), call('b', {1, 1, 1, 1})});
    EXPECT_EQ(order, "abababab") << "three rounds, and one before them";
    EXPECT_EQ(mock->count("cuMemsetD8Async"), 8) << "the L2 cache is emptied before each call";
}

TEST_F(GpuTime, IsEachCallsMedianWithoutItsFirstRun) {
    const std::vector<double> times = gpu->time(3, std::vector{call('a', {900, 7, 5, 6}), call('b', {900, 1, 90, 2})});
    ASSERT_EQ(times.size(), 2u);
    EXPECT_NEAR(times[0], 6, 1e-3);
    EXPECT_NEAR(times[1], 2, 1e-3);
}

TEST_F(GpuTime, OfOneCallIsItsMedian) { EXPECT_NEAR(gpu->time(3, call('a', {900, 3, 1, 2})), 2, 1e-3); }

TEST_F(GpuTime, GivesEveryTimeButTheFirstRounds) {
    const auto times = gpu->times(2, std::vector{call('a', {900, 7, 5}), call('b', {900, 1, 90})});
    ASSERT_EQ(times.size(), 2u);
    ASSERT_EQ(times[0].size(), 2u);
    EXPECT_NEAR(times[0][1], 5, 1e-3);
    EXPECT_NEAR(times[1][1], 90, 1e-3);
}

TEST_F(GpuTime, MedianIsAValueThatHalfAreBelow) {
    EXPECT_EQ(median_of({3}), 3);
    EXPECT_EQ(median_of({9, 1, 5}), 5);
    EXPECT_EQ(median_of({4, 1, 3, 2}), 3);
}

TEST_F(GpuTime, RunHasTheContextCurrentAndWaitsForTheWork) {
    size_t depth = 0;
    gpu->run([&] { depth = mock.context_depth(); });
    EXPECT_EQ(depth, 1u);
    EXPECT_EQ(mock.context_depth(), 0u);
    EXPECT_EQ(mock->calls.back(), "cuCtxPopCurrent");
    EXPECT_EQ(mock->count("cuStreamSynchronize"), 1);
}

TEST_F(GpuTime, MemoryIsFilledAndCopied) {
    auto *from = static_cast<char*>(gpu->allocate(64)), *to = static_cast<char*>(gpu->allocate(64));
    gpu->fill(from, 0x5a, 64);
    gpu->copy(to, from, 32);
    char there[32];
    gpu->download(there, to, 32);
    EXPECT_EQ(std::string(there, 32), std::string(32, 0x5a));
}

TEST_F(GpuTime, AGpuForBatchInvariantResultsNamesTheirKernels) {
    const GemmShape k_groups{.m = 768, .n = 1024, .k = 512, .k_groups = 2};
    Options invariant = options();
    invariant.batch_invariant = true;
    const auto other = Gpu::open(invariant, 0);
    const GemmShape shape{.m = 64, .n = 2112, .k = 7168};
    EXPECT_NE(other->kernel_for(shape), gpu->kernel_for(shape));
    EXPECT_NE(other->kernel_for(k_groups), gpu->kernel_for(k_groups));
    const GemmShape gradient{.m = 4096, .n = 4096, .k = 7168, .row_b_scales = true, .out_dtype = DType::F32};
    EXPECT_EQ(gpu->kernel_for(gradient), "m128n128s5w2_1d1d_f32");
    EXPECT_NE(other->kernel_for(gradient), gpu->kernel_for(gradient));
}

TEST_F(GpuTime, TheGpuSaysWhereItIs) {
    EXPECT_EQ(gpu->pci_bus_id(), "00000000:1b:00.0");
    EXPECT_EQ(gpu->cuda_version(), "12.4");
}

TEST_F(GpuTime, LeavesNoEventsBehind) {
    gpu->time(1, std::vector{call('a', {1, 1}), call('b', {1, 1})});
    gpu.reset();
    EXPECT_EQ(mock->events, 0);
    EXPECT_EQ(mock->allocations, 0);
}

}  // namespace
}  // namespace finegemm::test
