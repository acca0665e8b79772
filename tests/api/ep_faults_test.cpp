// A layer of experts over ranks that fail, differ, or go on for long. Layer tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "support/error_of.h"
#include "support/ranks.h"
#include "support/slowdown.h"

namespace finegemm::test {
namespace {

class EpFaults : public testing::Test {
protected:
    auto anyone(int64_t experts) {
        return [this, experts](int64_t) { return random_.one_in(9) ? -1 : random_.any(0, experts - 1); };
    }
    /// The ranks that are left make another communicator, and have what one rank has.
    void go_on(int64_t ranks) {
        RanksProblem left(random_, std::vector<int64_t>(static_cast<size_t>(ranks), 3), 2, 2, anyone(2 * ranks));
        const auto wanted = left.on_one_rank(context_);
        auto others = Communicator::of_threads(static_cast<int32_t>(ranks));
        left.run(context_, others, 6);
        for (size_t r = 0; r < left.all.size(); ++r) {
            EXPECT_EQ(left.all[r].error, "");
            EXPECT_EQ(left.all[r].out, wanted[r]);
        }
    }

    Random random_{44};
    Context context_{cpu_options()};
};

TEST_F(EpFaults, NamesAllRanksThatDoNotComeAndTheOthersGoOn) {
    RanksProblem p(random_, {3, 2, 0, 4, 1}, 2, 2, anyone(10));
    auto communicators = Communicator::of_threads(5, {.timeout_s = 0.2});
    const std::set<int64_t> lost = {1, 3};
    p.on_threads([&](int64_t r) {
        if (!lost.contains(r)) ep_moe(context_, communicators[static_cast<size_t>(r)], p.args_of_rank(r));
    });
    for (const size_t r : {0, 2, 4})
        EXPECT_TRUE(p.all[r].error.starts_with(
            "rank 1 (experts 2 to 3) and rank 3 (experts 6 to 7) have not come within 0.2 s; the group has ended"))
            << p.all[r].error;
    go_on(3);
}

/// Others have its rows by then, and await theirs.
TEST_F(EpFaults, TellsRanksThatAwaitRowsOfOneThatFailedWhileItsExpertsComputed) {
    struct Enough {};
    constexpr int64_t kTokens = kSlowdown > 1 ? 4000 : 16000;  // which take longer than it is until the first poll
    for (const int64_t capacity : {int64_t{0}, 4 * kTokens}) {
        RanksProblem p(random_, {9, kTokens, 9}, 1, 4, [this](int64_t) { return random_.any(0, 2); });
        auto communicators = Communicator::of_threads(3, {.timeout_s = 60});
        bool stopped = false;
        p.on_threads([&](int64_t r) {
            MoeOptions options;
            if (r == 1) options = {.numerics = Numerics::Hopper, .poll = [](double) { throw Enough(); }};  // takes long
            Communicator mine = std::move(communicators[static_cast<size_t>(r)]);
            try {
                ep_moe(context_, mine, p.args_of_rank(r), {.capacity = capacity}, options);
            } catch (const Enough&) {
                stopped = true;
            }
        });
        EXPECT_TRUE(stopped);
        for (const size_t r : {0, 2}) EXPECT_TRUE(p.all[r].error.starts_with("rank 1 has left")) << p.all[r].error;
    }
    go_on(2);
}

TEST_F(EpFaults, TellsAllRanksThatShapesDiffer) {
    const auto the_other = [](int64_t rank) { return 1 - rank; };
    RanksProblem p(random_, {3, 3}, 1, 1, the_other), wide(random_, {3, 3}, 1, 1, the_other, 160);
    for (const int64_t capacity : {0, 3}) {
        auto communicators = Communicator::of_threads(2);
        p.on_threads([&](int64_t r) {
            ep_moe(context_, communicators[static_cast<size_t>(r)], (r == 0 ? p : wide).args_of_rank(r),
                   {.capacity = capacity});
        });
        for (const RankTokens& t : p.all)
            EXPECT_NE(t.error.find("all ranks pass the same capacity, shapes of weights and number of experts"),
                      std::string::npos)
                << t.error;
    }
    go_on(2);
}

TEST_F(EpFaults, LosesOnlyWhatDoesNotFitWhicheverRanksOverflow) {
    RanksProblem p(random_, {9, 0, 7, 12}, 2, 1,
                   [this](int64_t rank) { return random_.any(0, 1) + 2 * ((rank + 1) % 4); });
    const auto wanted = p.on_one_rank(context_);
    auto communicators = Communicator::of_threads(4);
    constexpr int64_t kCapacity = 8;
    p.run(context_, communicators, kCapacity);
    for (size_t r = 0; r < p.all.size(); ++r) {
        const RankTokens& t = p.all[r];
        EXPECT_EQ(t.error, "");
        int64_t lost = 0;
        for (int64_t i = 0; i < t.tokens; ++i) {
            const auto from = static_cast<size_t>(i * p.hidden), to = from + static_cast<size_t>(p.hidden);
            const bool nan = std::isnan(float_of_bf16(t.out[from]));
            lost += nan;
            for (size_t at = from; at < to; ++at)
                if (nan) ASSERT_TRUE(std::isnan(float_of_bf16(t.out[at])));
                else ASSERT_EQ(t.out[at], wanted[r][at]);
        }
        EXPECT_EQ(lost, std::max<int64_t>(t.tokens - kCapacity, 0)) << r;
    }
}

TEST_F(EpFaults, GoesOnForManyCallsWhoseRoutingChangesWithOneWorkspace) {
    const int calls = static_cast<int>(tried(30));
    auto communicators = Communicator::of_threads(3);
    std::vector<std::vector<uint8_t>> memory(3);
    for (int call = 0; call < calls; ++call) {
        const int64_t only = call % 4 == 3 ? random_.any(0, 5) : -1;  // now and then all choose one expert
        RanksProblem p(random_, {random_.any(0, 4), random_.any(0, 4), 4}, 2, 2,
                       [&](int64_t) { return only >= 0 ? only : random_.any(-1, 5); });
        const auto wanted = p.on_one_rank(context_);
        p.on_threads([&](int64_t r) {
            MoeArgs args = p.args_of_rank(r);
            const MoeShape shape{
                .tokens = args.x.rows, .choices = 2, .hidden = p.hidden, .intermediate = p.pairs, .experts = 2};
            std::vector<uint8_t>& bytes = memory[static_cast<size_t>(r)];
            bytes.resize(std::max(bytes.size(), static_cast<size_t>(ep_moe_workspace_bytes(shape, 3, 8))));
            args.workspace = bytes.data(), args.workspace_bytes = static_cast<int64_t>(bytes.size());
            ep_moe(context_, communicators[static_cast<size_t>(r)], args, {.capacity = 8});
        });
        for (size_t r = 0; r < 3; ++r) {
            ASSERT_EQ(p.all[r].error, "") << call;
            ASSERT_EQ(p.all[r].out, wanted[r]) << call;
        }
    }
}

}  // namespace
}  // namespace finegemm::test
