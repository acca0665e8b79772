// Shared-memory addresses, loads, stores, copies and fences. Layer device. One instruction per function.
#pragma once

#include <finegemm/core/base.h>

namespace finegemm::ptx {

/// An address in the shared window of this CTA (or, where a function says so, of the cluster). Not a byte count.
struct SmemAddr {
    uint32_t bits;
    __device__ constexpr SmemAddr operator+(uint32_t bytes) const { return {bits + bytes}; }
};

__device__ inline SmemAddr smem_address(const void* pointer) {
    uint32_t address;
    asm("{\n.reg .u64 wide;\ncvta.to.shared.u64 wide, %1;\ncvt.u32.u64 %0, wide;\n}\n" : "=r"(address) : "l"(pointer));
    return {address};
}

/// The address of the same object in the CTA of rank `rank` of this cluster; what follows it there keeps its distance.
/// PTX ISA, mapa.
__device__ inline SmemAddr map_to_rank(SmemAddr local, uint32_t rank) {
    uint32_t remote;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local.bits), "r"(rank));
    return {remote};
}

/// A word of a CTA of the cluster, whose address map_to_rank gives. PTX ISA, ld.
__device__ inline uint32_t load_cluster(SmemAddr at) {
    uint32_t x;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(x) : "r"(at.bits) : "memory");
    return x;
}

/// Adds to a word of a CTA of the cluster, whose address map_to_rank gives. PTX ISA, red.
__device__ inline void add_cluster(SmemAddr at, uint32_t x) {
    asm volatile("red.relaxed.cluster.shared::cluster.add.u32 [%0], %1;" ::"r"(at.bits), "r"(x) : "memory");
}

__device__ inline float load_shared(SmemAddr at) {
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(at.bits));
    return x;
}

__device__ inline uint32_t load_shared_word(SmemAddr at) {
    uint32_t x;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(at.bits) : "memory");
    return x;
}

__device__ inline void store_shared_word(SmemAddr to, uint32_t x) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(to.bits), "r"(x) : "memory");
}

struct Float2 {
    float part[2];
};
struct Float4 {
    float part[4];
};

__device__ inline Float2 load_shared_x2(SmemAddr at) {
    Float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.part[0]), "=f"(v.part[1]) : "r"(at.bits));
    return v;
}

__device__ inline Float4 load_shared_x4(SmemAddr at) {
    Float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.part[0]), "=f"(v.part[1]), "=f"(v.part[2]), "=f"(v.part[3])
                 : "r"(at.bits));
    return v;
}

__device__ inline void store_shared(SmemAddr at, float x) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(at.bits), "f"(x) : "memory");
}

__device__ inline void store_shared_x2(SmemAddr at, float x, float y) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at.bits), "f"(x), "f"(y) : "memory");
}

__device__ inline void store_shared_x4(SmemAddr at, const Float4& v) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(at.bits), "f"(v.part[0]), "f"(v.part[1]),
                 "f"(v.part[2]), "f"(v.part[3])
                 : "memory");
}

/// Through the read-only path: the kernel never writes what it loads so. Not volatile: loads may be moved together.
__device__ inline float load_global(const float* from) {
    float x;
    asm("ld.global.nc.f32 %0, [%1];" : "=f"(x) : "l"(from));
    return x;
}

__device__ inline Float2 load_global_x2(const float* from) {
    Float2 v;
    asm("ld.global.nc.v2.f32 {%0, %1}, [%2];" : "=f"(v.part[0]), "=f"(v.part[1]) : "l"(from));
    return v;
}
__device__ inline Float4 load_global_x4(const float* from) {
    Float4 v;
    asm("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];"
        : "=f"(v.part[0]), "=f"(v.part[1]), "=f"(v.part[2]), "=f"(v.part[3])
        : "l"(from));
    return v;
}

/// Starts a copy of 4 bytes from global to shared memory. PTX ISA, cp.async.
__device__ inline void copy_async(SmemAddr to, const float* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to.bits), "l"(from) : "memory");
}

