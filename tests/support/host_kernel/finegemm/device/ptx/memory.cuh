// Loads and stores, on the host. Those that a GPU wants aligned are checked. Layer tests.
#pragma once

#include <cmath>

#include <finegemm/core/fp8.h>
#include <finegemm/device/ptx/control.cuh>

namespace finegemm::ptx {

/// Counted from the dynamic shared memory of the thread's CTA; static objects lie somewhere else, modulo 2^32. Of a CTA
/// of the cluster: kClusterWindow times its rank and one on.
inline constexpr uint32_t kClusterWindow = 1 << 20;
struct SmemAddr {
    uint32_t bits;
    constexpr SmemAddr operator+(uint32_t bytes) const { return {bits + bytes}; }
};
inline SmemAddr smem_address(const void* pointer) {
    return {static_cast<uint32_t>(static_cast<const uint8_t*>(pointer) - host_kernel::shared[machine->cta()])};
}
inline uint8_t* host_address(SmemAddr at) {
    return host_kernel::shared[machine->cta()] + static_cast<int32_t>(at.bits);
}
inline SmemAddr map_to_rank(SmemAddr local, uint32_t rank) {
    if (rank >= machine->ctas()) machine->fail("the cluster has no such rank");
    return {local.bits + (rank + 1) * kClusterWindow};
}
inline uint32_t rank_of(SmemAddr cluster) { return cluster.bits / kClusterWindow - 1; }
inline uint32_t offset_of(SmemAddr cluster) { return cluster.bits % kClusterWindow; }

struct Float2 {
    float part[2];
};
struct Float4 {
    float part[4];
};
struct Words4 {
    uint32_t w[4];
};

inline void check_aligned(const void* at, uintptr_t bytes) {
    if (reinterpret_cast<uintptr_t>(at) % bytes != 0) machine->fail("an address is not aligned");
}
template <typename T>
T load_as(const void* from) {
    check_aligned(from, sizeof(T));
    machine->check_not_earlier(from);
    T x;
    std::memcpy(&x, from, sizeof x);
    return x;
}
template <typename T>
void store_as(void* to, const T& x) {
    check_aligned(to, sizeof x);
    machine->check_not_earlier(to);
    std::memcpy(to, &x, sizeof x);
}
template <typename T>
T load_shared_as(SmemAddr at) {
    machine->pause();
    return load_as<T>(host_address(at));
}
template <typename T>
void store_shared_as(SmemAddr at, const T& x) {
    machine->pause();
    machine->stored(at.bits, sizeof x);
    store_as(host_address(at), x);
}

// Declared for kernels that nobody runs here: copies of scales.
/// Lands before mbarrier_arrive_after_copies arrives, and not at once.
inline void copy_async(SmemAddr to, const float* from, uint32_t bytes = 4) {
    machine->check_not_earlier(from);
    std::memset(host_address(to), 0xff, 4);
    machine->start_copy([=] {
        if (bytes == 4) std::memcpy(host_address(to), from, 4);
        else std::memset(host_address(to), 0, 4);
    });
}
inline void copy_async_x4(SmemAddr to, const float* from, uint32_t bytes) {
    check_aligned(from, 16);
    machine->check_not_earlier(from);
    std::memset(host_address(to), 0xff, 16);
    machine->start_copy([=] {
        std::memset(host_address(to), 0, 16);
        std::memcpy(host_address(to), from, bytes);
    });
}
inline void end_group_of_copies() { machine->copies().end_group(); }
template <uint32_t Groups>
void wait_for_copies_but() {
    machine->copies().land_groups_but(Groups);
}
inline void wait_for_copies() {
    machine->after_copies([] {});
    while (machine->has_pending(machine->current())) machine->let_others_run();
}

/// Another thread may run first: what the CTA has not written yet shows.
inline uint32_t load_cluster(SmemAddr at) {
    machine->pause();
    return load_as<uint32_t>(machine->shared_of(rank_of(at)) + offset_of(at));
}
inline Words4 load_cluster_x4(SmemAddr at) {
    machine->pause();
    return load_as<Words4>(machine->shared_of(rank_of(at)) + offset_of(at));
}
inline void add_cluster(SmemAddr at, uint32_t x) {
    machine->pause();
    uint8_t* const to = machine->shared_of(rank_of(at)) + offset_of(at);
    store_as(to, load_as<uint32_t>(to) + x);
}
inline uint32_t load_shared_word(SmemAddr at) { return load_shared_as<uint32_t>(at); }
inline float load_shared(SmemAddr at) { return load_shared_as<float>(at); }
inline Float2 load_shared_x2(SmemAddr at) { return load_shared_as<Float2>(at); }
inline Float4 load_shared_x4(SmemAddr at) { return load_shared_as<Float4>(at); }
inline Words4 load_shared_words_x4(SmemAddr at) { return load_shared_as<Words4>(at); }
inline void store_shared(SmemAddr at, float x) { store_shared_as(at, x); }
inline void store_shared_word(SmemAddr at, uint32_t x) { store_shared_as(at, x); }
inline void store_shared_x2(SmemAddr at, float x, float y) { store_shared_as(at, Float2{{x, y}}); }
inline void store_shared_x4(SmemAddr at, const Float4& v) { store_shared_as(at, v); }
inline void store_shared_words_x4(SmemAddr at, const Words4& v) { store_shared_as(at, v); }

/// Happens late, with what tells its mbarrier.
template <typename Change>
void change_async(SmemAddr to, uint32_t bytes, SmemAddr barrier, const Change& change) {
    if (machine->ctas() < 2) machine->fail("what is asynchronous in a cluster is illegal where that has one CTA");
    if (rank_of(to) != rank_of(barrier)) machine->fail("it counts in another CTA than it changes");
    machine->later([=] {
        change(machine->shared_of(rank_of(to)) + offset_of(to));
        machine->come(machine->mbarrier_of(rank_of(barrier), offset_of(barrier)), bytes);
    });
}
inline void st_async_x2(SmemAddr to, float x, float y, SmemAddr barrier) {
    change_async(to, 8, barrier, [=](uint8_t* at) { store_as(at, Float2{{x, y}}); });
}
inline void st_async(SmemAddr to, uint32_t x, SmemAddr barrier) {
    change_async(to, 4, barrier, [=](uint8_t* at) { store_as(at, x); });
}
inline void st_async_x4(SmemAddr to, const Words4& v, SmemAddr barrier) {
    change_async(to, 16, barrier, [=](uint8_t* at) { store_as(at, v); });
}
inline void add_async(SmemAddr to, uint32_t x, SmemAddr barrier) {
    change_async(to, 4, barrier, [=](uint8_t* at) { store_as(at, load_as<uint32_t>(at) + x); });
}

inline float load_global(const float* from) { return load_as<float>(from); }
inline Float2 load_global_x2(const float* from) { return load_as<Float2>(from); }
inline Float4 load_global_x4(const float* from) { return load_as<Float4>(from); }
inline void store_global_x4(void* to, const Words4& v) { store_as(to, v); }
inline void store_global_x4_if(bool wanted, void* to, const Words4& v) {
    if (wanted) store_as(to, v);
}
inline void store_global_x4_if(bool wanted, void* to, const Float4& v) {
    if (wanted) store_as(to, v);
}
inline void add_global_x4_if(bool wanted, void* to, const Float4& v) {
    if (!wanted) return;
    auto sum = load_as<Float4>(to);
    for (uint32_t i = 0; i < 4; ++i) sum.part[i] += v.part[i];
    store_as(to, sum);
}
inline void store_global_if(bool wanted, void* to, uint32_t x) {
    if (wanted) store_as(to, x);
}
inline void store_global_half_if(bool wanted, void* to, uint16_t x) {
    if (wanted) store_as(to, x);
}

inline uint32_t pack_bf16(float low, float high) {
    return bf16_of_float(low) | static_cast<uint32_t>(bf16_of_float(high)) << 16;
}
inline uint32_t pack_f16(float low, float high) {
    return f16_of_float(low) | static_cast<uint32_t>(f16_of_float(high)) << 16;
}
/// Each lane's row of eight halves gets the words of a matrix's four lanes.
inline void stmatrix_x4(SmemAddr row, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    const uint32_t words[] = {a, b, c, d}, lane = threadIdx.x % 32;
    Words4 mine{};
    for (uint32_t matrix = 0; matrix < 4; ++matrix) {
        const uint32_t* const shown = machine->show(words[matrix]);
        for (uint32_t i = 0; i < 4 && lane / 8 == matrix; ++i) mine.w[i] = shown[lane % 8 * 4 + i];
    }
    store_shared_as(row, mine);
}
/// A lane gets a column of a matrix, of which each lane of a row has a half of its word.
inline void stmatrix_x4_transposed(SmemAddr row, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    const uint32_t words[] = {a, b, c, d}, lane = threadIdx.x % 32, column = lane % 8;
    Words4 mine{};
    for (uint32_t matrix = 0; matrix < 4; ++matrix) {
        const uint32_t* const shown = machine->show(words[matrix]);
        for (uint32_t i = 0; i < 8 && lane / 8 == matrix; ++i) {
            const uint32_t half = shown[i * 4 + column / 2] >> column % 2 * 16 & 0xffff;
            mine.w[i / 2] |= half << i % 2 * 16;
        }
    }
    store_shared_as(row, mine);
}
/// The GPU's only NaN.
inline float canonical(float x) { return is_nan(x) ? float_of_bits(0x7fffffff) : x; }
inline float plus_zero(float x) { return x; }
inline float add_ftz(float a, float b) { return canonical(a + b); }
inline float fma(float a, float b, float c) { return canonical(std::fma(a, b, c)); }
inline float float_of_int(int32_t x) { return static_cast<float>(x); }
inline float rough_reciprocal(float x) { return x > 0x1p126f ? 0.0f : 1.0f / x; }
inline float max_magnitude(float most, float x) { return std::fmax(most, std::fabs(x)); }
inline uint32_t larger_magnitudes_bf16(uint32_t a, uint32_t b) {
    const auto half = [](uint32_t a, uint32_t b) {
        const float larger =
            std::fmax(std::fabs(float_of_bits(a & 0xffff0000u)), std::fabs(float_of_bits(b & 0xffff0000u)));
        return (float_bits(larger) | ((a ^ b) & 0x80000000u)) >> 16;
    };
    return half(a, b) << 16 | half(a << 16, b << 16);
}
inline float min_or_nan(float a, float b) { return is_nan(a) || is_nan(b) ? canonical(a + b) : a < b ? a : b; }
inline float max_or_nan(float a, float b) { return is_nan(a) || is_nan(b) ? canonical(a + b) : a > b ? a : b; }

}  // namespace finegemm::ptx
