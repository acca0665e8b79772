// Long calls on the CPU ask whether they shall go on. Layer tests.
#include <gtest/gtest.h>

#include <finegemm/gemm.h>
#include <finegemm/quantize.h>

#include "support/cpu.h"
#include "support/matrix.h"
#include "support/sparse.h"

namespace finegemm::test {
namespace {

struct Enough {};

TEST(Poll, EndsALongCall) {
    constexpr int64_t kRows = 1 << 19, kCols = 4096;  // seconds
    Context context(cpu_options(1));
    const Sparse x(kRows * kCols * sizeof(float)), q(kRows * kCols), scales(kRows * kCols / 128 * sizeof(float));
    if (!x.ok() || !q.ok() || !scales.ok()) GTEST_SKIP() << "no 11 GB of address space here";
    const Matrix codes{q.as<void>(), DType::E4M3, kRows, kCols, kCols, 1, {}},
        factors{scales.as<void>(), DType::F32, kRows, kCols / 128, kCols / 128, 1, {}};
    const auto enough = [](double) { throw Enough(); };
    EXPECT_THROW(quantize_rows(context, {x.as<void>(), DType::F32, kRows, kCols, kCols, 1, {}}, codes, factors,
                               {.poll = enough}),
                 Enough);
    Problem p(1000, 1024, 4096, 3);  // seconds
    EXPECT_THROW(gemm(context, p.args(), {.numerics = Numerics::Hopper, .poll = enough}), Enough);
    Problem small(8, 8, 16, 3);
    gemm(context, small.args(), {.poll = enough});
}

}  // namespace
}  // namespace finegemm::test
