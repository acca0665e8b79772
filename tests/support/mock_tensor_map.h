// What the driver asks of a tensor map. CUDA driver API, cuTensorMapEncodeTiled. Layer tests.
#pragma once

#include <cstdint>

namespace finegemm::mock {

/// The arguments of cuTensorMapEncodeTiled, in its order.
struct TensorMapArguments {
    const void* map;
    int type;
    unsigned rank;
    const void* base;
    const uint64_t *dims, *strides;
    const uint32_t *box, *steps;
    int interleave, swizzle, l2_promotion, fill;
};

/// Whether the driver takes them. Tensors of bytes, bf16 or f32 without interleave, matrices or stacks of them, are all
/// that we use.
inline bool legal(const TensorMapArguments& a) {
    constexpr int kUint8 = 0, kFloat32 = 7, kBf16 = 9;
    if (reinterpret_cast<uintptr_t>(a.map) % 64 != 0 || (a.rank != 2 && a.rank != 3) || a.interleave != 0) return false;
    if (a.type != kUint8 && a.type != kFloat32 && a.type != kBf16) return false;
    if (!a.base || reinterpret_cast<uintptr_t>(a.base) % 16 != 0) return false;
    for (uint32_t i = 0; i + 1 < a.rank; ++i)
        if (a.strides[i] % 16 != 0 || a.strides[i] >= 1ull << 40) return false;
    for (uint32_t i = 0; i < a.rank; ++i) {
        if (a.dims[i] == 0 || a.dims[i] > 1ull << 32) return false;
        if (a.box[i] == 0 || a.box[i] > 256 || a.steps[i] == 0 || a.steps[i] > 8) return false;
    }
    const uint32_t row_bytes = a.box[0] * (a.type == kUint8 ? 1 : a.type == kBf16 ? 2 : 4);
    if (row_bytes % 16 != 0) return false;
    if (a.swizzle < 0 || a.swizzle > 3 || (a.swizzle > 0 && row_bytes > 16u << a.swizzle)) return false;
    return a.l2_promotion >= 0 && a.l2_promotion <= 3 && a.fill == 0;
}

}  // namespace finegemm::mock
