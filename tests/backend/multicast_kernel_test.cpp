// The text of kernels whose CTAs share loads of A or of B, run on the host: D has the bits of the CPU's model. Layer
// tests.
#include <gtest/gtest.h>

#include "support/gemm_kernel.h"
#include "support/matrix.h"
#include "support/random.h"
#include "support/random_cases.h"

namespace finegemm {
namespace {

constexpr GemmConfig sharing(ClusterUse use, uint32_t tile_m, uint32_t tile_n, uint32_t stages, uint32_t warpgroups) {
    return {.tile_m = tile_m,
            .tile_n = tile_n,
            .stages = stages,
            .math_warpgroups = warpgroups,
            .cluster = 2,
            .cluster_use = use};
}

class MulticastKernel : public test::CandidateKernel {
protected:
    /// A product of two tiles or more along what CTAs share, whose last ones are ragged.
    template <GemmConfig C>
    void run(uint32_t seed) {
        test::Random random(seed);
        const int64_t m = random.any(C.tile_m * C.b_sharers() / 2 + 1, 2 * C.tile_m + 40),
                      n = 8 * random.any(C.tile_n / 8 + 1, 3 * C.tile_n / 8);
        test::Problem p(m, n, 16 * random.any(17, 60), seed, random.one_in(2), 16);
        compare<C>(p.args(), p.d, seed);
    }
};

TEST_F(MulticastKernel, HasTheBitsOfTheCpu) {
    for (uint32_t seed = 1; seed <= test::random_cases(2); ++seed) {
        run<sharing(ClusterUse::ShareA, 64, 64, 12, 2)>(seed);
        run<sharing(ClusterUse::ShareA, 192, 96, 5, 3)>(seed);
        run<sharing(ClusterUse::ShareA, 256, 128, 4, 2)>(seed);
        run<sharing(ClusterUse::ShareB, 128, 192, 4, 2)>(seed);
        if (HasFatalFailure()) return;
    }
}

}  // namespace
}  // namespace finegemm
