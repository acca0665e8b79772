// Which vector instructions this processor has, of those that the CPU's functions are compiled for. Layer os.
// These functions are all that Highway's headers need of its library, which so has not to be there at run time.
#include <hwy/highway.h>

#if HWY_MAJOR >= 1 && (HWY_ARCH_X86 || HWY_ARCH_ARM)
#if HWY_ARCH_ARM
#include <sys/auxv.h>
#else
#include <cpuid.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <initializer_list>

namespace hwy {

namespace {

std::atomic<int64_t> only = 0;  // what a test wants, if not 0

#if HWY_ARCH_X86
enum Register { kEax, kEbx, kEcx, kEdx };

unsigned cpuid(unsigned leaf, Register wanted) {
    unsigned words[4] = {};
    __get_cpuid_count(leaf, 0, &words[kEax], &words[kEbx], &words[kEcx], &words[kEdx]);
    return words[wanted];
}

/// The registers that the system keeps for each thread.
unsigned saved_registers() {
    unsigned low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

bool all(unsigned word, std::initializer_list<int> bits) {
    return std::ranges::all_of(bits, [&](int bit) { return (word >> bit & 1) != 0; });
}
#endif

int64_t detected() {
    int64_t targets = 0;
#if HWY_ARCH_X86
    // __builtin_cpu_supports does not ask CPUID with every compiler: Zig's always says no.
    const unsigned basic = cpuid(1, kEcx), more = cpuid(7, kEbx), last = cpuid(7, kEcx), amd = cpuid(0x80000001, kEcx);
    const unsigned saved = all(basic, {27}) ? saved_registers() : 0;
    const bool ssse3 = all(basic, {9});
    const bool sse4 = ssse3 && all(basic, {1, 19, 20, 25});                              // PCLMUL, SSE4.1, SSE4.2, AES
    const bool avx2 = sse4 && all(saved, {1, 2}) && all(basic, {12, 28, 29})             // FMA, AVX, F16C
                      && all(amd, {5}) && all(more, {3, 5, 8});                          // LZCNT; BMI, AVX2, BMI2
    const bool avx3 = avx2 && all(saved, {5, 6, 7}) && all(more, {16, 17, 28, 30, 31});  // AVX-512 F, DQ, CD, BW, VL
    const bool avx3_dl =
        avx3 && all(last, {1, 6, 8, 9, 10, 11, 12, 14});  // VBMI, VBMI2, GFNI, VAES, VPCLMUL, VNNI, ...
    const auto with = [&](int64_t target, bool present) { targets |= present ? target : 0; };
    with(HWY_SSSE3, ssse3);
    with(HWY_SSE4, sse4);
    with(HWY_AVX2, avx2);
    with(HWY_AVX3, avx3);
    with(HWY_AVX3_DL, avx3_dl);
#else
    constexpr unsigned long kAes = 1ul << 3;
    if ((getauxval(AT_HWCAP) & kAes) != 0) targets |= HWY_NEON;
#ifdef HWY_NEON_WITHOUT_AES
    targets |= HWY_NEON_WITHOUT_AES;
#endif
#endif
    return targets | HWY_STATIC_TARGET;
}

}  // namespace

int64_t SupportedTargets() {
    const int64_t wanted = only.load();
    return wanted != 0 ? wanted : detected();
}

ChosenTarget& GetChosenTarget() {
    static ChosenTarget chosen;
    return chosen;
}

void SetSupportedTargetsForTest(int64_t targets) {
    only = targets;
    GetChosenTarget().DeInit();
}

}  // namespace hwy
#endif
