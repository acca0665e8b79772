// Conversions and 16-byte accesses for quantisation. Layer device. One instruction per function.
#pragma once

#include <finegemm/core/fp8.h>
#include <finegemm/device/ptx/memory.cuh>

namespace finegemm::ptx {

/// Streaming data: read once, so it is kept out of L1.
__device__ inline Words4 load_global_once(const void* from) {
    Words4 v;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
        : "l"(from));
    return v;
}

/// 0 where it is not wanted; without a branch, so that several are in flight together.
__device__ inline uint32_t load_global_if(bool wanted, const void* from) {
    uint32_t x;
    asm("{\n.reg .pred p;\nsetp.ne.u32 p, %2, 0;\nmov.b32 %0, 0;\n@p ld.global.nc.b32 %0, [%1];\n}\n"
        : "=r"(x)
        : "l"(from), "r"(static_cast<uint32_t>(wanted)));
    return x;
}

/// Likewise, of 16 bytes that are read once: kept out of L1, which is up to 10% faster.
__device__ inline Words4 load_global_x4_if(bool wanted, const void* from) {
    Words4 v;
    asm("{\n.reg .pred p;\nsetp.ne.u32 p, %5, 0;\nmov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
        "@p ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];\n}\n"
        : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
        : "l"(from), "r"(static_cast<uint32_t>(wanted)));
    return v;
}

/// Likewise, from L2: what a launch before this one has stored, which may end after this one began.
__device__ inline uint32_t load_global_l2_if(bool wanted, const void* from) {
    uint32_t x;
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %2, 0;\nmov.b32 %0, 0;\n@p ld.global.cg.b32 %0, [%1];\n}\n"
                 : "=r"(x)
                 : "l"(from), "r"(static_cast<uint32_t>(wanted)));
    return x;
}

/// Likewise, of 16 bytes: what another kernel, or another GPU, has written while this kernel ran.
__device__ inline Words4 load_global_l2_x4_if(bool wanted, const void* from) {
    Words4 v;
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.u32 p, %5, 0;\nmov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
        "@p ld.global.cg.v4.b32 {%0, %1, %2, %3}, [%4];\n}\n"
        : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
        : "l"(from), "r"(static_cast<uint32_t>(wanted))
        : "memory");
    return v;
}

/// Stores if `wanted`, without a branch.
__device__ inline void store_shared_word_if(bool wanted, SmemAddr to, uint32_t x) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %2, 0;\n@p st.shared.u32 [%0], %1;\n}\n" ::"r"(to.bits), "r"(x),
                 "r"(static_cast<uint32_t>(wanted))
                 : "memory");
}
__device__ inline void store_shared_words_x4_if(bool wanted, SmemAddr to, const Words4& v) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.u32 p, %5, 0;\n@p st.shared.v4.u32 [%0], {%1, %2, %3, %4};\n}\n" ::"r"(to.bits),
        "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]), "r"(v.w[3]), "r"(static_cast<uint32_t>(wanted))
        : "memory");
}

__device__ inline void store_shared_words_x2(SmemAddr to, uint32_t a, uint32_t b) {
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(to.bits), "r"(a), "r"(b) : "memory");
}

