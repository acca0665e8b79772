// Which vector instructions this processor has, of those that the CPU's functions are compiled for. Layer os.
// These functions are all that Highway's headers need of its library, which so has not to be there at run time.
#include <hwy/highway.h>

#if HWY_MAJOR >= 1 && (HWY_ARCH_X86 || HWY_ARCH_ARM)
#if HWY_ARCH_ARM
#include <sys/auxv.h>
#endif

#include <atomic>
#include <cstdint>

namespace hwy {

namespace {

std::atomic<int64_t> only = 0;  // what a test wants, if not 0

int64_t detected() {
    int64_t targets = 0;
#if HWY_ARCH_X86
    const auto with = [&](int64_t target, bool present) { targets |= present ? target : 0; };
#define FG_HAS(name) __builtin_cpu_supports(name)
    with(HWY_SSSE3, FG_HAS("ssse3"));
    const bool sse4 = FG_HAS("sse4.1") && FG_HAS("sse4.2") && FG_HAS("pclmul") && FG_HAS("aes");
    with(HWY_SSE4, sse4);
    const bool avx2 =
        sse4 && FG_HAS("avx2") && FG_HAS("fma") && FG_HAS("f16c") && FG_HAS("lzcnt") && FG_HAS("bmi") && FG_HAS("bmi2");
    with(HWY_AVX2, avx2);
    const bool avx3 = avx2 && FG_HAS("avx512f") && FG_HAS("avx512vl") && FG_HAS("avx512dq") && FG_HAS("avx512bw") &&
                      FG_HAS("avx512cd");
    with(HWY_AVX3, avx3);
    with(HWY_AVX3_DL, avx3 && FG_HAS("avx512vnni") && FG_HAS("vpclmulqdq") && FG_HAS("avx512vbmi") &&
                          FG_HAS("avx512vbmi2") && FG_HAS("vaes") && FG_HAS("avx512vpopcntdq") &&
                          FG_HAS("avx512bitalg") && FG_HAS("gfni"));
#undef FG_HAS
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
