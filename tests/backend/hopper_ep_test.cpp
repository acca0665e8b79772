// What a layer of experts over ranks asks of the Hopper backend, and of the group of its ranks. Layer tests.
#include "ops/ep/call.h"
#include "support/error_of.h"
#include "support/hopper.h"

namespace finegemm::hopper_ep_test {
namespace {

constexpr int64_t kHidden = 256, kPairs = 128, kExperts = 3, kTokens = 10, kChoices = 4, kRanks = 2;
constexpr int64_t kRowBytes = 288;  // 256 codes, 2 scales, 8 bytes, up to a multiple of 32

/// Rank 1 of two, which keeps what it is asked for.
class Recorded final : public comm::Group {
public:
    explicit Recorded(std::vector<int32_t> counts)
        : Group(1, kRanks, {DeviceType::Cuda, 0}, comm::Seconds(1)), counts_(std::move(counts)) {}

    struct Asked {
        std::vector<comm::Message> messages;
        std::vector<comm::Place> places;
        comm::Arrivals arrivals;
    };
    std::vector<Asked> exchanges;
    uint64_t missed = 0;

    void all_to_all(const comm::AllToAll& all) override {
        exchanges.push_back(
            {{all.messages.begin(), all.messages.end()}, {all.places.begin(), all.places.end()}, all.arrivals});
    }
    void mark_missing(void*, size_t, Stream) override {}
    /// First what this rank has for each, then what comes of each.
    void fetch(void* to, const void*, size_t bytes, Stream) override {
        std::memcpy(to, counts_.data() + kRanks * fetched_++, bytes);
    }
    void store(void*, const void*, size_t) override {}
    std::unique_ptr<comm::PeerTable> share(size_t) override { return nullptr; }
    uint64_t* missing(int64_t) override { return &missed; }
    void check() override {}
    void wait(Stream) override {}
    void end(const std::string&) noexcept override {}

private:
    std::vector<int32_t> counts_;
    size_t fetched_ = 0;
};

/// Memory of two ranks that lies nowhere.
class SomewhereTable final : public comm::PeerTable {
public:
    SomewhereTable() : PeerTable(kRanks) {
        of_ = {test::address(0x200000000), test::address(0x300000000)};
        whole_ = true;
    }
};

class HopperEp : public test::HopperTest {
protected:
    std::vector<std::string> run(Recorded& group, int64_t capacity, uintptr_t workspace = 0, bool pdl = false,
                                 const PeerMemoryState* memory = nullptr, int64_t tokens = kTokens) {
        const Device where{DeviceType::Cuda, 0};
        const auto weights = [&](uintptr_t at, DType dtype, int64_t rows, int64_t cols) {
            return ConstStack{{test::address(at), dtype, rows, cols, cols, 1, where}, kExperts, rows * cols};
        };
        const MoeArgs layer{.x = {test::address(0x1000), DType::BF16, tokens, kHidden, kHidden, 1, where},
                            .ids = {test::address(0x2000), DType::I64, tokens, kChoices, kChoices, 1, where},
                            .weights = {test::address(0x3000), DType::F32, tokens, kChoices, kChoices, 1, where},
                            .gate_up = weights(0x10000, DType::E4M3, 2 * kPairs, kHidden),
                            .gate_up_scales = weights(0x20000, DType::F32, 2, 2),
                            .down = weights(0x30000, DType::E4M3, kHidden, kPairs),
                            .down_scales = weights(0x40000, DType::F32, 2, 1),
                            .out = {test::address(0x50000), DType::BF16, tokens, kHidden, kHidden, 1, where},
                            .workspace = workspace ? test::address(workspace) : nullptr};
        const EpOptions how{.capacity = capacity};
        const MoeOptions options{.fused = true, .pdl = pdl};
        mock->launches.clear();
        hopper_->run(EpMoeCall{layer, options, how, group, false, memory});
        std::vector<std::string> entries;
        for (const mock::Launch& launch : mock->launches)
            entries.push_back(launch.entry.ends_with("_gated")     ? "gated"
                              : launch.entry.ends_with("_grouped") ? "grouped"
                              : launch.entry.ends_with("_indexed") ? "indexed"
                                                                   : launch.entry.substr(9));
        return entries;
    }
    std::unique_ptr<Backend> hopper_ = backend();
};

const std::vector<std::string> kLaunches = {"routing_route", "ep_slots",        "routing_permute_quantize",
                                            "routing_route", "routing_permute", "gated",
                                            "grouped",       "routing_combine", "routing_combine"};

TEST_F(HopperEp, SendsRowsToTheirPlacesAndTakesThemBack) {
    constexpr int64_t kCapacity = 8;
    constexpr uintptr_t kWorkspace = 0x100000000;
    Recorded group({});
    EXPECT_EQ(run(group, kCapacity, kWorkspace, true), kLaunches);
    const bool overlaps[] = {true, true, true, false, true, true, true, true, false};
    for (size_t i = 0; i < std::size(overlaps); ++i) EXPECT_EQ(mock->launches[i].programmatic, overlaps[i]) << i;
    EXPECT_EQ(mock->allocations, 0);

    const mock::Launch &slots = mock->launches[1], &permute = mock->launches[2], &local = mock->launches[3],
                       &combine = mock->launches[8];
    ASSERT_EQ(group.exchanges.size(), 2u);
    const auto& [there, back] = std::pair(group.exchanges[0], group.exchanges[1]);
    for (size_t r = 0; r < kRanks; ++r) {
        EXPECT_EQ(there.messages[r].bytes, kCapacity * kRowBytes);
        EXPECT_EQ(there.messages[r].data, permute.permute.q + r * kCapacity * kRowBytes);
        EXPECT_EQ(there.places[r].bytes, kCapacity * kRowBytes);
        EXPECT_EQ(back.messages[r].bytes, kCapacity * kHidden * 2);
        EXPECT_EQ(back.places[r].data, combine.combine.y + r * kCapacity * kHidden * 2);
    }
    const auto* const received = static_cast<const uint8_t*>(there.places[0].data);
    EXPECT_EQ(there.arrivals.words, received + kHidden + 2 * 4 + 4) << "the second word of the first row's tail";
    EXPECT_EQ(there.arrivals.stride, kCapacity * kRowBytes);
    EXPECT_EQ(slots.slots.coming + 4, there.arrivals.words);
    EXPECT_EQ(slots.slots.returned, back.arrivals.words);
    EXPECT_EQ(slots.slots.tails, permute.permute.q + kHidden + 2 * 4);
    EXPECT_EQ(permute.permute.q_rows.rows, kRanks * kCapacity) << "the row behind them is none of x's";
    EXPECT_EQ(combine.combine.y_rows.rows, kRanks * kCapacity + 1) << "which is NaN";
    EXPECT_EQ(local.route.ids, received + kHidden + 2 * 4);
    EXPECT_EQ(local.route.first, kExperts) << "of rank 1";
    EXPECT_EQ(local.route.choices, kRanks * kCapacity);
    EXPECT_EQ(mock->launches[0].route.places.experts, kRanks * kExperts);
}

TEST_F(HopperEp, SendsWhatIsChosenWithoutACapacity) {
    Recorded group({30, 7, 5, 9});
    EXPECT_EQ(run(group, 0), kLaunches);
    ASSERT_EQ(group.exchanges.size(), 3u);
    const size_t bytes[3][2][2] = {{{4, 4}, {4, 4}},
                                   {{30 * kRowBytes, 7 * kRowBytes}, {5 * kRowBytes, 9 * kRowBytes}},
                                   {{5 * 512, 9 * 512}, {30 * 512, 7 * 512}}};
    for (size_t i = 0; i < 3; ++i)
        for (size_t r = 0; r < kRanks; ++r) {
            EXPECT_EQ(group.exchanges[i].messages[r].bytes, bytes[i][0][r]) << i << " to " << r;
            EXPECT_EQ(group.exchanges[i].places[r].bytes, bytes[i][1][r]) << i << " of " << r;
        }
    EXPECT_EQ(static_cast<const uint8_t*>(group.exchanges[1].messages[1].data),
              static_cast<const uint8_t*>(group.exchanges[1].messages[0].data) + 30 * kRowBytes);
    Recorded nobody({0, 0, 0, 0});
    EXPECT_EQ(run(nobody, 0).size(), kLaunches.size() - 5) << "no experts, as no row has come";
    hopper_.reset();
    EXPECT_EQ(mock->allocations, 0) << "all has been given back";
}

PeerMemoryState memory_of_ranks(int64_t tokens, const comm::Group& group) {
    const MoeShape most{
        .tokens = tokens, .choices = kChoices, .hidden = kHidden, .intermediate = kPairs, .experts = kExperts};
    return {most, peer_places(most, kRanks).bytes, &group, std::make_unique<SomewhereTable>()};
}

TEST_F(HopperEp, TakesRowsThroughMemoryOfRanks) {
    constexpr int64_t kCapacity = 8;
    Recorded group({});
    const PeerMemoryState memory = memory_of_ranks(20, group);
    EXPECT_EQ(run(group, kCapacity, 0x100000000, true, &memory),
              (std::vector<std::string>{"routing_route", "routing_permute_quantize", "ep_pull", "gated", "indexed",
                                        "ep_push", "routing_combine"}));
    EXPECT_TRUE(group.exchanges.empty());
    EXPECT_EQ(mock->allocations, 0);
    const mock::Launch &permute = mock->launches[1], &pull = mock->launches[2], &push = mock->launches[5],
                       &combine = mock->launches[6];
    for (const mock::Launch& launch : mock->launches) EXPECT_TRUE(launch.programmatic);
    const PeerView& v = pull.pull.peers;
    EXPECT_EQ(v.memory[0], test::address(0x200000000));
    EXPECT_EQ(v.rank, 1u);
    EXPECT_EQ(v.missing, &group.missed);
    EXPECT_EQ(v.timeout_ns, 1'000'000'000u);
    EXPECT_EQ(permute.permute.q, v.row(1, 0));
    EXPECT_EQ(combine.combine.y, v.result(1, 0));
    EXPECT_EQ(pull.grid, 5u) << "20 tokens of each of two ranks, a warp each";
    EXPECT_EQ(pull.block, 256u);
    EXPECT_EQ(push.push.y, nullptr) << "results are where they belong";
    EXPECT_EQ(push.push.results, pull.pull.results);
    EXPECT_EQ(push.grid, 1u);
}

TEST_F(HopperEp, IsCapturedAtACapacityAlone) {
    mock->capturing = true;
    Recorded group({});
    const Error e = test::error_of([&] { run(group, 0); });
    EXPECT_EQ(e.code(), Errc::InvalidArgument);
    EXPECT_TRUE(test::contains(e, "capacity: is 0") && test::contains(e, "a graph captures the stream")) << e.what();
    EXPECT_TRUE(group.exchanges.empty());
    EXPECT_EQ(run(group, 8), kLaunches);
}

}  // namespace
}  // namespace finegemm::hopper_ep_test
