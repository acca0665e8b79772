// A layer of experts over ranks that are threads. Layer tests.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "support/error_of.h"
#include "support/ranks.h"

namespace finegemm::test {
namespace {

using Outs = std::vector<std::vector<uint16_t>>;

/// Any expert of any rank, now and then none.
auto anyone(Random& r, int64_t experts) {
    return [&r, experts](int64_t) {
        return r.one_in(9) ? r.one_of<int64_t>({-1, experts, 1 << 20}) : r.any(0, experts - 1);
    };
}

Outs outs_of(const RanksProblem& p) {
    Outs outs;
    for (const RankTokens& t : p.all) {
        EXPECT_EQ(t.error, "");
        outs.push_back(t.out);
    }
    return outs;
}

class Ep : public testing::Test {
protected:
    Random random_{77};
    Context context_{cpu_options()};
};

TEST_F(Ep, HasTheBitsOfOneRankForAnyRanksTokensAndChoices) {
    for (const int ranks : {1, 2, 3, 5, 8, 16}) {
        std::vector<int64_t> tokens;
        for (int r = 0; r < ranks; ++r) tokens.push_back(random_.one_in(4) ? 0 : random_.any(1, 9));
        const int64_t experts = random_.any(1, 3);
        RanksProblem p(random_, tokens, experts, random_.any(1, 4), anyone(random_, ranks * experts));
        const Outs wanted = p.on_one_rank(context_);
        auto communicators = Communicator::of_threads(ranks);
        for (const int64_t capacity : {int64_t{0}, p.most(), p.most() + 5}) {
            p.run(context_, communicators, capacity);
            EXPECT_EQ(outs_of(p), wanted) << ranks << " ranks, capacity " << capacity;
            for (const RankTokens& t : p.all)
                for (int64_t r = 0; r < ranks; ++r) EXPECT_EQ(t.counts[static_cast<size_t>(r)], p.chosen(t, r));
        }
    }
}

TEST_F(Ep, TakesRanksWithoutTokensExpertsWithoutRowsAndAllTokensForOneRank) {
    const std::pair<const char*, std::function<int64_t(int64_t)>> routings[] = {
        {"all to rank 2", [&](int64_t) { return random_.any(4, 5); }},
        {"all to one expert", [](int64_t) { return 3; }},
        {"each to itself", [](int64_t rank) { return 2 * rank; }},
        {"nobody", [](int64_t) { return -1; }}};
    for (const auto& [name, pick] : routings)
        for (const std::vector<int64_t>& tokens : {std::vector<int64_t>{5, 0, 1, 7}, {0, 0, 0, 0}, {0, 9, 0, 0}}) {
            RanksProblem p(random_, tokens, 2, 2, pick);
            const Outs wanted = p.on_one_rank(context_);
            auto communicators = Communicator::of_threads(4);
            for (const int64_t capacity : {int64_t{0}, p.most()}) {
                p.run(context_, communicators, capacity);
                EXPECT_EQ(outs_of(p), wanted) << name << ", capacity " << capacity;
            }
        }
}

TEST_F(Ep, KeepsTheBitsOfTheOptionsOfALayer) {
    const std::pair<const char*, MoeOptions> cases[] = {
        {"clamped", {.gate_limit = 0.5f, .gate_alpha = 1.702f, .up_offset = 1}},
        {"powers of two", {.power_of_two_scales = true}},
        {"as tensor cores compute", {.numerics = Numerics::Hopper}}};
    RanksProblem p(random_, {6, 3}, 2, 2, anyone(random_, 4));
    const Outs usual = p.on_one_rank(context_);
    auto communicators = Communicator::of_threads(2);
    for (const auto& [name, options] : cases) {
        const Outs wanted = p.on_one_rank(context_, options);
        EXPECT_NE(wanted, usual) << name;
        p.run(context_, communicators, p.most(), options);
        EXPECT_EQ(outs_of(p), wanted) << name;
    }
}

TEST_F(Ep, MakesTokensNanWhoseChoicesDoNotFitAndKeepsTheOthers) {
    RanksProblem p(random_, {8, 2}, 2, 1, [](int64_t) { return 2; });  // of rank 1
    const Outs wanted = p.on_one_rank(context_);
    auto communicators = Communicator::of_threads(2);
    p.run(context_, communicators, 5);
    const Outs found = outs_of(p);
    EXPECT_EQ(p.all[0].counts, (std::vector<int32_t>{0, 8}));
    EXPECT_EQ(found[1], wanted[1]);
    for (size_t i = 0; i < found[0].size(); ++i) {
        if (i < static_cast<size_t>(5 * p.hidden)) EXPECT_EQ(found[0][i], wanted[0][i]) << i;
        else EXPECT_TRUE(std::isnan(float_of_bf16(found[0][i]))) << i;
    }
    p.run(context_, communicators, 5, {.check_values = true});
    EXPECT_EQ(p.all[0].error,
              "capacity: is 5, but tokens of rank 0 choose rank 1 (experts 2 to 3) 8 times, and those that did not fit "
              "are NaN; pass at least 8, or 0 for as many as are chosen");
    EXPECT_EQ(p.all[1].error, "");
    EXPECT_EQ(p.all[1].out, wanted[1]);
    p.all[0].error.clear();
    p.run(context_, communicators, 8);  // the communicator goes on
    EXPECT_EQ(outs_of(p), wanted);
}

TEST_F(Ep, WritesNothingBesideTheWorkspaceThatItAskedFor) {
    RanksProblem p(random_, {4, 7}, 2, 3, anyone(random_, 4));
    const Outs wanted = p.on_one_rank(context_);
    auto communicators = Communicator::of_threads(2);
    const int64_t capacity = p.most();
    p.on_threads([&](int64_t r) {
        MoeArgs args = p.args_of_rank(r);
        const MoeShape shape{
            .tokens = args.x.rows, .choices = 3, .hidden = p.hidden, .intermediate = p.pairs, .experts = 2};
        const auto bytes = static_cast<size_t>(ep_moe_workspace_bytes(shape, 2, capacity));
        std::vector<uint8_t> memory(bytes + 64, 0xa5);
        args.workspace = memory.data(), args.workspace_bytes = static_cast<int64_t>(bytes);
        for (int i = 0; i < 2; ++i)  // what the first call leaves there is of no account
            ep_moe(context_, communicators[static_cast<size_t>(r)], args, {.capacity = capacity});
        EXPECT_TRUE(std::all_of(memory.begin() + static_cast<std::ptrdiff_t>(bytes), memory.end(),
                                [](uint8_t x) { return x == 0xa5; }));
    });
    EXPECT_EQ(outs_of(p), wanted);
}

TEST_F(Ep, NamesARankThatDoesNotComeAndItsExperts) {
    RanksProblem p(random_, {3, 3, 3}, 2, 2, anyone(random_, 6));
    auto communicators = Communicator::of_threads(3, {.timeout_s = 0.2});
    p.on_threads([&](int64_t r) {
        if (r != 1) ep_moe(context_, communicators[static_cast<size_t>(r)], p.args_of_rank(r), {.capacity = 6});
    });
    const std::string sentence =
        "rank 1 (experts 2 to 3) has not come within 0.2 s; the group has ended, make another of the ranks that are "
        "left";
    EXPECT_EQ(p.all[0].error, sentence);
    EXPECT_EQ(p.all[2].error, sentence);
    EXPECT_STREQ(error_of([&] { ep_moe(context_, communicators[1], p.args_of_rank(1), {.capacity = 6}); }).what(),
                 sentence.c_str());

    RanksProblem left(random_, {3, 3}, 2, 2, anyone(random_, 4));
    const Outs wanted = left.on_one_rank(context_);
    auto others = Communicator::of_threads(2);
    left.run(context_, others, 6);
    EXPECT_EQ(outs_of(left), wanted);
}

TEST_F(Ep, TellsRanksThatWaitThatAnotherHasLeftOrGivenUp) {
    for (const bool gives_up : {true, false}) {
        RanksProblem p(random_, {3, 3}, 1, 1, anyone(random_, 2));
        auto communicators = Communicator::of_threads(2, {.timeout_s = 60});
        const auto begin = std::chrono::steady_clock::now();
        p.on_threads([&](int64_t r) {
            if (r == 0) ep_moe(context_, communicators[0], p.args_of_rank(0));
            else if (gives_up) communicators[1].end();
            else const Communicator gone = std::move(communicators[1]);
        });
        EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
        EXPECT_TRUE(p.all[0].error.starts_with(gives_up ? "rank 1 ended the communicator" : "rank 1 has left"))
            << p.all[0].error;
    }
}

TEST_F(Ep, TellsAllRanksOfCallsThatDiffer) {
    RanksProblem p(random_, {3, 3, 3}, 1, 1, anyone(random_, 3));
    auto communicators = Communicator::of_threads(3);
    p.on_threads([&](int64_t r) {
        ep_moe(context_, communicators[static_cast<size_t>(r)], p.args_of_rank(r), {.capacity = r == 1 ? 4 : 3});
    });
    for (const RankTokens& t : p.all)
        EXPECT_NE(t.error.find("all ranks pass the same capacity"), std::string::npos) << t.error;
}

TEST_F(Ep, HasLayersInFlightThatDoNotMeet) {
    constexpr int kLayers = 3, kRounds = 5;
    std::vector<RanksProblem> layers;
    std::vector<Outs> wanted;
    std::vector<std::vector<Communicator>> communicators;
    for (int i = 0; i < kLayers; ++i) {
        layers.emplace_back(random_, std::vector<int64_t>{5, 2, 4}, 2, 2, anyone(random_, 6));
        wanted.push_back(layers.back().on_one_rank(context_));
        communicators.push_back(Communicator::of_threads(3));
    }
    std::vector<std::thread> threads;
    for (size_t i = 0; i < layers.size(); ++i)
        threads.emplace_back([&, i] {
            for (int round = 0; round < kRounds; ++round)
                layers[i].run(context_, communicators[i], round % 2 == 0 ? 0 : layers[i].most());
        });
    for (std::thread& thread : threads) thread.join();
    for (size_t i = 0; i < layers.size(); ++i) EXPECT_EQ(outs_of(layers[i]), wanted[i]) << i;
}

}  // namespace
}  // namespace finegemm::test
