// Vector instructions that are taken, against what the system says of this processor. Layer tests.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <fstream>
#include <sstream>
#include <string>

namespace finegemm::test {
namespace {

#if HWY_ARCH_X86
TEST(CpuTargets, AreTheOnesThatTheProcessorHas) {
    std::ifstream file("/proc/cpuinfo");
    std::string flags;
    while (std::getline(file, flags) && !flags.starts_with("flags")) {}
    if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo says nothing of instructions";
    const auto has = [&](const char* names) {
        std::istringstream all(names);
        for (std::string name; all >> name;)
            if ((flags + ' ').find(' ' + name + ' ') == std::string::npos) return false;
        return true;
    };
    const bool avx2 = has("avx2 fma f16c abm bmi1 bmi2 aes pclmulqdq"),
               avx3 = avx2 && has("avx512f avx512vl avx512dq avx512bw avx512cd");
    EXPECT_EQ((hwy::SupportedTargets() & HWY_SSSE3) != 0, has("ssse3"));
    EXPECT_EQ((hwy::SupportedTargets() & HWY_AVX2) != 0, avx2);
    EXPECT_EQ((hwy::SupportedTargets() & HWY_AVX3) != 0, avx3);
    EXPECT_EQ((hwy::SupportedTargets() & HWY_AVX3_DL) != 0,
              avx3 && has("avx512_vnni vpclmulqdq avx512vbmi avx512_vbmi2 vaes avx512_vpopcntdq avx512_bitalg gfni"));
}
#endif

}  // namespace
}  // namespace finegemm::test
