// What machine code may leave on its way where a warp gives a stage back.
#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <set>

#include <finegemm/gemm/kernel_plan.h>

#include "jit/cubin.h"
#include "ops/four_bit/source.h"
#include "ops/gemm/source.h"
#include "ops/mqa/source.h"
#include "ops/prenorm/source.h"
#include "plan/plan.h"
#include "support.h"

namespace finegemm::jit {
namespace {

using Releases = test::WithPack;
INSTANTIATE_TEST_SUITE_P(Cuda, Releases, testing::ValuesIn(test::packs()), testing::PrintToStringParamName());
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Releases);  // a build with FINEGEMM_PACK=none

/// An instruction's 16 bytes, as far as loads from shared memory and arrivals are concerned.
struct Step {
    uint64_t low, high;

    uint32_t opcode() const { return low & 0xfff; }
    bool always() const { return (low >> 12 & 0xf) == 7; }
    /// LDS and LDSM.
    bool loads() const { return (opcode() == 0x984 || opcode() == 0x83b) && (low >> 12 & 0xf) != 15; }
    /// LDS of a word, each lane its own: the address has a register, not RZ.
    bool loads_one_word() const { return opcode() == 0x984 && (high >> 9 & 7) == 4 && (low >> 24 & 0xff) != 0xff; }
    bool loads_four_words() const { return opcode() == 0x984 && (high >> 9 & 7) == 6; }
    /// SYNCS.ARRIVE that expects no bytes.
    bool gives_back() const { return opcode() == 0x9a7 && (high >> 20 & 1) != 0; }
    bool branches() const { return opcode() == 0x947; }
    /// Nothing runs from it to the instruction behind it: EXIT, BRX and branches without a condition.
    bool leaves() const {
        const bool unconditional = always() && (high >> 23 & 0xf) == 7;
        return (opcode() == 0x94d && always()) || opcode() == 0x949 || (branches() && unconditional);
    }
    /// Instructions from the one behind a branch to its target.
    int64_t distance() const {
        const uint64_t words = ((high & 0x3ffff) << 30 | low >> 34) << 8 | (low >> 16 & 0xff);
        return static_cast<int64_t>(words << 8) >> 8 >> 2;
    }
    /// The scoreboard, as a bit, that a load holds until its words have come; none where a later load's does.
    uint32_t held() const {
        const uint32_t scoreboard = high >> 46 & 7;
        return scoreboard == 7 ? 0 : 1u << scoreboard;
    }
    uint32_t awaited() const { return high >> 52 & 0x3f; }
};
static_assert(sizeof(Step) == 16);

std::vector<Step> steps_of(const std::string& cubin) {
    std::vector<Step> steps;
    for (const auto& [offset, bytes] : code_sections(cubin))
        for (uint64_t at = 0; at < bytes; at += sizeof(Step))
            std::memcpy(&steps.emplace_back(), cubin.data() + offset + at, sizeof(Step));
    return steps;
}

/// Where a path from a load has come to: its words may still be on their way.
struct Pending {
    size_t at;
    uint32_t releases, loads;  // passed
    uint32_t scoreboards;      // whose wait would tell that the words have come: loads come in order
    auto operator<=>(const Pending&) const = default;
};

/// Calls `found` with each release that a load may be pending at, the first `most` of a path.
template <typename Found>
void follow(const std::vector<Step>& steps, size_t load, uint32_t most, Found&& found) {
    constexpr uint32_t kManyLoads = 4;  // no need to count on
    std::set<Pending> seen;
    std::deque<Pending> todo{{load + 1, 0, 0, steps[load].held()}};
    while (!todo.empty()) {
        Pending p = todo.front();
        todo.pop_front();
        if (p.at >= steps.size() || p.at == load || !seen.insert(p).second) continue;
        const Step& step = steps[p.at];
        if (step.awaited() & p.scoreboards) continue;
        if (step.gives_back()) {
            found(p);
            if (++p.releases == most) continue;
        }
        if (step.loads()) {
            p.loads = std::min(p.loads + 1, kManyLoads);
            p.scoreboards |= step.held();
        }
        ++p.at;
        if (!step.leaves()) todo.push_back(p);
        if (!step.branches()) continue;
        p.at += static_cast<size_t>(step.distance());
        todo.push_back(p);
    }
}

/// Loads of a kernel that `counts` takes. None may be pending at a release where `late` says so.
template <typename Counts, typename Late>
size_t expect_none_late(const std::string& cubin, const std::string& entry, uint32_t most, Counts counts, Late late) {
    const std::vector<Step> steps = steps_of(cubin);
    size_t loads = 0, pending = 0;
    for (size_t i = 0; i < steps.size(); ++i) {
        if (!std::invoke(counts, steps[i])) continue;
        ++loads;
        follow(steps, i, most, [&](const Pending& p) { pending += late(p); });
    }
    EXPECT_TRUE(std::ranges::any_of(steps, &Step::gives_back)) << entry << " gives nothing back";
    EXPECT_EQ(pending, 0u) << entry << " gives a stage back with loads of it on their way";
    return loads;
}

bool is_late(const Pending&) { return true; }

/// ptxas lets an arrival pass loads that nothing has used yet, whatever PTX says of releases, and TMA may overwrite
/// what they read. A math warp of a product loads the scales of a k-block, by three loads at most, before it gives the
/// one before back: these may be pending once. Rows whose numbers say where they go are stored behind branches, so that
/// loads of four words from a warp's own strip may be pending: TMA writes none of these, and scales come otherwise.
TEST_P(Releases, OfProductsLeaveNoLoadOfTheirStageOnItsWay) {
    constexpr uint32_t kLoadsOfBlock = 3;
    const auto late = [](const Pending& p) { return p.releases > 0 || p.loads >= kLoadsOfBlock; };
    for (const GemmConfig& config : plan::kernels()) {
        const KernelSource source = gemm_source(config, plan::name_of(config));
        const auto counts = [&](const Step& x) {
            return x.loads() && !(config.finish == Finish::Indexed && x.loads_four_words());
        };
        // Promotions by scales of rows lie behind branches that always lead there. A path around two of them ends with
        // what a k-slice says of its sums, which gives no stage back.
        const bool sums = config.k_slices() > 1 && kernel_plan(config).promotion == Promotion::RowScale;
        const size_t loads = expect_none_late(*pack.find(source), source.entry, sums ? 1 : 2, counts, late);
        EXPECT_TRUE(loads >= 2 || kernel_plan(config).promotion != Promotion::BlockScale) << source.entry;
    }
}

/// Likewise; a math warp for logits loads scales of a tile's keys, a word of each lane, and gives the tile back.
/// Weights come in pairs and stay.
TEST_P(Releases, OfLogitsLeaveNoScaleOfTheirStageOnItsWay) {
    for (const MqaConfig& config : mqa_configs()) {
        const KernelSource source = source_of(config);
        EXPECT_GT(expect_none_late(*pack.find(source), source.entry, 1, &Step::loads_one_word, is_late), 0u);
    }
}

/// Scales of A and weights of 4 bits come in four words; of the next k-block those have been used that it begins with.
TEST_P(Releases, OfWeightsOfFourBitsLeaveNoScaleOfTheirStageOnItsWay) {
    for (const FourBitConfig& config : four_bit_configs()) {
        const KernelSource source = source_of(config);
        EXPECT_GT(expect_none_late(*pack.find(source), source.entry, 1, &Step::loads_four_words, is_late), 0u);
    }
}

/// Likewise; a product before a norm squares what it has loaded.
TEST_P(Releases, OfProductsBeforeANormLeaveNoLoadOnItsWay) {
    for (const PrenormConfig& config : prenorm_configs()) {
        const KernelSource source = source_of(config);
        EXPECT_GT(expect_none_late(*pack.find(source), source.entry, 1, &Step::loads, is_late), 0u);
    }
}

}  // namespace
}  // namespace finegemm::jit
