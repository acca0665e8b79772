// Communicators of NCCL on mocks of it and of the driver. Layer tests.
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include <finegemm/ep.h>

#include "comm/nccl.h"
#include "ops/ep/call.h"
#include "support/error_of.h"
#include "support/mock_driver.h"
#include "support/same_signature.h"

#if __has_include(<nccl.h>)
#include <nccl.h>

namespace finegemm::nccl {

#define SAME(name) static_assert(test::kSameSignature<decltype(Api::name), decltype(&nccl##name)>)
SAME(GetVersion);
SAME(GetUniqueId);
SAME(CommInitRank);
SAME(CommDestroy);
SAME(CommAbort);
SAME(CommGetAsyncError);
SAME(GetErrorString);
SAME(GroupStart);
SAME(GroupEnd);
SAME(Send);
SAME(Recv);
#undef SAME
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId) && kBytes == ncclInt8 && kInProgress == ncclInProgress);

}  // namespace finegemm::nccl
#endif

namespace finegemm::test {
namespace {

constexpr const char* kMulticast = "NCCL_NVLS_ENABLE";
constexpr int kNotReady = 600;

class Nccl : public testing::Test {
protected:
    Nccl() {
        mock->gpus = {mock::Gpu{}, mock::Gpu{}};
        unsetenv(kMulticast);
    }
    ~Nccl() override {
        unsetenv("FINEGEMM_MOCK_NCCL");
        unsetenv(kMulticast);
    }
    static Options options() {
        Options o;
        o.driver_path = FINEGEMM_MOCK_DRIVER;
        return o;
    }
    /// Calls body(communicator) on a thread for each of two ranks.
    template <typename Body>
    void on_ranks(const Body& body) {
        const CommunicatorId id = Communicator::make_id(context_, how_);
        const auto run = [&](int rank) {
            Communicator c(context_, id, rank, 2, rank, how_);
            body(c);
        };
        std::thread other(run, 1);
        run(0);
        other.join();
    }
    int aborts() const {
        void* const library = dlopen(FINEGEMM_MOCK_NCCL, RTLD_NOW | RTLD_NOLOAD);
        return reinterpret_cast<int (*)()>(dlsym(library, "mock_nccl_aborts"))();
    }

