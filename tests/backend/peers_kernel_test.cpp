// The text of the kernels that take rows through memory of ranks, run on the host: ranks are CTAs of one run. Layer
// tests.
#include <gtest/gtest.h>

#include <thread>

#include <finegemm/device/routing/peers.cuh>

#include "comm/threads.h"
#include "ops/ep/cpu.h"
#include "ops/ep/hopper.h"
#include "ops/routing/cpu.h"
#include "support/random.h"
#include "support/slowdown.h"

namespace finegemm {
namespace {

/// Memory of a rank, with what its kernels write.
struct PeerRank {
    int64_t tokens = 0;
    std::vector<uint64_t> memory;  // as all reach it
    std::vector<uint8_t> q, y;
    std::vector<uint32_t> scales;  // of any bits
    std::vector<int32_t> numbers, counts;
    std::vector<uint64_t> results;
    uint64_t missing = 0;
};

struct PeersProblem {
    int64_t ranks, experts, k, capacity, hidden, most_tokens = 0;
    std::vector<PeerRank> all;
    PeerPlaces places;

    PeersProblem(test::Random& r, int64_t of_ranks) : ranks(of_ranks), all(static_cast<size_t>(of_ranks)) {
        experts = r.any(1, std::min<int64_t>(r.one_in(3) ? 64 : 5, 1024 / ranks));
        k = r.any(1, 16), hidden = 16 * (r.one_in(3) ? r.any(1, 200) : r.any(1, 20));
        for (PeerRank& rank : all) {
            rank.tokens = r.one_in(4) ? 0 : r.any(1, 6);
            most_tokens = std::max(most_tokens, rank.tokens + r.any(0, 2));
        }
        capacity = r.one_in(3) ? r.any(1, 5) : most_tokens * k + r.any(1, 4);
        places = peer_places({.tokens = most_tokens, .choices = k, .hidden = hidden, .experts = experts}, ranks);
        for (PeerRank& rank : all) {
            rank.memory.assign(static_cast<size_t>(places.bytes / 8), 0x5eadbeef5eadbeef);
            rank.q.assign(static_cast<size_t>((ranks * capacity + 1) * hidden), 0xa5);
            rank.scales.assign(static_cast<size_t>(ranks * capacity * blocks()), 0x5eadbeef);
            rank.numbers.assign(static_cast<size_t>(experts + 2), -7);
            rank.counts.assign(static_cast<size_t>(ranks + 1), -7);
            rank.results.assign(static_cast<size_t>(ranks * capacity + 1), 7);
            rank.y.resize(static_cast<size_t>(ranks * capacity * hidden * 2));
            header(rank) = {};
        }
    }
    int64_t blocks() const { return (hidden + kScaleBlock - 1) / kScaleBlock; }
    PeerHeader& header(PeerRank& rank) const { return *reinterpret_cast<PeerHeader*>(rank.memory.data()); }
    uint8_t* at(PeerRank& rank, int64_t place) const { return reinterpret_cast<uint8_t*>(rank.memory.data()) + place; }

