// What front ends time on a (mock) GPU. Layer tests.
#include <gtest/gtest.h>

#include "api/gpu.h"
#include "support/mock_driver.h"

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

TEST_F(GpuTime, LeavesNoEventsBehind) {
    gpu->time(1, std::vector{call('a', {1, 1}), call('b', {1, 1})});
    gpu.reset();
    EXPECT_EQ(mock->events, 0);
    EXPECT_EQ(mock->allocations, 0);
}

}  // namespace
}  // namespace finegemm::test
