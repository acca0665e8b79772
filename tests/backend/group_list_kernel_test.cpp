// The text of the kernel that lists groups of K, run on the host, and that of a product that reads the list: launches
// are the backend's, and D has the bits of sums that are exact. Layer tests.
#include <gtest/gtest.h>

#include <finegemm/device/gemm.cuh>
#include <finegemm/device/group_list.cuh>

#include "ops/gemm/hopper.h"
#include "plan/elements.h"
#include "support/mock_driver.h"
#include "support/random.h"
#include "support/random_cases.h"

namespace finegemm {
namespace {

constexpr GemmConfig kConfig{.tile_m = 64,
                             .tile_n = 64,
                             .stages = 8,
                             .math_warpgroups = 1,
                             .grouping = Grouping::K,
                             .a = unscaled(Element::BF16, Major::K),
                             .b = unscaled(Element::BF16, Major::K),
                             .output = Output::F32};

/// Groups of K in blocks, more than parameters have room for, some of them empty.
struct Blocks {
    int64_t m, n;
    std::vector<int32_t> offsets = {0};
    std::vector<uint16_t> a, b;
    std::vector<float> d;

    explicit Blocks(test::Random& random) : m(8 * random.any(1, 9)), n(8 * random.any(1, 9)) {
        for (int64_t groups = kBlockGroups + random.any(1, 4); groups > 0; --groups)
            offsets.push_back(offsets.back() + 128 * static_cast<int32_t>(random.any(0, 2)));
        offsets.back() += 128;
        for (auto* x : {&a, &b})
            for (int64_t i = (x == &a ? m : n) * offsets.back(); i > 0; --i)
                x->push_back(bf16_of_float(static_cast<float>(random.any(-3, 3))));
        d.assign(static_cast<size_t>(groups() * m * n), NAN);
    }
    int64_t groups() const { return static_cast<int64_t>(offsets.size()) - 1; }
    KGroupedGemmArgs args() {
        const Device device{DeviceType::Cuda, 0};
        const int64_t k = offsets.back();
        return {.a = {a.data(), DType::BF16, m, k, k, 1, device},
                .sfa = {},
                .b = {b.data(), DType::BF16, n, k, k, 1, device},
                .sfb = {},
                .d = {{d.data(), DType::F32, m, n, n, 1, device}, groups(), m * n},
                .offsets = offsets.data(),
                .groups = groups(),
                .layout = KLayout::Blocks};
    }
    float sum(size_t g, int64_t row, int64_t col) const {
        const int64_t first = offsets[g], k = offsets[g + 1] - first;
        float sum = 0;
        for (int64_t i = 0; i < k; ++i)
            sum += float_of_bf16(a[static_cast<size_t>(m * first + row * k + i)]) *
                   float_of_bf16(b[static_cast<size_t>(n * first + col * k + i)]);
        return sum;
    }
};

TEST(GroupListKernel, WritesWhatAProductReadsOfBlocks) {
    const mock::Driver mock{FINEGEMM_MOCK_DRIVER};
    const auto driver = cuda::Driver::open(FINEGEMM_MOCK_DRIVER);
    for (uint32_t seed = 1; seed <= test::random_cases(4); ++seed) {
        test::Random random(seed);
        Blocks blocks(random);
        const GemmOptions options;
        const Call call(blocks.args(), options);
        const plan::Problem problem = problem_of(call);
        auto params = params_of(*driver, call, problem, kConfig, 3).as<KGroupedParams>();
        std::vector<int32_t> offsets(blocks.offsets.size(), -1);
        std::vector<TensorMap> maps(2 * static_cast<size_t>(blocks.groups()));
        try {
            for (GroupListParams list : group_lists_of(*driver, call, kConfig)) {
                list.offsets_to = offsets.data(), list.maps_to = maps.data();
                constexpr GroupListConfig kList;
                host_kernel::launch(1, kList.threads(), [&] { device::write_group_list<kList>(list); }, seed);
            }
            EXPECT_EQ(offsets, blocks.offsets);
            params.groups.offsets = offsets.data(), params.listed_blocks = maps.data();
            const uint32_t grid = grid_size(kConfig, most_tiles(problem, kConfig, 3), 3);
            host_kernel::launch(grid, kConfig.threads(), [&] { device::gemm<kConfig>(params); }, seed);
        } catch (const std::exception& error) {
            FAIL() << seed << ": " << error.what();
        }
        for (size_t i = 0; i < blocks.d.size(); ++i) {
            const auto of_group = static_cast<size_t>(blocks.m * blocks.n);
            const auto inside = static_cast<int64_t>(i % of_group);
            ASSERT_EQ(blocks.d[i], blocks.sum(i / of_group, inside / blocks.n, inside % blocks.n)) << seed << " " << i;
        }
    }
}

}  // namespace
}  // namespace finegemm
