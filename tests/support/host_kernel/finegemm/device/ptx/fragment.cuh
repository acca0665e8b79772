// Steps of FP32 arithmetic, on the host. Layer tests.
#pragma once

#include <finegemm/device/ptx/memory.cuh>

namespace finegemm::ptx {

inline float multiply(float a, float b) { return canonical(a * b); }
inline float add(float a, float b) { return canonical(a + b); }
inline float relu(float x) { return is_nan(x) ? canonical(x) : x > 0 ? x : 0.0f; }
inline float magnitude(float x) { return std::fabs(x); }

}  // namespace finegemm::ptx
