// Loads and stores of kernels, on the host. Those that a GPU wants aligned are checked. Layer tests.
#pragma once

#include <finegemm/device/ptx/control.cuh>

namespace finegemm::ptx {

struct SmemAddr {
    uint8_t* at;
    SmemAddr operator+(uint32_t bytes) const { return {at + bytes}; }
};
inline SmemAddr smem_address(const void* pointer) {
    return {const_cast<uint8_t*>(static_cast<const uint8_t*>(pointer))};
}

struct Words4 {
    uint32_t w[4];
};

inline void check_aligned(const void* at, uintptr_t bytes) {
    if (reinterpret_cast<uintptr_t>(at) % bytes != 0) __builtin_trap();
}
inline uint32_t load_global_if(bool wanted, const void* from) {
    uint32_t x = 0;
    if (!wanted) return x;
    check_aligned(from, 4);
    std::memcpy(&x, from, sizeof x);
    return x;
}
inline Words4 load_global_x4_if(bool wanted, const void* from) {
    Words4 v{};
    if (!wanted) return v;
    check_aligned(from, 16);
    std::memcpy(&v, from, sizeof v);
    return v;
}
inline void store_global_if(bool wanted, void* to, uint32_t x) {
    if (!wanted) return;
    check_aligned(to, 4);
    std::memcpy(to, &x, sizeof x);
}
inline void store_global(void* to, uint32_t x) { store_global_if(true, to, x); }
inline void store_global_x4(void* to, const Words4& v) {
    check_aligned(to, 16);
    std::memcpy(to, &v, sizeof v);
}
inline Words4 load_shared_words_x4(SmemAddr from) {
    check_aligned(from.at, 16);
    Words4 v;
    std::memcpy(&v, from.at, sizeof v);
    return v;
}
inline void store_global_x4_if(bool wanted, void* to, const Words4& v) {
    if (wanted) store_global_x4(to, v);
}
inline void store_shared_word_if(bool wanted, SmemAddr to, uint32_t x) { store_global_if(wanted, to.at, x); }
inline void store_shared_words_x4(SmemAddr to, const Words4& v) { store_global_x4(to.at, v); }
inline void store_shared_words_x4_if(bool wanted, SmemAddr to, const Words4& v) {
    store_global_x4_if(wanted, to.at, v);
}
inline uint32_t highest_bytes(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    return a >> 24 | b >> 24 << 8 | c >> 24 << 16 | d >> 24 << 24;
}

}  // namespace finegemm::ptx
