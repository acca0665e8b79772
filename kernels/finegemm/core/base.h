// Integer names, the host+device marker and the arithmetic that everything else uses.
// Layer core: includes nothing else, so that NVRTC, nvcc and any host compiler read the same text.
#pragma once

#if defined(__CUDACC_RTC__)
using int32_t = int;
using int64_t = long long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
#else
#include <cstdint>
#endif

#if defined(__CUDACC__)
#define FG_HD __host__ __device__
#else
#define FG_HD
#endif

namespace finegemm {

FG_HD constexpr uint32_t ceil_div(uint32_t a, uint32_t b) { return (a + b - 1) / b; }
FG_HD constexpr uint32_t align_up(uint32_t a, uint32_t b) { return ceil_div(a, b) * b; }
FG_HD constexpr uint32_t min(uint32_t a, uint32_t b) { return a < b ? a : b; }
FG_HD constexpr uint32_t max(uint32_t a, uint32_t b) { return a > b ? a : b; }

inline constexpr uint32_t kWarpSize = 32;

// Extent of a scale block: one scale serves 128 values of K, and 128 rows of B.
inline constexpr uint32_t kScaleBlock = 128;

struct RowCol {
    uint32_t row = 0, col = 0;
    constexpr bool operator==(const RowCol&) const = default;
};

}  // namespace finegemm
