// Contexts: one for all threads, several beside each other, devices that are not there. Layer tests.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include <finegemm/error.h>
#include <finegemm/gemm.h>

#include "api/context.h"
#include "support/cpu.h"
#include "support/matrix.h"

namespace finegemm::test {
namespace {

constexpr Device kCpu{}, kGpu{DeviceType::Cuda, 0};

std::vector<uint16_t> result(Problem& p) { return {p.d.data(), p.d.data() + p.m * p.n}; }

std::vector<uint16_t> multiply(Context& context, uint32_t seed) {
    Problem p(24, 72, 272, seed);
    gemm(context, p.args(), {.stream = nullptr, .numerics = Numerics::Hopper, .check_values = {}, .config = {}});
    return result(p);
}

template <typename Body>
void on_threads(int count, const Body& body) {
    std::vector<std::thread> threads;
    for (int t = 0; t < count; ++t) threads.emplace_back(body, t);
    for (std::thread& t : threads) t.join();
}

TEST(Context, GivesManyThreadsAtItsFirstUseWhatItGivesOne) {
    constexpr int kThreads = 8, kCalls = 4;
    Context alone(cpu_options());
    std::vector<std::vector<uint16_t>> expected;
    for (int i = 0; i < kThreads * kCalls; ++i) expected.push_back(multiply(alone, static_cast<uint32_t>(i)));
    ASSERT_NE(expected[0], expected[1]);

    Context shared(cpu_options());
    std::atomic<int> wrong = 0;
    on_threads(kThreads, [&](int t) {
        for (int i = t; i < kThreads * kCalls; i += kThreads)
            if (multiply(shared, static_cast<uint32_t>(i)) != expected[static_cast<size_t>(i)]) ++wrong;
    });
    EXPECT_EQ(wrong, 0);
}

TEST(Context, MakesOneBackendForADeviceHoweverManyThreadsAsk) {
    Context context(cpu_options());
    std::vector<Backend*> seen(8);
    on_threads(8, [&](int t) { seen[static_cast<size_t>(t)] = &context.state().backend(kCpu); });
    for (const Backend* b : seen) EXPECT_EQ(b, seen[0]);
    EXPECT_EQ(&context.state().backend({DeviceType::Cpu, 3}), seen[0]) << "CPUs have no index";
}

TEST(Context, SharesNothingWithAnother) {
    Context one(cpu_options()), two(cpu_options());
    EXPECT_NE(&one.state().backend(kCpu), &two.state().backend(kCpu));
}

TEST(Context, LooksForADeviceOnlyWhenACallNeedsIt) {
    Context context(cpu_options());  // its driver does not exist
    EXPECT_EQ(multiply(context, 1).size(), 24u * 72);
    EXPECT_THROW(context.state().backend(kGpu), Error);
}

TEST(Context, SaysAgainAndOnAllThreadsThatThereIsNoDriver) {
    Context context(cpu_options());
    std::atomic<int> unsupported = 0;
    on_threads(4, [&](int) {
        for (int i = 0; i < 3; ++i) try {
                context.state().backend(kGpu);
            } catch (const Error& e) {
                unsupported +=
                    e.code() == Errc::Unsupported && std::string(e.what()).find("/nowhere") != std::string::npos;
            }
    });
    EXPECT_EQ(unsupported, 12);
}

TEST(Context, MovesWithItsBackends) {
    Context from(cpu_options());
    Backend* backend = &from.state().backend(kCpu);
    Context to(std::move(from));
    EXPECT_EQ(&to.state().backend(kCpu), backend);
    EXPECT_EQ(to.options().cpu_threads, 2);
}

}  // namespace
}  // namespace finegemm::test
