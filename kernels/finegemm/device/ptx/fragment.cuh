// Fragments of 16-bit matrices and steps of FP32 arithmetic. Layer device. One instruction per function.
#pragma once

#include <finegemm/device/ptx/memory.cuh>

namespace finegemm::ptx {

/// What stmatrix_x4 wrote from the addresses of the same rows. PTX ISA, ldmatrix.
__device__ inline Words4 ldmatrix_x4(SmemAddr row) {
    Words4 v;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
                 : "r"(row.bits)
                 : "memory");
    return v;
}

/// Two packed f16 as floats: that of the lower half first. PTX ISA, cvt.
__device__ inline Float2 unpack_f16(uint32_t packed) {
    Float2 v;
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.f32.f16 %0, low;\ncvt.f32.f16 %1, high;\n}\n"
        : "=f"(v.part[0]), "=f"(v.part[1])
        : "r"(packed));
    return v;
}

/// Two e4m3 of four as two packed f16: that of the lower byte in the lower half. PTX ISA, cvt.
__device__ inline uint32_t halves_of_lower_e4m3(uint32_t codes) {
    uint32_t packed;
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\ncvt.rn.f16x2.e4m3x2 %0, low;\n}\n"
        : "=r"(packed)
        : "r"(codes));
    return packed;
}
__device__ inline uint32_t halves_of_upper_e4m3(uint32_t codes) {
    uint32_t packed;
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\ncvt.rn.f16x2.e4m3x2 %0, high;\n}\n"
        : "=r"(packed)
        : "r"(codes));
    return packed;
}

/// Written out, so that no compiler option joins it with an addition. PTX ISA, mul.
__device__ inline float multiply(float a, float b) {
    float x;
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
    return x;
}

/// max(x, 0), and NaN of NaN. PTX ISA, max.
__device__ inline float relu(float x) {
    float y;
    asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(y) : "f"(x));
    return y;
}

/// PTX ISA, abs.
__device__ inline float magnitude(float x) {
    float y;
    asm("abs.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/// x, but NaN where it is infinite. PTX ISA, fma.
__device__ inline float nan_if_infinite(float x) {
    float y;
    asm("fma.rn.f32 %0, %1, 0f00000000, %1;" : "=f"(y) : "f"(x));
    return y;
}

/// PTX ISA, add.
__device__ inline float add(float a, float b) {
    float x;
    asm("add.rn.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
    return x;
}

}  // namespace finegemm::ptx
