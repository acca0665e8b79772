// What the Hopper backend keeps between calls, and for how long. Layer tests.
#include <atomic>
#include <chrono>
#include <thread>

#include "cuda/device.h"
#include "plan/plan.h"
#include "support/hopper.h"

namespace finegemm::hopper_cache_test {
namespace {

using test::operands;

class HopperCache : public test::HopperTest {};

TEST_F(HopperCache, ACallThatWasMadeBeforeOnlyLaunches) {
    const auto hopper = backend();
    const GemmArgs args = operands(100, 512, 1024);
    hopper->gemm({args, {}});
    EXPECT_EQ(encodings(), 3) << "of A two: its last tile has fewer rows";
    mock->calls.clear();
    hopper->gemm({args, {}});
    EXPECT_EQ(mock->calls,
              (std::vector<std::string>{"cuCtxGetCurrent", "cuCtxPushCurrent", "cuLaunchKernelEx", "cuCtxPopCurrent"}));
    EXPECT_EQ(std::memcmp(&mock->launches[0].gemm, &mock->launches[1].gemm, sizeof(SegmentedParams)), 0);
}

TEST_F(HopperCache, AnyOtherPointerExtentOrStrideIsAnotherCall) {
    const GemmArgs first = operands(100, 512, 1024);
    const std::vector<void (*)(GemmArgs&)> changes = {
        [](GemmArgs& x) { x.a.data = test::address(0x900000); },
        [](GemmArgs& x) { x.b.data = test::address(0x900000); },
        [](GemmArgs& x) { x.d.data = test::address(0x900000); },
        [](GemmArgs& x) { x.sfa.data = test::address(0x900000); },
        [](GemmArgs& x) { x.sfb.data = test::address(0x900000); },
        [](GemmArgs& x) { x.a.rows = x.sfa.rows = x.d.rows = 99; },
        [](GemmArgs& x) { x.b.rows = x.d.cols = 504; },
        [](GemmArgs& x) { x.a.cols = x.b.cols = 1008; },
        [](GemmArgs& x) { x.a.row_stride = 2048; },
        [](GemmArgs& x) { x.b.row_stride = 2048; },
        [](GemmArgs& x) { x.d.row_stride = 2048; },
        [](GemmArgs& x) { x.sfa.row_stride = 2048; },
        [](GemmArgs& x) { x.sfa.col_stride = 2048; },
        [](GemmArgs& x) { x.sfb.row_stride = 2048; },
        [](GemmArgs& x) { x.sfb.col_stride = 2048; },
    };
    const auto hopper = backend();
    hopper->gemm({first, {}});
    for (size_t i = 0; i < changes.size(); ++i) {
        GemmArgs args = first;
        changes[i](args);
        const long before = encodings();
        hopper->gemm({args, {}});
        EXPECT_GE(encodings(), before + 2) << "change " << i;
        const GemmParams &p = last_launch().gemm, &q = mock->launches[0].gemm;
        EXPECT_NE(std::memcmp(&p, &q, sizeof p), 0) << "change " << i;
    }
}

TEST_F(HopperCache, ACallThatPollsMayLeaveAKernelThatIsStillMade) {
    struct Enough {};
    std::atomic<int> made = 0;
    const auto slow = [&](const jit::KernelSource& source) {
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        ++made;
        return test::fake_kernel(source);
    };
    {
        const auto hopper = backend(0, slow);
        EXPECT_THROW(hopper->gemm({operands(100, 512, 1024), {.poll = [](double) { throw Enough(); }}}), Enough);
        EXPECT_EQ(made, 0) << "nobody waited";
        EXPECT_EQ(mock->launches.size(), 0u);
        int polls = 0;
        hopper->gemm({operands(100, 512, 1024), {.poll = [&](double) { ++polls; }}});
        EXPECT_GT(polls, 0);
        EXPECT_EQ(mock->launches.size(), 1u);
        EXPECT_THROW(hopper->gemm({operands(4096, 4096, 1024), {.poll = [](double) { throw Enough(); }}}), Enough);
    }
    EXPECT_EQ(made, 3) << "the backend's end waits for what was left";
}

TEST_F(HopperCache, AKernelIsLoadedOnceForAllShapes) {
    int asked = 0;
    const auto hopper = backend(0, [&](const jit::KernelSource& source) {
        ++asked;
        return test::fake_kernel(source);
    });
    const std::string name = plan::name_of(plan::candidates()[0]);
    for (int64_t m = 1; m <= 10; ++m) hopper->gemm({operands(m, 512, 1024), {.config = name}});
    EXPECT_EQ(asked, 1);
    EXPECT_EQ(mock->libraries, 1);
}

TEST_F(HopperCache, IsBounded) {
    const auto hopper = backend();
    const auto call = [&](int i) { return operands(100, 512, 1024, 0x100000000 + static_cast<uintptr_t>(i) * 0x1000); };
    const auto is_kept = [&](int i) {
        const long before = encodings();
        hopper->gemm({call(i), {}});
        return encodings() == before;
    };
    for (int i = 0; i < 4096; ++i) hopper->gemm({call(i), {}});
    EXPECT_TRUE(is_kept(0));
    EXPECT_TRUE(is_kept(4095));
    EXPECT_FALSE(is_kept(4096));
    EXPECT_FALSE(is_kept(0));
    EXPECT_TRUE(is_kept(4096));
}

TEST_F(HopperCache, TakesShapesWithoutEnd) {
    const auto hopper = backend();
    for (int64_t m = 1; m <= 9000; ++m) {
        GemmArgs args = operands(m, 512, 1024);
        args.sfa.row_stride = 9;  // no whole vectors: the kernel's name is the plan's
        hopper->gemm({args, {}});
        ASSERT_EQ(last_launch().gemm.m, static_cast<uint32_t>(m));
        const plan::Problem problem{static_cast<uint32_t>(m), 512, 1024};
        const GemmConfig chosen = plan::choose(problem, *plan::find_device("h200")).config;
        ASSERT_EQ(last_launch().entry, entry_of(chosen));
    }
}

TEST_F(HopperCache, TwoGpusHaveKernelsAndContextsOfTheirOwn) {
    mock->gpus.resize(2);
    const auto first = backend(0), second = backend(1);
    const GemmArgs on_first = operands(100, 512, 1024, 0x100000000, 0),
                   on_second = operands(100, 512, 1024, 0x200000000, 1);
    for (int i = 0; i < 2; ++i) {
        first->gemm({on_first, {}});
        EXPECT_EQ(last_launch().gpu, 0);
        EXPECT_EQ(last_launch().gemm.d_data, on_first.d.data);
        second->gemm({on_second, {}});
        EXPECT_EQ(last_launch().gpu, 1);
        EXPECT_EQ(last_launch().gemm.d_data, on_second.d.data);
    }
    EXPECT_EQ(mock->libraries, 2);
    EXPECT_EQ(mock.context_depth(), 0u);
}

TEST_F(HopperCache, LeavesTheCallersContextCurrent) {
    mock->gpus.resize(2);
    const auto hopper = backend(1);
    const auto driver = cuda::Driver::open(FINEGEMM_MOCK_DRIVER);
    const cuda::Device other(driver, 0);
    const cuda::CurrentDevice callers(other);
    hopper->gemm({operands(100, 512, 1024, 0x100000000, 1), {}});
    EXPECT_EQ(last_launch().gpu, 1);
    cuda::ContextHandle current = nullptr;
    driver->api.CtxGetCurrent(&current);
    EXPECT_EQ(current, other.context());
    EXPECT_EQ(mock.context_depth(), 1u);
}

TEST_F(HopperCache, ManyThreadsOnTwoGpusGetEachTheirOwnLaunches) {
    constexpr int kThreads = 8, kCalls = 200;
    mock->gpus.resize(2);
    const std::unique_ptr<Backend> backends[] = {backend(0), backend(1)};
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
        threads.emplace_back([&, t] {
            const auto stream = test::address(static_cast<uintptr_t>(t) + 1);
            for (int i = 0; i < kCalls; ++i) {
                const int64_t m = 1 + (i % 7) * 150;  // shapes that threads share
                const auto base = 0x100000000 + static_cast<uintptr_t>(i % 40 * kThreads + t) * 0x1000;
                backends[t % 2]->gemm({operands(m, 512, 1024, base, t % 2), {.stream = stream}});
            }
        });
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(mock->launches.size(), static_cast<size_t>(kThreads * kCalls));
    std::array<int, kThreads> seen{};
    for (const mock::Launch& launch : mock->launches) {
        const auto t = static_cast<int>(reinterpret_cast<uintptr_t>(launch.stream)) - 1;
        const int i = seen[static_cast<size_t>(t)]++;
        const auto base = 0x100000000 + static_cast<uintptr_t>(i % 40 * kThreads + t) * 0x1000;
        ASSERT_EQ(launch.gpu, t % 2);
        ASSERT_EQ(launch.gemm.m, static_cast<uint32_t>(1 + (i % 7) * 150));
        ASSERT_EQ(mock::description_of(launch.gemm.a.last).data, test::address(base));
        ASSERT_EQ(launch.gemm.d_data, test::address(base + 0x40));
    }
}

}  // namespace
}  // namespace finegemm::hopper_cache_test