/// Likewise; zero where `bytes`, 4 or none, are none: nothing is read there.
__device__ inline void copy_async(SmemAddr to, const float* from, uint32_t bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to.bits), "l"(from), "r"(bytes) : "memory");
}

/// Starts a copy of 16 bytes, both addresses a multiple of 16; only `bytes` of them are read, the others become zero.
__device__ inline void copy_async_x4(SmemAddr to, const float* from, uint32_t bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to.bits), "l"(from), "r"(bytes) : "memory");
}

/// Until all copies that this thread has started have landed; for others a barrier has to follow. PTX ISA,
/// cp.async.wait_all.
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
/// Copies since the one before are a group; and until all groups but the last `Groups` have landed. PTX ISA,
/// cp.async.commit_group and cp.async.wait_group.
__device__ inline void end_group_of_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <uint32_t Groups>
__device__ void wait_for_copies_but() {
    asm volatile("cp.async.wait_group %0;" ::"n"(Groups) : "memory");
}

/// Stores two floats into a CTA of the cluster and counts 8 bytes on its mbarrier. PTX ISA, st.async.
__device__ inline void st_async_x2(SmemAddr to_cluster, float x, float y, SmemAddr barrier_cluster) {
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to_cluster.bits),
        "f"(x), "f"(y), "r"(barrier_cluster.bits)
        : "memory");
}

/// Four 8x8 matrices of 16-bit elements; each lane gives the address of one 16-byte row. PTX ISA, stmatrix.
__device__ inline void stmatrix_x4(SmemAddr row, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row.bits), "r"(a), "r"(b),
                 "r"(c), "r"(d)
                 : "memory");
}

/// Four 8x8 matrices, each transposed: a lane gives the address of what is a column. PTX ISA, stmatrix.
__device__ inline void stmatrix_x4_transposed(SmemAddr row, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row.bits), "r"(a),
                 "r"(b), "r"(c), "r"(d)
                 : "memory");
}

/// Two floats to packed f16 or bf16, nearest even: `low` in the lower half. PTX ISA, cvt.
__device__ inline uint32_t pack_f16(float low, float high) {
    uint32_t packed;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}
__device__ inline uint32_t pack_bf16(float low, float high) {
    uint32_t packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

/// x, whatever it is, but for the compiler another value: x + -0.0. PTX ISA, add.
__device__ inline float plus_zero(float x) {
    float y;
    asm("add.rn.f32 %0, %1, 0f80000000;" : "=f"(y) : "f"(x));
    return y;
}

/// a + b as L2 adds (add_global_x4_if): subnormal numbers count as zero. PTX ISA, add.
__device__ inline float add_ftz(float a, float b) {
    float x;
    asm("add.rn.ftz.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
    return x;
}

/// a * b + c with one rounding; written out, so that no compiler option changes the result. PTX ISA, fma.
__device__ inline float fma(float a, float b, float c) {
    float x;
    asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(x) : "f"(a), "f"(b), "f"(c));
    return x;
}
__device__ inline float float_of_int(int32_t x) {
    float y;
    asm("cvt.rn.f32.s32 %0, %1;" : "=f"(y) : "r"(x));
    return y;
}

/// 1 / x within one unit in the last place, 0 where it is subnormal. PTX ISA, rcp.
__device__ inline float rough_reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/// The smaller, or the larger; NaN where one is NaN. PTX ISA, min and max.
__device__ inline float min_or_nan(float a, float b) {
    float x;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
    return x;
}
__device__ inline float max_or_nan(float a, float b) {
    float x;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
    return x;
}

/// The larger of `most` and |x|, of which a NaN does not count. PTX ISA, max.
__device__ inline float max_magnitude(float most, float x) {
    float larger;
    asm("{\n.reg .f32 magnitude;\nabs.f32 magnitude, %2;\nmax.f32 %0, %1, magnitude;\n}\n"
        : "=f"(larger)
        : "f"(most), "f"(x));
    return larger;
}

/// The larger magnitudes of two pairs of bf16, of which NaN do not count. Their signs say nothing: without them it is
/// one instruction, not two. PTX ISA, max.
__device__ inline uint32_t larger_magnitudes_bf16(uint32_t a, uint32_t b) {
    uint32_t larger;
    asm("max.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
    return larger;
}

struct Words4 {
    uint32_t w[4];
};
__device__ inline Words4 load_shared_words_x4(SmemAddr at) {
    Words4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
                 : "r"(at.bits)
                 : "memory");
    return v;
}

/// Four words of a CTA of the cluster, as load_cluster.
__device__ inline Words4 load_cluster_x4(SmemAddr at) {
    Words4 v;
    asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
                 : "r"(at.bits)
                 : "memory");
    return v;
}
__device__ inline void store_cluster_x2(SmemAddr at, uint32_t a, uint32_t b) {
    asm volatile("st.shared::cluster.v2.u32 [%0], {%1, %2};" ::"r"(at.bits), "r"(a), "r"(b) : "memory");
}

