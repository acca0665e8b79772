// Yield hints: 128-bit instructions of sm_90 and the hints in them. Layer jit.
#include "jit/yield_hints.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "jit/cubin.h"

namespace finegemm::jit {

namespace {

constexpr uint32_t kFmul = 0x220, kFfma = 0x223, kI2fp = 0x245,
                   kBra = 0x947;  // with registers; BRA to an address in the kernel
constexpr uint32_t kNoRegister = 255, kNoBarrier = 7;

struct Instruction {
    uint64_t low, high;

    uint32_t bits(uint32_t from, uint32_t count) const {
        const uint64_t word = from < 64 ? low >> from : high >> (from - 64);
        return static_cast<uint32_t>(word & ((uint64_t{1} << count) - 1));
    }
    void set(uint32_t bit, bool value) {  // of the upper half
        const uint64_t mask = uint64_t{1} << (bit - 64);
        high = value ? high | mask : high & ~mask;
    }
    bool multiplies() const { return bits(0, 12) == kFmul || bits(0, 12) == kFfma; }
    bool converts() const { return bits(0, 12) == kI2fp; }  // a sum of integers, before it is multiplied
    uint32_t operands() const { return bits(0, 12) == kFfma ? 3 : 2; }
    uint32_t target() const { return bits(16, 8); }
    uint32_t operand(uint32_t i) const { return bits(24 + i * 8 + (i == 2 ? 24 : 0), 8); }  // bits 24, 32 and 64
    uint32_t stall() const { return bits(105, 4); }
    bool waits() const { return bits(116, 6) != 0; }
    bool signals() const { return bits(110, 3) != kNoBarrier || bits(113, 3) != kNoBarrier; }
    /// The next warp may issue one clock after it, and nothing else is asked of the scheduler.
    bool is_free() const { return stall() == 1 && !waits() && !signals(); }
    void set_yield(bool yield) { set(109, !yield); }
    void set_reuse(uint32_t operand, bool reuse) { set(122 + operand, reuse); }
    /// Target of a branch at instruction `at`.
    int64_t destination(size_t at) const {
        const uint64_t upper = low >> 34 | high << 30;                                // 48 bits
        const int64_t offset = static_cast<int64_t>(upper << 16) >> 8 | bits(16, 8);  // in units of 4 bytes
        return static_cast<int64_t>(at) + 1 + offset / 4;
    }
};
static_assert(sizeof(Instruction) == 16);

/// Targets of branches: the operand cache has nothing of the instruction that stands before it.
std::vector<bool> destinations(std::span<const Instruction> code) {
    std::vector<bool> entered(code.size());
    for (size_t i = 0; i < code.size(); ++i) {
        if (code[i].bits(0, 12) != kBra) continue;
        const int64_t to = code[i].destination(i);
        if (to >= 0 && to < static_cast<int64_t>(code.size())) entered[static_cast<size_t>(to)] = true;
    }
    return entered;
}

/// The end of the sequence of multiplications that begins at `first`: loads and addresses may stand between them.
/// Nothing, if it is too short for a promotion.
size_t end_of_sequence(std::span<const Instruction> code, size_t first) {
    constexpr size_t kOthers = 3, kShortest = 24;
    size_t end = first, count = 0;
    for (size_t i = first; i < code.size() && i <= end + kOthers; ++i) {
        if (!code[i].multiplies()) continue;
        end = i + 1;
        ++count;
    }
    return count >= kShortest ? end : first;
}

/// Keeps for `next` what both read, if nothing but perhaps a conversion comes between them, which takes the place of
/// operand 1.
void keep_operands(Instruction& now, const Instruction& next, const Instruction* conversion) {
    for (uint32_t i = 0; i < std::min(now.operands(), next.operands()); ++i) {
        const uint32_t source = now.operand(i);
        const bool lost = conversion && (i == 1 || conversion->target() == source);
        now.set_reuse(i, source == next.operand(i) && source != now.target() && source != kNoRegister && !lost);
    }
}

size_t set_yield_hints_of(std::span<Instruction> sequence, const std::vector<bool>& entered, size_t first,
                          uint32_t every) {
    size_t count = 0;
    uint32_t since = 0;  // instructions since the last one that yielded
    for (size_t i = 0; i + 1 < sequence.size(); ++i) {
        Instruction& now = sequence[i];
        if (now.converts() && now.is_free()) {
            ++since;
            now.set_yield(false);
            continue;
        }
        if (!now.multiplies() || !now.is_free()) {
            since = 0;
            continue;
        }
        const bool converts = i + 2 < sequence.size() && sequence[i + 1].converts();
        const size_t next = i + 1 + converts;
        const bool followed = sequence[next].multiplies() && !sequence[i + 1].waits() && !sequence[next].waits();
        const bool yields = ++since >= every;
        if (yields) since = 0;
        now.set_yield(yields);
        for (uint32_t operand = 0; operand < 3; ++operand) now.set_reuse(operand, false);
        if (!yields && followed && !entered[first + i + 1] && !entered[first + next])
            keep_operands(now, sequence[next], converts ? &sequence[i + 1] : nullptr);
        ++count;
    }
    return count;
}

}  // namespace

size_t set_yield_hints(std::string& cubin, uint32_t every) {
    if (every == 0) return 0;
    size_t count = 0;
    for (const auto& [offset, size] : code_sections(cubin)) {
        std::vector<Instruction> code(size / sizeof(Instruction));
        std::memcpy(code.data(), cubin.data() + offset, code.size() * sizeof(Instruction));
        const std::vector<bool> entered = destinations(code);
        for (size_t i = 0; i < code.size(); ++i) {
            const size_t end = code[i].multiplies() ? end_of_sequence(code, i) : i;
            if (end == i) continue;
            count += set_yield_hints_of(std::span(code).subspan(i, end - i), entered, i, every);
            i = end;
        }
        std::memcpy(cubin.data() + offset, code.data(), code.size() * sizeof(Instruction));
    }
    return count;
}

}  // namespace finegemm::jit
