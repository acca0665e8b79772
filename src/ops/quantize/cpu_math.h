// The arithmetic of SwiGLU on the host. Layer cpu.
#pragma once

#include <cmath>

namespace finegemm {

/// What quantize/activation.h asks for.
struct HostMath {
    static float fma(float a, float b, float c) { return std::fma(a, b, c); }
    static float reciprocal(float x) { return x > 0x1p126f ? 0.0f : 1.0f / x; }
    static float at_most(float x, float most) { return x > most ? most : x; }
    static float at_least(float x, float least) { return x < least ? least : x; }
};

}  // namespace finegemm
