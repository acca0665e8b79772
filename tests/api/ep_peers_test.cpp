// A layer of experts over ranks that are threads and reach each other's memory. Layer tests.
#include <gtest/gtest.h>

#include <cmath>

#include "comm/flags.h"
#include "ops/ep/call.h"
#include "support/error_of.h"
#include "support/ranks.h"

namespace finegemm::test {
namespace {

using Outs = std::vector<std::vector<uint16_t>>;

/// A problem with ranks that have memory for calls of so many tokens.
struct Peers {
    RanksProblem& problem;
    std::vector<Communicator> communicators;
    std::vector<std::unique_ptr<PeerMemory>> memory;

    explicit Peers(RanksProblem& p, int64_t most_tokens = 0, const CommunicatorOptions& how = {})
        : problem(p),
          communicators(Communicator::of_threads(static_cast<int32_t>(p.ranks), how)),
          memory(communicators.size()) {
        for (const RankTokens& t : p.all) most_tokens = std::max(most_tokens, t.tokens);
        p.on_threads([&](int64_t r) { memory[static_cast<size_t>(r)] = make(r, most_tokens); });
    }
    std::unique_ptr<PeerMemory> make(int64_t rank, int64_t most_tokens) {
        return std::make_unique<PeerMemory>(communicators[static_cast<size_t>(rank)],
                                            MoeShape{.tokens = most_tokens,
                                                     .choices = problem.choices,
                                                     .hidden = problem.hidden,
                                                     .intermediate = problem.pairs,
                                                     .experts = problem.experts});
    }
    void call(Context& context, int64_t rank, int64_t capacity, const MoeOptions& options = {}) {
        const auto r = static_cast<size_t>(rank);
        ep_moe(context, communicators[r], problem.args_of_rank(rank),
               {.capacity = capacity,
                .counts = {problem.all[r].counts.data(), DType::I32, 1, problem.ranks, problem.ranks},
                .memory = memory[r].get()},
               options);
    }
    Outs run(Context& context, int64_t capacity, const MoeOptions& options = {}) {
        problem.on_threads([&](int64_t r) { call(context, r, capacity, options); });
        Outs outs;
        for (const RankTokens& t : problem.all) outs.push_back(t.out);
        return outs;
    }
};

class EpPeers : public testing::Test {
protected:
    /// Any expert of any rank, now and then none.
    auto anyone(int64_t experts) {
        return [this, experts](int64_t) {
            return random_.one_in(9) ? random_.one_of<int64_t>({-1, experts, 1 << 20}) : random_.any(0, experts - 1);
        };
    }
    Random random_{91};
    Context context_{cpu_options()};
};

TEST_F(EpPeers, HaveTheBitsOfOneRankForAnyRanksTokensAndChoices) {
    for (const int ranks : {1, 2, 3, 5, 8, 16}) {
        std::vector<int64_t> tokens;
        for (int r = 0; r < ranks; ++r) tokens.push_back(random_.one_in(4) ? 0 : random_.any(1, 9));
        const int64_t experts = random_.any(1, 3);
        RanksProblem p(random_, tokens, experts, random_.any(1, 4), anyone(ranks * experts));
        const Outs wanted = p.on_one_rank(context_);
        Peers peers(p, random_.any(0, 20));
        for (const int64_t capacity : {p.most(), p.most() + 5, p.most()}) {
            EXPECT_EQ(peers.run(context_, capacity), wanted) << ranks << " ranks, capacity " << capacity;
            for (const RankTokens& t : p.all) {
                EXPECT_EQ(t.error, "");
                for (int64_t r = 0; r < ranks; ++r) EXPECT_EQ(t.counts[static_cast<size_t>(r)], p.chosen(t, r));
            }
        }
    }
}

TEST_F(EpPeers, TakeRanksWithoutTokensExpertsWithoutRowsAndAllTokensForOneRank) {
    const std::pair<const char*, std::function<int64_t(int64_t)>> routings[] = {
        {"all to rank 2", [&](int64_t) { return random_.any(4, 5); }},
        {"all to one expert", [](int64_t) { return 3; }},
        {"each to itself", [](int64_t rank) { return 2 * rank; }},
        {"nobody", [](int64_t) { return -1; }}};
    for (const auto& [name, pick] : routings)
        for (const std::vector<int64_t>& tokens : {std::vector<int64_t>{5, 0, 1, 7}, {0, 0, 0, 0}, {0, 9, 0, 0}}) {
            RanksProblem p(random_, tokens, 2, 2, pick);
            const Outs wanted = p.on_one_rank(context_);
            EXPECT_EQ(Peers(p).run(context_, p.most()), wanted) << name;
        }
}

TEST_F(EpPeers, HaveTheBitsOfMessagesWhereChoicesDoNotFit) {
    for (int i = 0; i < 6; ++i) {
        RanksProblem p(random_, {9, 2, 5}, 2, 3, anyone(6));
        Peers peers(p);
        const int64_t capacity = random_.any(1, p.most());
        const Outs found = peers.run(context_, capacity);
        auto others = Communicator::of_threads(3);
        p.run(context_, others, capacity);
        for (size_t r = 0; r < 3; ++r)
            for (size_t j = 0; j < found[r].size(); ++j) {
                const float x = float_of_bf16(found[r][j]), y = float_of_bf16(p.all[r].out[j]);
                EXPECT_TRUE(found[r][j] == p.all[r].out[j] || (std::isnan(x) && std::isnan(y))) << r << " " << j;
            }
        EXPECT_TRUE(capacity == p.most() || std::ranges::any_of(found, [](const auto& out) {
                        return std::ranges::any_of(out, [](uint16_t x) { return std::isnan(float_of_bf16(x)); });
                    }));
    }
    RanksProblem p(random_, {8, 2}, 2, 1, [](int64_t) { return 2; });  // of rank 1
    Peers(p).run(context_, 5, {.check_values = true});
    EXPECT_EQ(p.all[0].error,
              "capacity: is 5, but tokens of rank 0 choose rank 1 (experts 2 to 3) 8 times, and those that did not fit "
              "are NaN; pass at least 8, or 0 for as many as are chosen");
    EXPECT_EQ(p.all[1].error, "");
}

TEST_F(EpPeers, TakeAWorkspaceAndTokensThatAreQuantised) {
    RanksProblem p(random_, {4, 7}, 2, 3, anyone(4));
    const Outs wanted = p.on_one_rank(context_);
    Peers peers(p);
    p.on_threads([&](int64_t rank) {
        const auto r = static_cast<size_t>(rank);
        MoeArgs args = p.args_of_rank(rank);
        std::vector<uint8_t> q(static_cast<size_t>(args.x.rows * p.hidden)),
            memory(static_cast<size_t>(ep_moe_workspace_bytes(
                {.tokens = args.x.rows, .choices = 3, .hidden = p.hidden, .intermediate = p.pairs, .experts = 2}, 2,
                p.most())));
        std::vector<float> scales(static_cast<size_t>(args.x.rows * 2));
        const Matrix codes{q.data(), DType::E4M3, args.x.rows, p.hidden, p.hidden},
            of_codes{scales.data(), DType::F32, args.x.rows, 2, 2};
        quantize_rows(context_, args.x, codes, of_codes);
        args.x = codes, args.x_scales = of_codes;
        args.workspace = memory.data(), args.workspace_bytes = static_cast<int64_t>(memory.size());
        ep_moe(context_, peers.communicators[r], args, {.capacity = p.most(), .memory = peers.memory[r].get()});
    });
    for (size_t r = 0; r < 2; ++r) EXPECT_EQ(p.all[r].out, wanted[r]) << p.all[r].error;
}

TEST_F(EpPeers, AreNamedWithTheirExpertsWhereTheyDoNotCome) {
    RanksProblem p(random_, {3, 3, 3}, 2, 2, anyone(6));
    Peers peers(p, 0, {.timeout_s = 0.2});
    p.on_threads([&](int64_t r) {
        if (r != 1) peers.call(context_, r, 6);
    });
    const std::string sentence =
        "rank 1 (experts 2 to 3) has not come within 0.2 s; the group has ended, make another of the ranks that are "
        "left";
    EXPECT_EQ(p.all[0].error, sentence);
    EXPECT_EQ(p.all[2].error, sentence);
    EXPECT_STREQ(error_of([&] { peers.call(context_, 1, 6); }).what(), sentence.c_str());
    EXPECT_STREQ(error_of([&] { peers.make(1, 3); }).what(), sentence.c_str());
}

TEST_F(EpPeers, AreToldThatAnotherHasLeftWhileTheyWait) {
    RanksProblem p(random_, {3, 3}, 1, 1, anyone(2));
    Peers peers(p, 0, {.timeout_s = 60});
    p.on_threads([&](int64_t r) {
        if (r == 0) peers.call(context_, 0, 3);
        else const Communicator gone = std::move(peers.communicators[1]);
    });
    EXPECT_TRUE(p.all[0].error.starts_with("rank 1 has left")) << p.all[0].error;
}

TEST_F(EpPeers, HaveLayersInFlightThatDoNotMeet) {
    constexpr int kLayers = 2, kRounds = 6;
    std::vector<RanksProblem> layers;
    std::vector<Outs> wanted;
    for (int i = 0; i < kLayers; ++i) {
        layers.emplace_back(random_, std::vector<int64_t>{5, 2, 4}, 2, 2, anyone(6));
        wanted.push_back(layers.back().on_one_rank(context_));
    }
    std::vector<std::thread> threads;
    for (size_t i = 0; i < layers.size(); ++i)
        threads.emplace_back([&, i] {
            Peers peers(layers[i]);
            for (int round = 0; round < kRounds; ++round)
                EXPECT_EQ(peers.run(context_, layers[i].most() + round), wanted[i]) << i;
        });
    for (std::thread& thread : threads) thread.join();
}

TEST_F(EpPeers, GoOnWhereNumbersOfCallsBeginAgain) {
    RanksProblem p(random_, {3, 4}, 2, 2, anyone(4));
    const Outs wanted = p.on_one_rank(context_);
    Peers peers(p);
    for (const auto& memory : peers.memory)
        for (int r = 0; r < 2; ++r) {
            auto& header = *static_cast<PeerHeader*>(memory->state().table->of(r));
            header.generation = ~0u - 1;
            for (int s = 0; s < 2; ++s) header.ready[s] = header.returned[s] = peer_word(~0u - 1, 0);
        }
    for (int round = 0; round < 4; ++round) EXPECT_EQ(peers.run(context_, p.most()), wanted) << round;
}

TEST_F(EpPeers, SayWhatTheirMemoryIsNotFor) {
    RanksProblem p(random_, {3}, 2, 2, anyone(2)), more(random_, {4}, 2, 2, anyone(2)),
        wider(random_, {3}, 2, 3, anyone(2));
    Peers peers(p);
    EXPECT_TRUE(peers.memory[0]->is_reached());
    EXPECT_GT(peers.memory[0]->bytes(), 3 * 2 * p.hidden * 2);
    const auto said = [&](RanksProblem& of, Communicator& communicator) {
        return std::string(error_of([&] {
                               ep_moe(context_, communicator, of.args_of_rank(0),
                                      {.capacity = 8, .memory = peers.memory[0].get()});
                           }).what());
    };
    Communicator other = std::move(Communicator::of_threads(1)[0]);
    EXPECT_EQ(said(p, other), "memory: is that of another communicator; pass one that was made with this one");
    EXPECT_EQ(said(more, peers.communicators[0]),
              "x: has 4 tokens, but memory was made for at most 3; make it for more");
    EXPECT_EQ(said(wider, peers.communicators[0]),
              "memory: was made for 2 choices, H = 144, 2 experts, but these are 3, 144, 2; make one for this layer");
    auto many = Communicator::of_threads(65);
    EXPECT_STREQ(error_of([&] { PeerMemory(many[0], {.hidden = 16, .intermediate = 16}); }).what(),
                 "ranks: are 65, must be at most 64 that reach each other; leave memory out");
}

TEST_F(EpPeers, AreToldWhereTheirMemoryDiffers) {
    RanksProblem p(random_, {3, 3}, 1, 1, anyone(2));
    Peers peers(p);
    p.on_threads([&](int64_t r) { static_cast<void>(peers.make(r, 3 + 100 * r)); });
    for (const RankTokens& t : p.all)
        EXPECT_TRUE(t.error.starts_with("memory: rank ") && t.error.ends_with("all ranks pass the same shape"))
            << t.error;
}

}  // namespace
}  // namespace finegemm::test
