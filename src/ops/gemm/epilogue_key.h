// The arguments of an epilogue as words, for the keys of launches. Layer engine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>

#include <finegemm/core/fp8.h>
#include <finegemm/gemm.h>

#include "plan/fields.h"

namespace finegemm {

// The words of an argument.
inline std::array<uint64_t, 1> words_of(float x) { return {float_bits(x)}; }
inline std::array<uint64_t, 1> words_of(const std::optional<float>& x) { return {x ? float_bits(*x) : ~uint64_t{0}}; }
inline std::array<uint64_t, 1> words_of(int64_t x) { return {static_cast<uint64_t>(x)}; }
inline std::array<uint64_t, 2> words_of(const ConstMatrix& x) {
    return {reinterpret_cast<uintptr_t>(x.data), static_cast<uint64_t>(x.row_stride)};
}
inline std::array<uint64_t, 3> words_of(const ConstStack& x) {
    return {reinterpret_cast<uintptr_t>(x.matrix.data), static_cast<uint64_t>(x.matrix.row_stride),
            static_cast<uint64_t>(x.stride)};
}

inline std::array<uint64_t, 1> words_of(bool x) { return {x}; }
inline std::array<uint64_t, 4> words_of(const Stack& x) {
    return {reinterpret_cast<uintptr_t>(x.matrix.data), static_cast<uint64_t>(x.matrix.row_stride),
            static_cast<uint64_t>(x.matrix.col_stride), static_cast<uint64_t>(x.stride)};
}
inline std::array<uint64_t, 3> words_of(const RowNumbers& x) { return words_of(x.rows); }
inline std::array<uint64_t, 2> words_of(const RowIndices& x) {
    return {reinterpret_cast<uintptr_t>(x.rows.data),
            static_cast<uint64_t>(x.rows.rows) << 8 | static_cast<uint64_t>(x.rows.dtype)};
}

inline constexpr size_t kEpilogueWords = [] {
    size_t words = 0;
    plan::epilogue_arguments(
        [&](const plan::EpilogueArgument&, const auto& x) { words += std::tuple_size_v<decltype(words_of(x))>; },
        plan::kNoEpilogue);
    return words;
}();

/// Epilogues that agree in these have the same parameters.
using EpilogueKey = std::array<uint64_t, kEpilogueWords>;

inline EpilogueKey key_of(const Epilogue& epilogue) {
    EpilogueKey key;
    auto* to = key.data();
    plan::epilogue_arguments(
        [&](const plan::EpilogueArgument&, const auto& x) {
            for (const uint64_t word : words_of(x)) *to++ = word;
        },
        epilogue);
    return key;
}
inline const EpilogueKey kNoEpilogueKey = key_of(Epilogue());

}  // namespace finegemm
