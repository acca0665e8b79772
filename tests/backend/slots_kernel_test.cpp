// The text of the kernel that finds places in messages between ranks, run on the host. Layer tests.
#include <gtest/gtest.h>

#include <finegemm/device/routing/slots.cuh>

#include "ops/ep/cpu.h"
#include "ops/ep/hopper.h"
#include "ops/routing/cpu.h"
#include "support/routing.h"
#include "support/slowdown.h"

namespace finegemm {
namespace {

/// Choices of tokens for experts of ranks, and what is written of them with all that surrounds it.
struct SlotsProblem {
    int64_t ranks, experts, capacity, tokens, k, stride, row_words, returned_words;
    bool wide, placed;
    std::vector<int64_t> ids;

    explicit SlotsProblem(test::Random& r) {
        ranks = r.any(1, 16), experts = r.any(1, 64), tokens = r.one_in(6) ? 0 : r.any(1, 80), k = r.any(1, 16);
        placed = !r.one_in(4), wide = r.one_in(2);
        capacity = placed ? r.one_in(3) ? r.any(1, 5) : std::max<int64_t>(1, tokens * k) : 0;
        stride = k + r.any(0, 2), row_words = r.any(2, 9), returned_words = r.any(1, 90);
        ids.resize(static_cast<size_t>(tokens * stride), -1);
        for (int64_t& id : ids) id = r.one_in(6) ? r.one_of<int64_t>({-1, 1 << 30}) : r.any(0, ranks * experts - 1);
        if (wide && !ids.empty()) ids[0] = int64_t{1} << 40;  // its low half is an expert's id
    }

    using Words = std::vector<int32_t>;
    struct Result {
        Words slots, counts, sent, coming, returned;
        bool operator==(const Result&) const = default;
    };
    template <typename Body>
    Result run(const Body& body) const {
        constexpr int32_t kGuard = 0x5eadbeef;
        const auto guarded = [&](int64_t words) { return test::Guarded<int32_t>(words, kGuard); };
        const int64_t rows = placed ? ranks * capacity : tokens * k;
        auto slots = guarded(tokens * k), counts = guarded(ranks), sent = guarded(rows * row_words),
             coming = guarded(rows * row_words), returned = guarded((rows + 1) * returned_words);
        Words inverse(static_cast<size_t>(tokens * k)), offsets(static_cast<size_t>(ranks * experts + 1)),
            narrow(ids.begin(), ids.end());
        ThreadPool pool(1);
        const RouteOptions options;
        const void* const given = wide ? static_cast<const void*>(ids.data()) : narrow.data();
        run_on_cpu(RouteCall{{.ids = {given, wide ? DType::I64 : DType::I32, tokens, k, stride},
                              .inverse = {inverse.data(), DType::I32, tokens, k, k},
                              .numbers = {offsets.data(), DType::I32, 1, ranks * experts + 1, ranks * experts + 1},
                              .form = GroupForm::Offsets,
                              .experts = ranks * experts,
                              .rows = std::max<int64_t>(1, tokens * k)},
                             options},
                   pool);
        const auto bytes = [](test::Guarded<int32_t>& words, int64_t at) {
            return reinterpret_cast<uint8_t*>(words.data() + at);
        };
        body(SlotsCall{
            {.ids = static_cast<const uint8_t*>(given),
             .inverse = inverse.data(),
             .offsets = offsets.data(),
             .slots = slots.data(),
             .counts = counts.data(),
             .tails = bytes(sent, row_words - 2),
             .coming = placed ? bytes(coming, row_words - 2) : nullptr,
             .returned = placed ? bytes(returned, 0) : nullptr,
             .row_bytes = row_words * 4,
             .returned_row_bytes = static_cast<uint32_t>(returned_words * 4),
             .ids_row_stride = stride,
             .choices = static_cast<uint32_t>(tokens * k),
             .wide = wide,
             .by_k = Divider::by(static_cast<uint32_t>(k)),
             .rank_slots = {.ranks = static_cast<uint32_t>(ranks),
                            .capacity = static_cast<uint32_t>(capacity),
                            .by_experts = Divider::by(static_cast<uint32_t>(experts)),
                            .by_capacity = Divider::by(static_cast<uint32_t>(std::max<int64_t>(capacity, 1)))}},
            options});
        using test::from;
        return {from(slots), from(counts), from(sent), from(coming), from(returned)};
    }
};

TEST(SlotsKernel, GivesTheNumbersOfTheCpuAndWritesNothingElse) {
    test::Random random(57);
    ThreadPool pool(1);
    for (uint32_t i = 0; i < test::tried(60); ++i) {
        const SlotsProblem p(random);
        const auto wanted = p.run([&](const SlotsCall& call) { run_on_cpu(call, pool); });
        const auto found = p.run([&](const SlotsCall& call) {
            const SlotsLaunch launch = launch_of(call);
            const uint32_t grid = i % 3 == 0 ? 1 : launch.grid;  // which then walks over its tasks
            host_kernel::launch(grid, SlotsConfig::threads(), [&] { device::assign_slots(launch.params); }, i);
        });
        ASSERT_TRUE(found == wanted) << i;
    }
}

}  // namespace
}  // namespace finegemm