/// Stores a word into a CTA of the cluster and counts 4 bytes on its mbarrier. PTX ISA, st.async.
__device__ inline void st_async(SmemAddr to_cluster, uint32_t x, SmemAddr barrier_cluster) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to_cluster.bits),
                 "r"(x), "r"(barrier_cluster.bits)
                 : "memory");
}
/// Stores them into a CTA of the cluster and counts 16 bytes on its mbarrier. PTX ISA, st.async.
__device__ inline void st_async_x4(SmemAddr to_cluster, const Words4& v, SmemAddr barrier_cluster) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                     to_cluster.bits),
                 "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]), "r"(v.w[3]), "r"(barrier_cluster.bits)
                 : "memory");
}
/// Adds to a word of a CTA of the cluster and counts 4 bytes on its mbarrier. PTX ISA, red.async.
__device__ inline void add_async(SmemAddr to_cluster, uint32_t x, SmemAddr barrier_cluster) {
    asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, [%2];" ::"r"(
                     to_cluster.bits),
                 "r"(x), "r"(barrier_cluster.bits)
                 : "memory");
}

__device__ inline void store_shared_words_x4(SmemAddr at, const Words4& v) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at.bits), "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]),
                 "r"(v.w[3])
                 : "memory");
}

__device__ inline void store_global_x4(void* to, const Words4& v) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]),
                 "r"(v.w[3])
                 : "memory");
}

/// Stores if `wanted`, without a branch: diverging lanes cost the code around them its uniform registers.
__device__ inline void store_global_x4_if(bool wanted, void* to, const Words4& v) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %5, 0;\n@p st.global.v4.b32 [%0], {%1, %2, %3, %4};\n}\n" ::"l"(to),
                 "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]), "r"(v.w[3]), "r"(static_cast<uint32_t>(wanted))
                 : "memory");
}

__device__ inline void store_global_x4_if(bool wanted, void* to, const Float4& v) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %5, 0;\n@p st.global.v4.f32 [%0], {%1, %2, %3, %4};\n}\n" ::"l"(to),
                 "f"(v.part[0]), "f"(v.part[1]), "f"(v.part[2]), "f"(v.part[3]), "r"(static_cast<uint32_t>(wanted))
                 : "memory");
}

__device__ inline void store_global_if(bool wanted, void* to, uint32_t x) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %2, 0;\n@p st.global.b32 [%0], %1;\n}\n" ::"l"(to), "r"(x),
                 "r"(static_cast<uint32_t>(wanted))
                 : "memory");
}

__device__ inline void store_global_half_if(bool wanted, void* to, uint16_t x) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %2, 0;\n@p st.global.b16 [%0], %1;\n}\n" ::"l"(to), "h"(x),
                 "r"(static_cast<uint32_t>(wanted))
                 : "memory");
}

/// Adds to what is there, in L2. Subnormal numbers count as zero. PTX ISA, red.
__device__ inline void add_global_x4_if(bool wanted, void* to, const Float4& v) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.u32 p, %5, 0;\n"
        "@p red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};\n}\n" ::"l"(to),
        "f"(v.part[0]), "f"(v.part[1]), "f"(v.part[2]), "f"(v.part[3]), "r"(static_cast<uint32_t>(wanted))
        : "memory");
}

}  // namespace finegemm::ptx
