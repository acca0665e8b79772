// ThreadPool: each index once, from anywhere, exceptions included. Meant for ThreadSanitizer too.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine/thread_pool.h"

namespace finegemm {
namespace {

TEST(ThreadPool, CallsEachIndexOnceAlsoWhenCalledFromManyThreadsAndFromItself) {
    ThreadPool pool(4);
    std::vector<std::thread> callers;
    for (int t = 0; t < 4; ++t)
        callers.emplace_back([&] {
            std::vector<std::atomic<int>> seen(200);
            pool.parallel_for(20, [&](int64_t i) {
                pool.parallel_for(10, [&](int64_t j) { ++seen[static_cast<size_t>(i * 10 + j)]; });
            });
            for (const auto& s : seen) EXPECT_EQ(s, 1);
        });
    for (std::thread& caller : callers) caller.join();
}

TEST(ThreadPool, WorksOnSeveralIndicesAtOnce) {
    ThreadPool pool(2);
    std::atomic<int> arrived = 0;  // neither body returns before both have begun
    pool.parallel_for(2, [&](int64_t) {
        ++arrived;
        while (arrived < 2) std::this_thread::yield();
    });
    EXPECT_EQ(arrived, 2);
}

TEST(ThreadPool, OfOneThreadWorksOnTheCallersInOrder) {
    ThreadPool pool(1);
    EXPECT_EQ(pool.threads(), 1);
    std::vector<int64_t> order;
    pool.parallel_for(5, [&](int64_t i) { order.push_back(i); });
    EXPECT_EQ(order, (std::vector<int64_t>{0, 1, 2, 3, 4}));
}

TEST(ThreadPool, DoesNothingForNoIndices) {
    ThreadPool pool(3);
    pool.parallel_for(0, [](int64_t) { FAIL(); });
    pool.parallel_for(-1, [](int64_t) { FAIL(); });
}

TEST(ThreadPool, PollsOnTheCallersThreadAndEndsWithWhatThatThrows) {
    using namespace std::chrono_literals;
    for (const int threads : {1, 3}) {
        ThreadPool pool(threads);
        const auto caller = std::this_thread::get_id();
        const auto start = std::chrono::steady_clock::now();
        int polls = 0;
        EXPECT_THROW(pool.parallel_for(
                         10'000, [](int64_t) { std::this_thread::sleep_for(1ms); },
                         [&](double share) {
                             EXPECT_EQ(std::this_thread::get_id(), caller);
                             EXPECT_NEAR(share, 0.005 * (polls + 1) * threads, 0.004 * (polls + 1) * threads);
                             if (++polls == 2) throw std::runtime_error("enough");
                         }),
                     std::runtime_error);
        EXPECT_EQ(polls, 2);
        EXPECT_GE(std::chrono::steady_clock::now() - start, 100ms) << "not for each index";
        pool.parallel_for(100, [](int64_t) {}, [](double) { FAIL() << "what is short is not polled"; });
    }
}

TEST(ThreadPool, ThrowsTheBodysExceptionAndWorksOn) {
    ThreadPool pool(3);
    for (int round = 0; round < 20; ++round) {
        std::string caught;
        try {
            pool.parallel_for(100, [](int64_t i) {
                if (i == 37) throw std::runtime_error("37");
            });
        } catch (const std::runtime_error& e) {
            caught = e.what();
        }
        EXPECT_EQ(caught, "37");
    }
    std::atomic<int64_t> sum = 0;
    pool.parallel_for(10, [&](int64_t i) { sum += i; });
    EXPECT_EQ(sum, 45);
}

TEST(ThreadPool, BeginsNothingAfterAnException) {
    ThreadPool pool(1);
    int64_t last = -1;
    EXPECT_THROW(pool.parallel_for(100,
                                   [&](int64_t i) {
                                       last = i;
                                       if (i == 3) throw std::runtime_error("3");
                                   }),
                 std::runtime_error);
    EXPECT_EQ(last, 3);
}

TEST(ThreadPool, TakesAllThatTheMachineRunsAtOnceForZero) {
    EXPECT_EQ(ThreadPool(0).threads(), std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
}

}  // namespace
}  // namespace finegemm
