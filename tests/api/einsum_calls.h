// Calls of equations that are right until a test changes them. Layer tests.
#pragma once

#include <algorithm>
#include <random>

#include "api/calls.h"

namespace finegemm::test {

/// A tensor of three dimensions, the last one a part of longer rows.
template <typename T>
struct Tensor3 {
    DType dtype;
    int64_t extents[3], pitch;
    std::vector<T> memory;

    Tensor3(DType type, int64_t x, int64_t y, int64_t z, int64_t padding = 0, T value = {})
        : dtype(type), extents{x, y, z}, pitch(z + padding), memory(static_cast<size_t>(x * y * pitch), value) {}
    T& at(int64_t x, int64_t y, int64_t z) { return memory[static_cast<size_t>((x * extents[1] + y) * pitch + z)]; }
    Stack view() {
        return {{memory.data(), dtype, extents[1], extents[2], pitch, 1, {}}, extents[0], extents[1] * pitch};
    }
};

/// Random numbers in bf16.
inline Tensor3<uint16_t> random_tensor(int64_t x, int64_t y, int64_t z, uint32_t seed, int64_t padding = 0) {
    Tensor3<uint16_t> tensor(DType::BF16, x, y, z, padding, 0x7fc0);
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < x; ++i)
        for (int64_t j = 0; j < y; ++j)
            for (int64_t k = 0; k < z; ++k) tensor.at(i, j, k) = bf16_of_float(normal(random));
    return tensor;
}

/// b = 5 tokens of h = 3 heads, r = 16 and d = 24; or of b = 5 matrices m = 3, n = 24, k = 16. D of f32 is all 7.
struct EinsumCall {
    const char* equation;
    Tensor3<uint16_t> a, b;
    Tensor3<float> d;
    finegemm_einsum_args args{};
    finegemm_gemm_options options{};
    finegemm_epilogue epilogue{};
    std::vector<float> bias = std::vector<float>(24);
    finegemm_error error{};

    explicit EinsumCall(std::string_view text)
        : equation(text.data()),
          a(random_tensor(5, 3, 16, 1)),
          b(text[1] == 'm' ? random_tensor(5, 24, 16, 2) : random_tensor(3, 24, 16, 2, 8)),
          d(text[1] == 'm' ? Tensor3<float>(DType::F32, 1, 3, 24, 0, 7) : Tensor3<float>(DType::F32, 5, 3, 24, 0, 7)) {
        args = {c_stack(a.view()), {}, c_stack(b.view()), {}, c_stack(d.view())};
        options.struct_size = sizeof options;
        epilogue.struct_size = sizeof epilogue;
    }
    void add_bias() {
        epilogue.alpha = 1;
        epilogue.bias = c_matrix({bias.data(), DType::F32, 1, 24, 24, 1, {}});
        options.epilogue = &epilogue;
    }
    int32_t run(finegemm_context* context) { return finegemm_einsum(context, equation, &args, &options, &error); }
    bool is_untouched() const {
        return std::ranges::all_of(d.memory, [](float x) { return x == 7; });
    }
};

}  // namespace finegemm::test
