// The text of the kernels for an indexer's scores, run on the host: launches are the backend's, logits have the bits of
// the CPU backend's, and nothing else is written. Layer tests.
#include <gtest/gtest.h>

#include <finegemm/device/mqa/mqa.cuh>
#include <finegemm/device/mqa/schedule.cuh>

#include "ops/mqa/cpu.h"
#include "ops/mqa/hopper.h"
#include "ops/mqa/source.h"
#include "support/mock_driver.h"
#include "support/mqa.h"
#include "support/random_cases.h"

namespace finegemm {
namespace {

template <MqaConfig C>
bool run_config(const MqaLaunch& launch, uint32_t seed) {
    if (launch.config != C) return false;
    host_kernel::launch(launch.grid, C.threads(), [&] { device::mqa_logits<C>(launch.params); }, seed);
    return true;
}

template <MqaKeys Keys, MqaForm Form, uint32_t Heads>
bool run_heads(const MqaLaunch& launch, uint32_t seed) {
    return run_config<MqaConfig{Heads, 32, Keys, Form}>(launch, seed) ||
           run_config<MqaConfig{Heads, 64, Keys, Form}>(launch, seed) ||
           run_config<MqaConfig{Heads, 128, Keys, Form}>(launch, seed);
}

template <MqaKeys Keys>
void run_kernel(const MqaLaunch& launch, uint32_t seed) {
    constexpr MqaForm kExact = MqaForm::Exact, kAbs = MqaForm::Abs;
    const bool run = run_heads<Keys, kExact, 8>(launch, seed) || run_heads<Keys, kExact, 16>(launch, seed) ||
                     run_heads<Keys, kExact, 32>(launch, seed) || run_heads<Keys, kExact, 64>(launch, seed) ||
                     run_heads<Keys, kAbs, 32>(launch, seed) || run_heads<Keys, kAbs, 64>(launch, seed);
    ASSERT_TRUE(run) << "no such kernel";
}

class MqaKernel : public ::testing::Test {
protected:
    mock::Driver mock{FINEGEMM_MOCK_DRIVER};
    std::shared_ptr<const cuda::Driver> driver = cuda::Driver::open(FINEGEMM_MOCK_DRIVER);
    ThreadPool pool{2};

    /// What both write to the logits of a problem that `make` makes twice.
    template <MqaKeys Keys, typename Make>
    void compare(const Make& make, uint32_t sms, uint32_t seed) {
        auto by_kernel = make(), by_cpu = make();
        run_on_cpu(by_cpu.call(), pool);
        const MqaLaunch launch = launch_of(by_kernel.call(), *driver, sms);
        const std::string name = text_of(by_kernel.call());
        try {
            run_kernel<Keys>(launch, seed);
        } catch (const std::exception& error) {
            FAIL() << seed << ": " << name << ": " << error.what();
        }
        ASSERT_TRUE(by_kernel.d.surroundings_intact()) << seed << ": " << name;
        const Matrix d = by_kernel.d.view();
        for (int64_t r = 0; r < d.rows; ++r)
            for (int64_t c = 0; c < d.cols; ++c)
                ASSERT_EQ(by_kernel.d.bits(r, c), by_cpu.d.bits(r, c))
                    << seed << ": " << name << ", query " << r << ", column " << c;
    }
};

TEST_F(MqaKernel, GivesTheBitsOfTheCpuForRandomWindows) {
    for (uint32_t seed = 1; seed <= test::random_cases(24); ++seed) {
        const auto make = [&] {
            test::Random random(seed);
            return test::MqaProblem(random);
        };
        if (make().queries.count == 0) continue;
        compare<MqaKeys::Rows>(make, 1 + seed % 3, seed);
        if (HasFatalFailure()) return;
    }
}

TEST_F(MqaKernel, GivesTheBitsOfTheCpuForRandomPages) {
    for (uint32_t seed = 1; seed <= test::random_cases(24); ++seed) {
        const auto make = [&] {
            test::Random random(seed);
            return test::PagedMqaProblem(random);
        };
        compare<MqaKeys::Pages>(make, 1 + seed % 3, seed);
        if (HasFatalFailure()) return;
    }
}

}  // namespace
}  // namespace finegemm
