// The text of the kernels for weights of 4 bits, run on the host: the bits are those of the FP8 product of the same
// weights, and rows of no group stay as they were. Layer tests.
#include <gtest/gtest.h>

#include <finegemm/device/four_bit/four_bit.cuh>

#include "ops/four_bit/hopper.h"
#include "support/four_bit.h"
#include "support/mock_driver.h"
#include "support/random_cases.h"

namespace finegemm {
namespace {

using test::FourBitCase;
using test::Random;

template <FourBitConfig C>
void run_config(const FourBitLaunch& launch, uint32_t seed) {
    host_kernel::launch(launch.grid, C.threads(), [&] { device::four_bit<C>(launch.params); }, seed, 1, seed % 2 == 0);
}

template <FourBitRows Rows>
void run_kernel(const FourBitLaunch& launch, uint32_t seed) {
    if (launch.config.codes == FourBitCodes::Mxfp4) run_config<FourBitConfig{FourBitCodes::Mxfp4, Rows}>(launch, seed);
    else run_config<FourBitConfig{FourBitCodes::Int4, Rows}>(launch, seed);
}

template <FourBitRows Rows>
void expect_bits_of_fp8(int64_t most_rows) {
    mock::Driver mock{FINEGEMM_MOCK_DRIVER};
    const auto driver = cuda::Driver::open(FINEGEMM_MOCK_DRIVER);
    ThreadPool pool(1);
    for (uint32_t seed = 1; seed <= test::random_cases(12); ++seed) {
        Random random(seed), again(seed);
        FourBitCase found(random, most_rows), wanted(again, most_rows);
        try {
            run_kernel<Rows>(launch_of(found.call(), *driver, 2, Rows), seed);
        } catch (const std::exception& error) {
            FAIL() << seed << ": " << error.what();
        }
        run_on_cpu(wanted.call(), pool);
        const Matrix d = found.rows.d.view();
        ASSERT_TRUE(found.rows.d.surroundings_intact()) << seed;
        for (int64_t r = 0; r < d.rows; ++r)
            for (int64_t c = 0; c < d.cols; ++c)
                ASSERT_EQ(found.rows.d.at(r, c), wanted.rows.d.at(r, c))
                    << seed << ": " << text_of(found.call().shape()) << ", row " << r << ", column " << c;
    }
}

TEST(FourBitKernelText, RandomGroupsHaveTheBitsOfTheSameWeightsInFp8) { expect_bits_of_fp8<FourBitRows::Few>(200); }
TEST(FourBitKernelText, GroupsOfManyRowsHaveThem) { expect_bits_of_fp8<FourBitRows::Many>(600); }

}  // namespace
}  // namespace finegemm
