// Yield hints of promotions: which hints of which instructions change.
#include "jit/yield_hints.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace finegemm::jit {
namespace {

constexpr uint64_t kFfma = 0x7223, kFmul = 0x7220, kI2fp = 0x7245, kLoad = 0x7984,
                   kBranch = 0x947;  // with no predicate, or any

struct Code {
    std::array<uint64_t, 2> words;

    bool operator==(const Code&) const = default;
    uint64_t hint(uint32_t bit, uint32_t count) const { return words[1] >> (bit - 64) & ((1u << count) - 1); }
    bool yields() const { return hint(109, 1) == 0; }
    uint64_t reuses() const { return hint(122, 3); }  // bit i: operand i
};

/// Hints as ptxas writes them where nothing is waited for: stall 1, no yield, no barriers.
constexpr uint64_t kFree = uint64_t{1} << 41 | uint64_t{1} << 45 | uint64_t{7} << 46 | uint64_t{7} << 49;

Code ffma(uint64_t d, uint64_t a, uint64_t b, uint64_t c, uint64_t hints = kFree) {
    return {{kFfma | d << 16 | a << 24 | b << 32, c | hints}};
}
Code fmul(uint64_t d, uint64_t a, uint64_t b) { return {{kFmul | d << 16 | a << 24 | b << 32, kFree}}; }

/// 32 columns of a promotion: all read factor 200; blocks are 24, 25, ..., sums 100, 101, ...
std::vector<Code> promotion() {
    std::vector<Code> code;
    for (uint64_t i = 0; i < 32; ++i) code.push_back(ffma(100 + i, 24 + i, 200, 100 + i));
    return code;
}

std::string cubin_of(const std::vector<Code>& code) {
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_shoff = sizeof header + code.size() * sizeof(Code);
    header.e_shnum = 2;
    Elf64_Shdr none{}, text{};
    text.sh_type = SHT_PROGBITS;
    text.sh_flags = SHF_EXECINSTR;
    text.sh_offset = sizeof header;
    text.sh_size = code.size() * sizeof(Code);
    std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
    bytes.append(reinterpret_cast<const char*>(code.data()), text.sh_size);
    for (const Elf64_Shdr& section : {none, text})
        bytes.append(reinterpret_cast<const char*>(&section), sizeof section);
    return bytes;
}

std::vector<Code> with_yield_hints(const std::vector<Code>& code, uint32_t every, size_t* count = nullptr) {
    std::string cubin = cubin_of(code);
    const size_t size = cubin.size(), changed = set_yield_hints(cubin, every);
    EXPECT_EQ(cubin.size(), size);
    if (count) *count = changed;
    std::vector<Code> out(code.size());
    std::memcpy(out.data(), cubin.data() + sizeof(Elf64_Ehdr), out.size() * sizeof(Code));
    return out;
}

TEST(YieldHints, ComeOnceInSoManyInstructionsWhichKeepTheFactorInBetween) {
    size_t count = 0;
    const std::vector<Code> in = promotion(), out = with_yield_hints(in, 4, &count);
    EXPECT_EQ(count, 31u) << "all but the last one, which nothing follows";
    for (size_t i = 0; i + 1 < out.size(); ++i) {
        SCOPED_TRACE(i);
        EXPECT_EQ(out[i].yields(), i % 4 == 3);
        EXPECT_EQ(out[i].reuses(), i % 4 == 3 ? 0u : 2u) << "operand 1, the factor";
        EXPECT_EQ(out[i].words[0], in[i].words[0]);
        const uint64_t hints = uint64_t{1} << 45 | uint64_t{7} << 58;
        EXPECT_EQ(out[i].words[1] & ~hints, in[i].words[1] & ~hints);
    }
    EXPECT_EQ(out.back(), in.back());
}

TEST(YieldHints, AreLeftAloneWhereNobodyAskedForOthers) { EXPECT_EQ(with_yield_hints(promotion(), 0), promotion()); }

TEST(YieldHints, SetASecondTimeStayTheSame) {
    const std::vector<Code> once = with_yield_hints(promotion(), 8);
    EXPECT_EQ(with_yield_hints(once, 8), once);
}

TEST(YieldHints, CountTheConversionsOfIntegersAndKeepFactorsAcrossThem) {
    std::vector<Code> code;
    for (uint64_t i = 0; i < 32; ++i) {
        code.push_back({{kI2fp | (24 + i) << 16 | (24 + i) << 32, kFree & ~(uint64_t{1} << 45)}});  // which yields
        code.push_back(ffma(100 + i, 200, 24 + i, 100 + i));
    }
    code[11].words[0] = ffma(105, 201, 29, 105).words[0];
    code[12].words[0] = kI2fp | uint64_t{201} << 16 | uint64_t{30} << 32;  // overwrites the factor
    code[13].words[0] = ffma(106, 201, 30, 106).words[0];
    code[21] = ffma(110, 201, 200, 110);
    code[23] = ffma(111, 202, 200, 111);  // a factor in the slot that conversions take
    const std::vector<Code> out = with_yield_hints(code, 16);
    for (size_t i = 1; i + 1 < out.size(); ++i) {
        SCOPED_TRACE(i);
        EXPECT_EQ(out[i].yields(), i == 17 || i == 33 || i == 49) << "an FFMA, counted from the first one";
        const bool other = i == 9 || i == 11 || i == 13 || i == 19 || i == 21 || i == 23;
        const bool multiplies = i % 2 == 1 && i + 2 < out.size() && !out[i].yields();
        EXPECT_EQ(out[i].reuses(), multiplies && !other ? 1u : 0u);
    }
}

TEST(YieldHints, KeepEachOperandThatTheNextInstructionReadsInTheSameSlot) {
    std::vector<Code> code = promotion();
    code[4] = fmul(50, 60, 61);
    code[5] = fmul(51, 60, 61);  // both again
    code[6] = fmul(52, 61, 60);  // both, but in other slots
    code[7] = ffma(53, 255, 70, 71);
    code[8] = ffma(54, 255, 72, 71);  // the zero register costs nothing
    code[9] = ffma(72, 80, 72, 81);   // overwrites what the next one reads
    code[10] = ffma(55, 82, 72, 83);
    const std::vector<Code> out = with_yield_hints(code, 1000);
    EXPECT_EQ(out[4].reuses(), 3u);
    EXPECT_EQ(out[5].reuses(), 0u);
    EXPECT_EQ(out[7].reuses(), 4u);
    EXPECT_EQ(out[8].reuses(), 2u);
    EXPECT_EQ(out[9].reuses(), 0u);
}

TEST(YieldHints, ChangeNothingThatWaitsSignalsOrStalls) {
    const uint64_t stalls = (kFree & ~(uint64_t{15} << 41)) | uint64_t{4} << 41, waits = kFree | uint64_t{1} << 52,
                   signals = kFree & ~(uint64_t{7} << 46);
    for (const uint64_t hints : {stalls, waits, signals}) {
        std::vector<Code> code = promotion();
        code[10] = ffma(110, 34, 200, 110, hints);
        const std::vector<Code> out = with_yield_hints(code, 1000);
        EXPECT_EQ(out[10], code[10]);
        EXPECT_EQ(out[9].reuses(), hints == waits ? 0u : 2u) << "another warp comes where one waits";
        EXPECT_EQ(out[11].reuses(), 2u);
    }
}

TEST(YieldHints, KeepNothingForWhatABranchLeadsTo) {
    std::vector<Code> code = promotion();
    const auto branch = [](int64_t instructions) {  // from the one after it; in units of 4 bytes
        const uint64_t offset = static_cast<uint64_t>(instructions * 4);
        return Code{{kBranch | (offset & 255) << 16 | offset >> 8 << 34, (offset >> 38 & 0x3ffff) | kFree}};
    };
    code.insert(code.begin(), branch(7));  // to 8
    code.push_back(branch(-18));           // from 33 to 16
    const std::vector<Code> out = with_yield_hints(code, 1000);
    for (size_t i = 1; i < 32; ++i) EXPECT_EQ(out[i].reuses(), i == 7 || i == 15 ? 0u : 2u) << i;
}

TEST(YieldHints, AreThoseOfLongSequencesWithFewOthersInBetween) {
    const Code other{{kLoad, kFree}};
    const auto changes = [&](size_t length, size_t others) {
        std::vector<Code> code = promotion();
        code.resize(length);
        code.insert(code.begin() + static_cast<long>(length / 2), others, other);
        const std::vector<Code> out = with_yield_hints(code, 1000);
        EXPECT_TRUE(std::ranges::all_of(out, [&](const Code& c) { return c.words[0] != kLoad || c == other; }));
        return out != code;
    };
    EXPECT_TRUE(changes(24, 0));
    EXPECT_FALSE(changes(23, 0));
    EXPECT_TRUE(changes(32, 3));
    EXPECT_FALSE(changes(32, 4)) << "two short sequences";
}

TEST(YieldHints, OfWhatIsNoCubinOrADamagedOneAreNone) {
    std::string text(1000, 'x');
    EXPECT_EQ(set_yield_hints(text, 4), 0u);
    EXPECT_EQ(text, std::string(1000, 'x'));
    const std::string whole = cubin_of(promotion());
    for (size_t length = 0; length < whole.size(); ++length) {
        std::string part = whole.substr(0, length);
        EXPECT_EQ(set_yield_hints(part, 4), 0u) << length;
        EXPECT_EQ(part, whole.substr(0, length));
    }
    for (size_t byte = 0; byte < whole.size(); ++byte) {  // nothing outside is read or written
        std::string damaged = whole;
        damaged[byte] = static_cast<char>(0xff);
        set_yield_hints(damaged, 4);
        EXPECT_EQ(damaged.size(), whole.size());
    }
}

}  // namespace
}  // namespace finegemm::jit
