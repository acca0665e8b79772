// What the bits of the product before a norm depend on: how B is rounded, and the order of sums. Layer prenorm.
//
// B is rounded to TF32: 11 significant bits, ties to even. Such a number is exactly the sum of two bf16, its first 8
// bits and the other 3, so that tensor cores multiply A, which is bf16, by two columns for each of B; products are
// exact.
//
// K is cut into parts of whole stages (PrenormParts), each of one block of 64 or two. Tensor cores sum kPrenormChunk
// blocks of a part at a time from zero, in an order that is theirs, for both columns of a pair apart:
//     sum = sum + (first + second), chunks ascending.
//
// The squares of a part are summed in four partial sums: k adds to partial[prenorm_partial(k)], k ascending, by
// partial = fma(a, a, partial). Their sum is (partial[0] + partial[1]) + (partial[2] + partial[3]).
//
// The parts of a slice are added in their order. All of that is IEEE's f32, to nearest even, subnormal numbers kept.
#pragma once

#include <finegemm/core/fp8.h>

namespace finegemm {

inline constexpr uint32_t kPrenormBlock = 64;  // of K: rows of 128 bytes in shared memory
inline constexpr uint32_t kPrenormChunk =
    8;  // blocks that tensor cores sum: they truncate sums, which biases long ones
inline constexpr uint32_t kPrenormPartials = 4;

FG_HD constexpr uint32_t prenorm_partial(uint32_t k) { return k / 32 % 2 * 2 + k % 2; }

/// NaN becomes 0x7fffffff; what rounds beyond the largest becomes infinite.
FG_HD constexpr float tf32_of_float(float x) {
    if (is_nan(x)) return float_of_bits(0x7fffffffu);
    const uint32_t bits = float_bits(x);
    return float_of_bits((bits + 0xfffu + (bits >> 13 & 1u)) & 0xffffe000u);
}

/// The first is cut off, not rounded: it cannot overflow, and takes one instruction.
struct Tf32Pair {
    uint32_t first, second;  // bits of f32 whose lower halves are zero: bf16 in the upper ones
    constexpr bool operator==(const Tf32Pair&) const = default;
};
FG_HD constexpr Tf32Pair pair_of_tf32(float rounded) {
    const uint32_t bits = float_bits(rounded), first = bits & 0xffff0000u;
    const bool finite = float_of_bits(bits & 0x7fffffffu) < float_of_bits(0x7f800000u);
    return {first, finite ? float_bits(rounded - float_of_bits(first)) : 0u};
}
FG_HD constexpr Tf32Pair tf32_pair(float x) { return pair_of_tf32(tf32_of_float(x)); }

}  // namespace finegemm
