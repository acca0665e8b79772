// Loads and stores of single words and vectors, on the host. Layer tests.
#pragma once

#include <algorithm>

#include <finegemm/prenorm/arithmetic.h>
#include <finegemm/device/ptx/memory.cuh>

namespace finegemm::ptx {

struct Words2 {
    uint32_t w[2];
};

inline uint32_t load_global_if(bool wanted, const void* from) { return wanted ? load_as<uint32_t>(from) : 0; }
inline Words4 load_global_once(const void* from) { return load_as<Words4>(from); }
inline Words4 load_global_x4_if(bool wanted, const void* from) { return wanted ? load_as<Words4>(from) : Words4{}; }
inline uint32_t load_global_l2_if(bool wanted, const void* from) { return load_global_if(wanted, from); }
/// Another thread may run first: what has not been written yet shows.
inline Words4 load_global_l2_x4_if(bool wanted, const void* from) {
    machine->pause();
    return load_global_x4_if(wanted, from);
}
inline void store_global(void* to, uint32_t x) { store_as(to, x); }
inline void store_global(float* to, float x) { store_as(to, x); }
inline void store_global_x2(void* to, uint32_t a, uint32_t b) { store_as(to, Words2{{a, b}}); }
inline void store_global_x2_if(bool wanted, void* to, uint32_t a, uint32_t b) {
    if (wanted) store_as(to, Words2{{a, b}});
}
inline void store_shared_words_x2(SmemAddr to, uint32_t a, uint32_t b) { store_shared_as(to, Words2{{a, b}}); }
inline void store_cluster_x2(SmemAddr at, uint32_t a, uint32_t b) {
    machine->pause();
    store_as(machine->shared_of(rank_of(at)) + offset_of(at), Words2{{a, b}});
}
inline void store_shared_word_if(bool wanted, SmemAddr to, uint32_t x) {
    if (wanted) store_shared_as(to, x);
}
inline void store_shared_words_x4_if(bool wanted, SmemAddr to, const Words4& v) {
    if (wanted) store_shared_as(to, v);
}
inline uint16_t pack_e4m3(float low, float high) {
    return static_cast<uint16_t>(e4m3_of_float(low) | e4m3_of_float(high) << 8);
}
inline float tf32_of(float x) { return tf32_of_float(x); }
inline uint16_t pack_e5m2(float low, float high) {
    return static_cast<uint16_t>(e5m2_of_float(low) | e5m2_of_float(high) << 8);
}
inline uint16_t pack_i8(float low, float high) {
    return static_cast<uint16_t>(i8_of_float(low) | i8_of_float(high) << 8);
}
inline uint32_t low_halves(uint32_t a, uint32_t b) { return (a & 0xffff) | b << 16; }
inline uint32_t high_halves(uint32_t a, uint32_t b) { return a >> 16 | (b & 0xffff0000u); }
inline uint32_t interleave_low(uint32_t a, uint32_t b) {
    return (a & 0xff) | (b & 0xff) << 8 | (a & 0xff00) << 8 | (b & 0xff00) << 16;
}
inline uint32_t interleave_high(uint32_t a, uint32_t b) { return interleave_low(a >> 16, b >> 16); }
inline uint32_t max_s16x2(uint32_t a, uint32_t b) {
    const auto larger = [](uint32_t x, uint32_t y) {
        return static_cast<uint16_t>(std::max(static_cast<int16_t>(x), static_cast<int16_t>(y)));
    };
    return larger(a, b) | static_cast<uint32_t>(larger(a >> 16, b >> 16)) << 16;
}
inline float float_of_half(uint16_t x) { return float_of_f16(x); }
inline uint32_t permute_bytes(uint32_t low, uint32_t high, uint32_t selectors) {
    const uint64_t bytes = static_cast<uint64_t>(high) << 32 | low;
    uint32_t chosen = 0;
    for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t selector = selectors >> i * 4 & 15;
        if (selector > 7) machine->fail("a selector of prmt asks for a sign");
        chosen |= static_cast<uint32_t>(bytes >> selector * 8 & 0xff) << i * 8;
    }
    return chosen;
}
inline uint32_t spread_signs(uint32_t x) { return (x >> 7 & 0x01010101u) * 0xff; }
inline uint32_t highest_bytes(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    return a >> 24 | b >> 24 << 8 | c >> 24 << 16 | d >> 24 << 24;
}

}  // namespace finegemm::ptx
