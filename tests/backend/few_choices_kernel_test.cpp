// The kernel that finds rows and fills them at once, run on the host. Layer tests.
#include <gtest/gtest.h>

#include <utility>

#include <finegemm/device/routing/combine.cuh>
#include <finegemm/device/routing/permute.cuh>

#include "ops/routing/cpu.h"
#include "ops/routing/hopper.h"
#include "support/routing.h"
#include "support/slowdown.h"

namespace finegemm {
namespace {

using test::RouteProblem;

/// A random problem of routing, which takes offsets, with rows for what its tokens have.
struct FewProblem {
    RouteProblem routing;
    int64_t cols;
    std::vector<uint16_t> x;
    std::vector<float> weights;
    bool quantizes;

    explicit FewProblem(test::Random& r) : routing(r, 16), cols(16 * r.any(1, 90)), quantizes(!r.one_in(3)) {
        routing.form = GroupForm::Offsets, routing.permuted = false;
        routing.tokens = std::max<int64_t>(routing.tokens, 1);
        routing.ids.resize(static_cast<size_t>(routing.tokens * routing.ids_stride), routing.first);
        for (int64_t i = 0; i < routing.tokens * cols; ++i)
            x.push_back(static_cast<uint16_t>(float_bits(r.normal(1)) >> 16));
        for (int64_t i = 0; i < routing.tokens * routing.k; ++i) weights.push_back(r.normal(1));
    }

    struct Result {
        RouteProblem::Result rows;
        std::vector<uint8_t> q;
        std::vector<uint32_t> scales;
        std::vector<float> weights;
        bool operator==(const Result&) const = default;
    };
    /// What `body` writes, which is called with both calls as one.
    template <typename Body>
    Result run(int32_t num_sms, const Body& body) const {
        const DType to = quantizes ? DType::E4M3 : DType::BF16;
        const int64_t blocks = quantizes ? (cols + 127) / 128 : 0;
        test::Guarded<uint8_t> q(routing.rows * cols * size_of(to) + 64, 0xa5);
        test::Guarded<uint32_t> scales(routing.rows * blocks, 0x5eadbeef);
        test::Guarded<float> of_rows(routing.rows, -7);
        const PermuteOptions options{.num_sms = num_sms};
        Result result;
        result.rows = routing.run([&](const RouteCall& route) {
            PermuteQuantizeArgs args{.x = {x.data(), DType::BF16, routing.tokens, cols, cols},
                                     .inverse = route.inverse,
                                     .q = {{q.data(), to, routing.rows, cols, cols}}};
            if (quantizes) args.scales = {{scales.data(), DType::F32, routing.rows, blocks, 1, routing.rows}};
            PermuteCall call{args, options};
            call.route = &route;
            call.weights = {weights.data(), DType::F32, routing.tokens, routing.k, routing.k};
            call.weights_of_rows = {of_rows.data(), DType::F32, 1, routing.rows, routing.rows};
            body(call);
        });
        result.q = q.all, result.scales = scales.all;  // at places that differ by what alignment takes
        result.weights.assign(of_rows.data() - 4, of_rows.data() + routing.rows + 4);
        std::rotate(result.q.begin(), result.q.begin() + (q.data() - q.all.data()), result.q.end());
        std::rotate(result.scales.begin(), result.scales.begin() + (scales.data() - scales.all.data()),
                    result.scales.end());
        return result;
    }
};

TEST(FewChoicesKernel, FindsRowsAndFillsThemAsTwoCallsDoAndWritesNothingElse) {
    test::Random random(57);
    ThreadPool pool(1);
    for (uint32_t i = 0; i < test::tried(40); ++i) {
        const FewProblem p(random);
        const auto wanted = p.run(0, [&](const PermuteCall& call) { run_on_cpu(call, pool); });
        const auto found = p.run(i % 5 == 0 ? 1 : 0, [&](PermuteCall call) {
            if (!p.quantizes) run_on_cpu(*std::exchange(call.route, nullptr), pool);  // rows are copied by a call alone
            const PermuteLaunch launch = launch_of(call);
            ASSERT_EQ(launch.config.index(), p.quantizes ? 2u : 0u);
            const auto kernel = [&] {
                p.quantizes ? device::permute_rows<PermuteConfig{true, true}>(launch.params)
                            : device::permute_rows<PermuteConfig{false}>(launch.params);
            };
            host_kernel::launch(launch.grid, PermuteConfig::threads(), kernel, i);
        });
        ASSERT_TRUE(found == wanted) << p.routing.name();
    }
}

TEST(FewChoicesKernel, AddsUpRowsThatItFindsBeforeTheyAreThere) {
    test::Random random(58);
    ThreadPool pool(1);
    for (uint32_t i = 0; i < test::tried(30); ++i) {
        const FewProblem p(random);
        std::vector<uint16_t> y;
        for (int64_t e = 0; e < p.routing.rows * p.cols + 8; ++e)
            y.push_back(static_cast<uint16_t>(float_bits(random.normal(1)) >> 16));
        std::vector<float> biases(static_cast<size_t>(p.routing.experts * p.cols + 8));
        for (float& bias : biases) bias = random.normal(1);
        float* const of_experts = biases.data() + (16 - reinterpret_cast<uintptr_t>(biases.data()) % 16) % 16 / 4;
        const CombineOptions options{.num_sms = i % 5 == 0 ? 1 : 0};
        const auto sums = [&](const RouteCall& route, const auto& body) {
            uint16_t* const rows = y.data() + (16 - reinterpret_cast<uintptr_t>(y.data()) % 16) % 16 / 2;
            test::Guarded<uint16_t> out(p.routing.tokens * p.cols, 0xbeef);
            const CombineArgs args{
                .y = {{rows, DType::BF16, p.routing.rows, p.cols, p.cols}},
                .inverse = route.inverse,
                .weights = {p.weights.data(), DType::F32, p.routing.tokens, p.routing.k, p.routing.k},
                .out = {out.data(), DType::BF16, p.routing.tokens, p.cols, p.cols}};
            host_kernel::earlier = {{y.data(), 2 * y.size()}, {out.all.data(), 2 * out.all.size()}};
            CombineCall call{args, options};
            if (i % 2 == 0) call.biases = {of_experts, DType::F32, p.routing.experts, p.cols, p.cols};
            call.route = &route, call.counts = true;
            body(call);
            host_kernel::earlier.clear();
            std::rotate(out.all.begin(), out.all.begin() + (out.data() - out.all.data()), out.all.end());
            return out.all;
        };
        p.routing.run([&](const RouteCall& route) {
            const auto found = sums(route, [&](const CombineCall& call) {
                const CombineLaunch launch = launch_of(call);
                ASSERT_EQ(launch.config.index(), call.has_bias() ? 2u : 1u);
                const auto kernel = [&] {
                    call.has_bias() ? device::combine<CombineConfig{false, true}>(launch.params)
                                    : device::combine<CombineConfig{true}>(launch.params);
                };
                host_kernel::launch(launch.grid, CombineConfig::threads(), kernel, i);
            });
            run_on_cpu(route, pool);
            const auto wanted = sums(route, [&](const CombineCall& call) { run_on_cpu(call, pool); });
            ASSERT_TRUE(found == wanted) << p.routing.name();
        });
    }
}

}  // namespace
}  // namespace finegemm