    /// Other choices, tokens and results.
    void renew(test::Random& r) {
        ThreadPool pool(1);
        const RouteOptions options;
        for (PeerRank& rank : all) {
            std::vector<int32_t> ids(static_cast<size_t>(rank.tokens * k));
            const int64_t favourite = r.any(0, ranks * experts - 1);
            for (int32_t& id : ids)
                id = static_cast<int32_t>(r.one_in(5) ? -1 : r.one_in(3) ? favourite : r.any(0, ranks * experts - 1));
            const auto words = [&](int64_t place, int64_t rows, int64_t cols) {
                return Matrix{at(rank, place), DType::I32, rows, cols, cols};
            };
            run_on_cpu(RouteCall{{.ids = {ids.data(), DType::I32, rank.tokens, k, k},
                                  .inverse = words(places.inverse, rank.tokens, k),
                                  .numbers = words(places.offsets, 1, ranks * experts + 1),
                                  .form = GroupForm::Offsets,
                                  .experts = ranks * experts,
                                  .rows = std::max<int64_t>(1, rank.tokens * k)},
                                 options},
                       pool);
            const auto fill = [&](uint8_t* bytes, int64_t count) {
                for (int64_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(r.any(0, 255));
            };
            fill(at(rank, places.rows), rank.tokens * sent_row(hidden).bytes);
            fill(rank.y.data(), static_cast<int64_t>(rank.y.size()));
        }
    }
    PeerView view(int64_t rank, uint64_t timeout_ns) {
        const SentRow row = sent_row(hidden);
        PeerRank& mine = all[static_cast<size_t>(rank)];
        PeerView v{.memory = {},
                   .places = places,
                   .missing = &mine.missing,
                   .timeout_ns = timeout_ns,
                   .rank = static_cast<uint32_t>(rank),
                   .ranks = static_cast<uint32_t>(ranks),
                   .experts = static_cast<uint32_t>(experts),
                   .tokens = static_cast<uint32_t>(mine.tokens),
                   .k = static_cast<uint32_t>(k),
                   .capacity = static_cast<uint32_t>(capacity),
                   .value_bytes = static_cast<uint32_t>(hidden),
                   .scale_blocks = static_cast<uint32_t>(blocks()),
                   .row_bytes = static_cast<uint32_t>(row.bytes),
                   .result_bytes = static_cast<uint32_t>(hidden * 2)};
        for (size_t r = 0; r < all.size(); ++r) v.memory[r] = reinterpret_cast<uint8_t*>(all[r].memory.data());
        return v;
    }
    PullCall pull(int64_t rank, comm::Group& group, const PermuteOptions& options, uint64_t timeout_ns = ~0ull) {
        PeerRank& mine = all[static_cast<size_t>(rank)];
        return {{.peers = view(rank, timeout_ns),
                 .q = mine.q.data(),
                 .scales = reinterpret_cast<float*>(mine.scales.data()),
                 .scale_col_stride = ranks * capacity,
                 .numbers = mine.numbers.data(),
                 .counts = mine.counts.data(),
                 .results = mine.results.data()},
                most_tokens,
                options,
                group};
    }
    /// `sends`: results are not where they belong yet.
    PushCall push(int64_t rank, comm::Group& group, const PermuteOptions& options, uint64_t timeout_ns = ~0ull,
                  bool sends = true) {
        const PeerRank& mine = all[static_cast<size_t>(rank)];
        return {{.peers = view(rank, timeout_ns),
                 .y = sends ? mine.y.data() : nullptr,
                 .numbers = mine.numbers.data(),
                 .results = mine.results.data()},
                options,
                group};
    }
    /// Results where they belong, as a product stores them.
    void store_results() {
        for (const PeerRank& rank : all)
            for (int64_t row = 0; row < rank.numbers[static_cast<size_t>(experts)]; ++row)
                std::copy_n(rank.y.begin() + row * hidden * 2, hidden * 2,
                            reinterpret_cast<uint8_t*>(rank.results[static_cast<size_t>(row)]));
    }
    /// All is as in `other`, wherever it lies.
    void expect_same(PeersProblem& other, const std::string& name) {
        for (size_t r = 0; r < all.size(); ++r) {
            EXPECT_TRUE(all[r].memory == other.all[r].memory) << name << ": memory of rank " << r;
            EXPECT_EQ(all[r].scales, other.all[r].scales) << name;
            EXPECT_EQ(all[r].numbers, other.all[r].numbers) << name;
            EXPECT_EQ(all[r].counts, other.all[r].counts) << name;
            EXPECT_TRUE(all[r].q == other.all[r].q) << name << ": rows of rank " << r;
            EXPECT_EQ(all[r].results.back(), 7u);
        }
    }
};

/// Runs a kernel of all ranks together, or of those that come.
template <typename Call>
void run_on_machine(PeersProblem& p, uint32_t ctas, uint32_t seed, const std::vector<Call>& calls, int64_t lost = -1) {
    const cuda::Driver* const none = nullptr;
    std::vector<decltype(launch_of(calls[0], *none, 1))> launches;
    for (const Call& call : calls) launches.push_back(launch_of(call, *none, 132));
    const auto ranks = static_cast<uint32_t>(p.ranks);
    constexpr PeersConfig kConfig{std::is_same_v<Call, PushCall>};
    host_kernel::launch(
        ranks * ctas, kConfig.threads(),
        [&] {
            const uint32_t rank = blockIdx.x / ctas;
            const device::CtaOfRank<kConfig> cta{blockIdx.x % ctas, ctas};
            if (rank == lost) return;
            if constexpr (std::is_same_v<Call, PullCall>) device::pull_rows<kConfig>(launches[rank].params, cta);
            else device::push_rows<kConfig>(launches[rank].params, cta);
        },
        seed, ranks * ctas);
}

TEST(PeersKernel, GivesTheNumbersOfTheCpuAndWritesNothingElse) {
    test::Random random(61);
    ThreadPool pool(1);
    const PermuteOptions options;
    for (uint32_t i = 0; i < test::tried(16); ++i) {
        const int64_t ranks = i == 0 ? 16 : i % 4 == 0 ? 1 : random.any(2, 6);
        const auto ctas = static_cast<uint32_t>(random.any(1, 16 / ranks));
        PeersProblem found(random, ranks);
        auto groups = comm::groups_of_threads(static_cast<int>(ranks), comm::Seconds(60));
        for (int call = 0; call < 2; ++call) {
            found.renew(random);
            PeersProblem wanted = found;
            std::vector<std::thread> threads;
            for (int64_t r = 0; r < ranks; ++r)
                threads.emplace_back([&, r] {
                    comm::Group& group = *groups[static_cast<size_t>(r)];
                    ThreadPool own(1);
                    run_on_cpu(wanted.pull(r, group, options), own);
                    run_on_cpu(wanted.push(r, group, options), own);
                });
            for (std::thread& thread : threads) thread.join();
            std::vector<PullCall> pulls;
            std::vector<PushCall> pushes;
            const bool sends = random.one_in(2);
            for (int64_t r = 0; r < ranks; ++r) {
                pulls.push_back(found.pull(r, *groups[0], options));
                pushes.push_back(found.push(r, *groups[0], options, ~0ull, sends));
            }
            run_on_machine(found, ctas, i, pulls);
            if (!sends) found.store_results();
            run_on_machine(found, ctas, i + 1, pushes);
            found.expect_same(wanted, "problem " + std::to_string(i) + ", call " + std::to_string(call));
            if (testing::Test::HasFailure()) return;
        }
    }
}

TEST(PeersKernel, MissesARankThatDoesNotComeAndDoesNothingFromThenOn) {
    test::Random random(62);
    const PermuteOptions options;
    constexpr uint64_t kSoon = 300'000'000;  // longer than a CTA sleeps
    for (const bool comes_first : {false, true}) {
        PeersProblem p(random, 4);
        auto groups = comm::groups_of_threads(4, comm::Seconds(60));
        p.renew(random);
        std::vector<PullCall> pulls;
        std::vector<PushCall> pushes;
        for (int64_t r = 0; r < 4; ++r) {
            pulls.push_back(p.pull(r, *groups[0], options, kSoon));
            pushes.push_back(p.push(r, *groups[0], options, kSoon));
        }
        run_on_machine(p, 2, 1, pulls, comes_first ? -1 : 2);
        run_on_machine(p, 2, 2, pushes, 2);
        for (uint64_t r : {0, 1, 3}) {
            EXPECT_EQ(p.all[r].missing, 4u) << r;
            EXPECT_EQ(p.header(p.all[r]).generation, 1u);
            EXPECT_EQ(p.header(p.all[r]).ended, 0u);
        }
        PeersProblem before = p;
        run_on_machine(p, 2, 3, pulls, 2);
        run_on_machine(p, 2, 4, pushes, 2);
        for (size_t r : {0, 1, 3}) {
            EXPECT_TRUE(std::ranges::all_of(p.all[r].numbers.begin(), p.all[r].numbers.end() - 1,
                                            [](int32_t number) { return number == 0; }));
            EXPECT_TRUE(p.all[r].q == before.all[r].q);
            EXPECT_EQ(p.header(p.all[r]).returned[0], peer_word(2, kGaveUp)) << "others are told at once";
            EXPECT_EQ(p.header(p.all[r]).ready[1], peer_word(2, kGaveUp));
        }
    }
}

}  // namespace
}  // namespace finegemm
