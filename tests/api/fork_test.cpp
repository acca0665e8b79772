// Contexts in a child of fork, of a parent at rest and of one whose threads are in calls. Layer tests.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <finegemm/quantize.h>

#include "support/cpu.h"
#include "support/error_of.h"
#include "support/matrix.h"
#include "support/mock_driver.h"

namespace finegemm::test {
namespace {

#ifdef __SANITIZE_THREAD__
#define FINEGEMM_NEED_FORK() GTEST_SKIP() << "ThreadSanitizer lets no child of fork start threads"
#else
#define FINEGEMM_NEED_FORK()
#endif

/// What `work` returns in a child of fork; -1 for a child that died, or hung.
int in_child(const std::function<bool()>& work) {
    const pid_t child = fork();
    if (child == 0) {
        alarm(30);  // whoever hangs dies
        _exit(work() ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::vector<uint16_t> product(Context& context, Problem& p) {
    gemm(context, p.args());
    return {p.d.data(), p.d.data() + p.m * p.n};
}

TEST(Fork, AChildMayUseAndDestroyWhatItInherits) {
    FINEGEMM_NEED_FORK();
    for (const int threads : {1, 2, 4}) {
        auto context = std::make_unique<Context>(cpu_options(threads));
        Problem p(300, 136, 256, 3);
        const std::vector<uint16_t> expected = product(*context, p);
        EXPECT_EQ(in_child([&] {
                      std::fill_n(p.d.data(), p.m * p.n, uint16_t{0});
                      const bool same = product(*context, p) == expected;
                      const bool again = in_child([&] { return product(*context, p) == expected; }) == 0;
                      context.reset();
                      Context other(cpu_options(threads));
                      return same && again && product(other, p) == expected;
                  }),
                  0);
        EXPECT_EQ(in_child([&] {
                      context.reset();  // unused here
                      return true;
                  }),
                  0);
        EXPECT_EQ(product(*context, p), expected) << "the parent goes on";
    }
}

TEST(Fork, AChildMayDoSoWhileThreadsOfTheParentAreInCalls) {
    FINEGEMM_NEED_FORK();
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "AddressSanitizer's malloc stays locked in a child whose parent had a thread in it";
#endif
    Problem p(300, 136, 256, 3);
    Context before(cpu_options(2));
    const std::vector<uint16_t> expected = product(before, p);
    auto shared = std::make_unique<Context>(cpu_options(3));
    std::atomic<bool> done = false;
    std::vector<std::thread> callers;
    for (int i = 0; i < 3; ++i)
        callers.emplace_back([&] {
            Problem own(300, 136, 256, 3);
            while (!done) {
                product(*shared, own);
                product(*std::make_unique<Context>(cpu_options(2)), own);  // whose backend is made at any time
            }
        });
    for (int i = 0; i < 30; ++i) {
        const int ended = in_child([&] {
            const bool same = product(*shared, p) == expected;
            shared.reset();
            return same;
        });
        EXPECT_EQ(ended, 0);
        if (ended != 0) break;
    }
    done = true;
    for (std::thread& caller : callers) caller.join();
}

TEST(Fork, AGpuInAChildIsAClearErrorAndIsLeftToTheParent) {
    mock::Driver driver(FINEGEMM_MOCK_DRIVER);
    Options options = cpu_options();
    options.driver_path = FINEGEMM_MOCK_DRIVER;
    auto context = std::make_unique<Context>(options);
    std::vector<float> x(16 * 128), scales(16);
    std::vector<uint8_t> q(x.size());
    const Device gpu{DeviceType::Cuda, 0};
    const auto quantize = [&] {
        quantize_rows(*context, {x.data(), DType::F32, 16, 128, 128, 1, gpu},
                      {q.data(), DType::E4M3, 16, 128, 128, 1, gpu}, {scales.data(), DType::F32, 16, 1, 1, 1, gpu});
    };
    try {
        quantize();
    } catch (const Error& e) {
        GTEST_SKIP() << "a mock GPU gets no kernels: " << e.what();
    }
    EXPECT_EQ(in_child([&] {
                  const size_t calls = driver->calls.size();
                  const Error e = error_of(quantize);
                  context.reset();
                  return e.code() == Errc::Unsupported &&
                         contains(e, "forked from one that uses it; start it by spawn") &&
                         driver->calls.size() == calls;
              }),
              0);
    quantize();
    driver.fail("cuInit", 3);  // as in a child of a process where another library uses CUDA
    context = std::make_unique<Context>(options);
    const Error e = error_of(quantize);
    EXPECT_EQ(e.code(), Errc::Unsupported);
    EXPECT_TRUE(contains(e, "forked from one that uses it")) << e.what();
}

}  // namespace
}  // namespace finegemm::test