    mock::Driver mock{FINEGEMM_MOCK_DRIVER};
    Context context_{options()};
    CommunicatorOptions how_{.timeout_s = 0.05, .nccl_path = FINEGEMM_MOCK_NCCL};
};

/// Messages to both ranks, and where theirs go.
struct Two {
    std::vector<comm::Message> messages;
    std::vector<comm::Place> places;
    Two(std::vector<int>& sent, std::vector<int>& received, const std::vector<size_t>& out,
        const std::vector<size_t>& in)
        : messages{{sent.data(), out[0] * 4}, {sent.data() + out[0], out[1] * 4}},
          places{{received.data(), in[0] * 4}, {received.data() + in[0], in[1] * 4}} {}
};

TEST_F(Nccl, TakesEachRankItsMessages) {
    on_ranks([](Communicator& c) {
        EXPECT_EQ(c.ranks(), 2);
        EXPECT_EQ(c.device(), (Device{DeviceType::Cuda, c.rank()}));
        // Rank 0 has one number for itself and three for rank 1, rank 1 has two for rank 0 and none for itself.
        std::vector<int> sent = c.rank() == 0 ? std::vector{10, 20, 21, 22} : std::vector{30, 31}, received(3, -1);
        const Two two = c.rank() == 0 ? Two(sent, received, {1, 3}, {1, 2}) : Two(sent, received, {2, 0}, {3, 0});
        for (int round = 0; round < 3; ++round) {
            c.group().all_to_all({two.messages, two.places});
            c.wait();
            EXPECT_EQ(received, c.rank() == 0 ? (std::vector{10, 30, 31}) : (std::vector{20, 21, 22}));
            received.assign(3, -1);
        }
    });
}

TEST_F(Nccl, HasMemoryThatItsRanksReachOfEachOther) {
    for (const bool reached : {true, false}) {
        mock->peer_access = reached;
        on_ranks([&](Communicator& c) {
            const PeerMemory memory(c, {.tokens = 5, .choices = 2, .hidden = 64, .intermediate = 64, .experts = 3});
            EXPECT_EQ(memory.is_reached(), reached);
            const comm::PeerTable& table = *memory.state().table;
            for (int r = 0; r < 2; ++r) EXPECT_EQ(table.of(r) != nullptr, reached || r == c.rank());
            auto* const own = static_cast<int*>(table.of(c.rank()));
            if (c.rank() == 1) own[0] = 77;
            const auto meet = [&] {
                std::vector<int> sent{1, 2}, received(2);
                const Two two(sent, received, {1, 1}, {1, 1});
                c.group().all_to_all({two.messages, two.places});
            };
            meet();
            if (reached && c.rank() == 0) {
                EXPECT_EQ(*static_cast<int*>(table.of(1)), 77);
            }
            const auto order = peer_places(memory.state().most, 2).order;
            for (int i = 0; i < 5; ++i) EXPECT_EQ(own[order / 4 + i], i);
            meet();  // the other's memory is looked at until then
        });
    }
    EXPECT_EQ(mock->allocations, 0);
}

TEST_F(Nccl, NamesTheRanksThatKernelsMiss) {
    on_ranks([&](Communicator& c) {
        c.wait();
        uint64_t* const missing = c.group().missing(3);
        EXPECT_EQ(*missing, 0u);
        c.wait();
        const int other = 1 - c.rank();
        *missing = uint64_t{1} << other;
        const std::string said = error_of([&] { c.wait(); }).what();
        EXPECT_TRUE(said.starts_with(comm::name_of_rank(other, 3) + " has not come within 0.05 s")) << said;
        EXPECT_EQ(error_of([&] { c.group().check(); }).what(), said);
    });
    EXPECT_EQ(mock->allocations, 0);
}

TEST_F(Nccl, TurnsMulticastOffAndRefusesToHaveItOn) {
    static_cast<void>(Communicator::make_id(context_, how_));
    EXPECT_STREQ(std::getenv(kMulticast), "0");
    setenv(kMulticast, "2", 1);
    for (const Error& e : {error_of([&] { static_cast<void>(Communicator::make_id(context_, how_)); }),
                           error_of([&] { Communicator(context_, {}, 0, 1, 0, how_); })}) {
        EXPECT_EQ(e.code(), Errc::InvalidArgument);
        EXPECT_TRUE(contains(e, "NCCL_NVLS_ENABLE='2': must be 0")) << e.what();
    }
}

TEST_F(Nccl, SaysWhatIsNoNcclAndWhereItIsMissing) {
    const Error other =
        error_of([&] { static_cast<void>(Communicator::make_id(context_, {.nccl_path = FINEGEMM_MOCK_DRIVER})); });
    EXPECT_EQ(other.code(), Errc::Unsupported);
    EXPECT_TRUE(contains(other, "is too old")) << other.what();
    try {
        static_cast<void>(Communicator::make_id(context_, {.nccl_path = "/nowhere/libnccl.so.2"}));
        GTEST_SKIP() << "this machine has NCCL, so none is missed";
    } catch (const Error& e) {
        EXPECT_EQ(e.code(), Errc::Unsupported);
        EXPECT_TRUE(contains(e, "pip install nvidia-nccl-cu13") && contains(e, "/nowhere/libnccl.so.2")) << e.what();
    }
}

TEST_F(Nccl, PassesOnWhatItsCallsSay) {
    setenv("FINEGEMM_MOCK_NCCL", "ncclCommInitRank", 1);
    const Error e = error_of([&] { Communicator(context_, {}, 0, 1, 0, how_); });
    EXPECT_EQ(e.code(), Errc::Peer);
    EXPECT_STREQ(e.what(), "ncclCommInitRank failed: as the mock says (2): a cable is loose");
    unsetenv("FINEGEMM_MOCK_NCCL");
    Communicator c(context_, Communicator::make_id(context_, how_), 0, 1, 0, how_);
    int sent = 7, received = 0;
    const std::vector<comm::Message> messages = {{&sent, sizeof sent}};
    const std::vector<comm::Place> places = {{&received, sizeof received}};
    setenv("FINEGEMM_MOCK_NCCL", "ncclRecv", 1);
    const Error refused = error_of([&] { c.group().all_to_all({messages, places}); });
    EXPECT_STREQ(refused.what(), "ncclSend or ncclRecv failed: as the mock says (2): a cable is loose");
    unsetenv("FINEGEMM_MOCK_NCCL");
    EXPECT_STREQ(error_of([&] { c.group().all_to_all({messages, places}); }).what(), refused.what());
    EXPECT_EQ(received, 0);
    Communicator other(context_, Communicator::make_id(context_, how_), 0, 1, 0, how_);
    other.group().all_to_all({messages, places});  // the thread's group of calls has ended, too
    EXPECT_EQ(received, 7);
    setenv("FINEGEMM_MOCK_NCCL", "network", 1);
    mock.fail("cuStreamQuery", kNotReady);
    const Error broken = error_of([&] { other.wait(); });
    EXPECT_EQ(broken.code(), Errc::Peer);
    EXPECT_TRUE(contains(broken, "as the mock says; the group has ended")) << broken.what();
}

TEST_F(Nccl, DoesNotWaitWithoutEndForWhatItLeavesBehind) {
    const int before = aborts();
    for (const bool busy : {false, true}) {
        const Communicator c(context_, Communicator::make_id(context_, how_), 0, 1, 0, how_);
        if (busy) mock.fail("cuEventQuery", kNotReady);
    }
    EXPECT_EQ(aborts(), before + 1);
}

TEST_F(Nccl, NamesTheRankWhoseMessageHasNotComeAndEnds) {
    const int before = aborts();
    on_ranks([&](Communicator& c) {
        std::vector<int> sent{1, 2}, received(2, 0);
        const Two two(sent, received, {1, 1}, {1, 1});
        const std::vector<uint32_t> words = {0, ~0u};
        c.group().all_to_all({two.messages, two.places, nullptr, 8, {words.data(), 4, ~0u}});
        if (c.rank() == 1) return;
        mock.fail("cuStreamQuery", kNotReady);
        for (const Error& e : {error_of([&] { c.wait(); }), error_of([&] { c.wait(); }),
                               error_of([&] { c.group().all_to_all({two.messages, two.places}); })}) {
            EXPECT_EQ(e.code(), Errc::Peer);
            EXPECT_STREQ(e.what(),
                         "rank 1 (experts 8 to 15) has not come within 0.05 s; the group has ended, make "
                         "another of the ranks that are left");
        }
    });
    EXPECT_EQ(aborts(), before + 1);
}

TEST(Comm, SaysOneOfTheOthersWhereOneMayHoldUpTheRest) {
    using std::chrono::seconds;
    const std::string end = " within 2 s; the group has ended, make another of the ranks that are left";
    const auto said = [](std::vector<int> seen, int ranks) {
        return comm::sentence_of_lost(seen, 0, ranks, 0, seconds(2));
    };
    EXPECT_EQ(said({2}, 4), "rank 2 has not come" + end);
    EXPECT_EQ(said({1, 3}, 4), "rank 1 and rank 3 have not come" + end);
    EXPECT_EQ(said({1, 2, 3}, 4), "one of rank 1, rank 2 and rank 3 has not come" + end);
    EXPECT_EQ(said({}, 3), "one of rank 1 and rank 2 has not come" + end);
    EXPECT_EQ(said({}, 2), "rank 1 has not come" + end);
}

}  // namespace
}  // namespace finegemm::test