/// The larger of each pair of signed halves. PTX ISA, max.
__device__ inline uint32_t max_s16x2(uint32_t a, uint32_t b) {
    uint32_t most;
    asm("max.s16x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
    return most;
}

/// Rounded to TF32, to nearest even, as tf32_of_float does; NaN becomes some NaN, whose upper half is one. PTX ISA,
/// cvt.
__device__ inline float tf32_of(float x) {
    uint32_t rounded;
    asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
    return float_of_bits(rounded);
}

/// The lower, or the upper, halves of two words, the first one's below. PTX ISA, prmt.
__device__ inline uint32_t low_halves(uint32_t a, uint32_t b) {
    uint32_t both;
    asm("prmt.b32 %0, %1, %2, 0x5410;" : "=r"(both) : "r"(a), "r"(b));
    return both;
}
__device__ inline uint32_t high_halves(uint32_t a, uint32_t b) {
    uint32_t both;
    asm("prmt.b32 %0, %1, %2, 0x7632;" : "=r"(both) : "r"(a), "r"(b));
    return both;
}

/// Bytes of the lower, or the upper, halves of two words in turn, the first one's first. PTX ISA, prmt.
__device__ inline uint32_t interleave_low(uint32_t a, uint32_t b) {
    uint32_t both;
    asm("prmt.b32 %0, %1, %2, 0x5140;" : "=r"(both) : "r"(a), "r"(b));
    return both;
}
__device__ inline uint32_t interleave_high(uint32_t a, uint32_t b) {
    uint32_t both;
    asm("prmt.b32 %0, %1, %2, 0x7362;" : "=r"(both) : "r"(a), "r"(b));
    return both;
}

/// Four of eight bytes, those of `low` first; the lower sixteen bits of `selectors`, four for each, choose. The fourth
/// bit of each is zero. PTX ISA, prmt.
__device__ inline uint32_t permute_bytes(uint32_t low, uint32_t high, uint32_t selectors) {
    uint32_t chosen;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(chosen) : "r"(low), "r"(high), "r"(selectors));
    return chosen;
}
/// The highest bit of each byte, in all bits of it. PTX ISA, prmt.
__device__ inline uint32_t spread_signs(uint32_t x) {
    uint32_t signs;
    asm("prmt.b32 %0, %1, 0, 0xba98;" : "=r"(signs) : "r"(x));
    return signs;
}

/// The highest bytes of four words, the first one's lowest. PTX ISA, prmt.
__device__ inline uint32_t highest_bytes(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    uint32_t low, high, all;
    asm("prmt.b32 %0, %1, %2, 0x0073;" : "=r"(low) : "r"(a), "r"(b));
    asm("prmt.b32 %0, %1, %2, 0x7300;" : "=r"(high) : "r"(c), "r"(d));
    asm("prmt.b32 %0, %1, %2, 0x7610;" : "=r"(all) : "r"(low), "r"(high));
    return all;
}

__device__ inline void store_global(void* to, uint32_t a) {
    asm volatile("st.global.u32 [%0], %1;" ::"l"(to), "r"(a) : "memory");
}
__device__ inline void store_global_x2(void* to, uint32_t a, uint32_t b) {
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(a), "r"(b) : "memory");
}
__device__ inline void store_global_x2_if(bool wanted, void* to, uint32_t a, uint32_t b) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %3, 0;\n@p st.global.v2.u32 [%0], {%1, %2};\n}\n" ::"l"(to), "r"(a),
                 "r"(b), "r"(static_cast<uint32_t>(wanted))
                 : "memory");
}
__device__ inline void store_global(float* to, float x) {
    asm volatile("st.global.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
}

/// Two floats to e4m3, nearest even, saturating; NaN to 0x7f. `low` in the lower byte. PTX ISA, cvt.
__device__ inline uint16_t pack_e4m3(float low, float high) {
    uint16_t packed;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
    return packed;
}

/// Two floats to e5m2, likewise.
__device__ inline uint16_t pack_e5m2(float low, float high) {
    uint16_t packed;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
    return packed;
}

/// To the nearest integer, an even one where two are as near; NaN to 0. PTX ISA, cvt.
__device__ inline int32_t nearest_int(float x) {
    int32_t y;
    asm("cvt.rni.s32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return y;
}
/// Two floats to integers from -127 to 127, likewise.
__device__ inline uint16_t pack_i8(float low, float high) {
    const auto code = [](float x) {
        const int32_t y = nearest_int(x);
        return static_cast<uint32_t>(y > 127 ? 127 : y < -127 ? -127 : y) & 0xff;
    };
    return static_cast<uint16_t>(code(low) | code(high) << 8);
}

__device__ inline float float_of_half(uint16_t x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}

/// The value of the lane whose number differs in the bits of `mask`. PTX ISA, shfl.sync.
__device__ inline uint32_t shuffle_xor(uint32_t x, uint32_t mask) {
    uint32_t y;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(y) : "r"(x), "r"(mask));
    return y;
}

}  // namespace finegemm::ptx
