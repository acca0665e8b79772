// Casts to e4m3, e5m2 or integers of eight bits with fine-grained scales. Layer: public.
#pragma once

#include <finegemm/context.h>
#include <finegemm/tensor.h>

namespace finegemm {

struct QuantizeOptions {
    bool power_of_two_scales = false;  ///< round each scale up to a power of two (UE8M0 style)
    Stream stream = nullptr;           ///< CUDA only
    Poll poll{};                       ///< as GemmOptions::poll
};

/// 1x128 scales, as activations have: scales[m, k / 128] = amax / 448 of the block's finite values,
/// q[m, k] = e4m3(x[m, k] * (1 / scale)), rounded to nearest even, saturating at 448.
/// x: [M, K] bf16, f16 or f32, K contiguous; q: [M, K] e4m3, e5m2 or i8, K contiguous. The largest number of e5m2 is
/// 57344, of i8 127, where e4m3 has 448; -128 is not made. scales: [M, ceil(K/128)] f32, row-major, MN-major, or
/// padded: the larger stride steps over what the smaller spans; or [M, 1], one for each row, as tokens and channels
/// have, with the amax of all of it. K is a multiple of 16; on CUDA the rows of x and q start on multiples of 16 bytes.
/// q, scales and x share no memory. A block of zeros has scale 1 and stays zero; no scale is below 2^-126. NaN becomes
/// NaN (0x7f), of i8 0, and infinity +-448. CPU and GPU give the same bits. Throws Error: InvalidArgument, Unsupported,
/// Driver, Compile.
FINEGEMM_API void quantize_rows(Context& context, const ConstMatrix& x, const Matrix& q, const Matrix& scales,
                                const QuantizeOptions& options = {});

/// 128x128 scales, as weights have: scales: [ceil(N/128), ceil(K/128)] f32. Otherwise as quantize_rows.
FINEGEMM_API void quantize_blocks(Context& context, const ConstMatrix& x, const Matrix& q, const Matrix& scales,
                                  const QuantizeOptions& options = {});

struct QuantizeWeightsArgs {
    ConstStack x;        ///< [G, N, K] bf16, f16 or f32, K contiguous; a matrix is a stack of one
    Stack q, scales;     ///< of each matrix what quantize_blocks makes of it
    Stack transposed{};  ///< [G, K, N], N contiguous: the codes of q once more, of its type, as products with dY read
};

/// quantize_blocks of each matrix of a stack, in one pass, which may write the codes transposed, too. Their scales are
/// `scales` with the strides swapped. With `transposed`, left out where it has no pointer, N is a multiple of 16.
/// Otherwise as quantize_rows.
FINEGEMM_API void quantize_weights(Context& context, const QuantizeWeightsArgs& args,
                                   const QuantizeOptions& options = {});

struct QuantizeColumnsArgs {
    ConstMatrix x;   ///< [M, K] bf16, f16 or f32, K contiguous
    Matrix q;        ///< [K, C] e4m3 or e5m2, C contiguous: x transposed
    Matrix scales;   ///< [K, ceil(C/128)] f32, strides as of quantize_rows; kernels read [K, 1] side by side fastest
    Matrix row_q{};  ///< [M, K] and [M, ceil(K/128)]: what quantize_rows makes of x, from the same pass, in codes of
                     ///< the type of q;
    Matrix row_scales{};    ///< or both without a pointer
    ConstMatrix offsets{};  ///< [1, G + 1] i32: group g has the rows offsets[g] up to offsets[g + 1] of x, none where
                            ///< these descend. Read when the work is done. Without a pointer x is one group
    Matrix begins{};  ///< [1, G + 1] i32, is written: the columns of q where groups begin, and where the last ends
};

/// 128x1 scales, as both operands of gradients of weights have: q[k, c] = e4m3(x[c, k] * (1 / scale)), scales[k, c /
/// 128] = amax / 448, in one pass over x, which may write what quantize_rows would write, too. Columns of q without a
/// row of x are zeros, blocks of nothing else have scale 1. C is a multiple of 16 from M on. With groups, of which
/// there are from 1 to 4096, each begins at a multiple of 128, behind the one before it, as k_grouped_gemm wants them;
/// C is a multiple of 128 then, at least M + 127 G rounded down to one, so that they fit however rows fall to groups.
/// Rows of no group are left out, in row_q, too. Numbers that break the rules lead to nothing outside of the matrices.
/// Otherwise as quantize_rows.
FINEGEMM_API void quantize_columns(Context& context, const QuantizeColumnsArgs& args,
                                   const QuantizeOptions& options = {});

struct ReencodeArgs {
    ConstStack codes;  ///< [G, M, K] e4m3, K contiguous; a matrix is a stack of one
    ConstStack words;  ///< [G, M, ceil(K/128)] ue8m0x4, any strides: exponents e of 2^(e - 127) for each 32 of K, the
                       ///< first in the lowest byte; 0 is 0.0, 255 NaN
    Stack q;           ///< [G, M, K] e4m3, K contiguous
    Stack scales;      ///< [G, M, ceil(K/128)] f32, for rows, or [G, ceil(M/128), ceil(K/128)], for blocks
    Matrix changed{};  ///< [1, 1] i32, is added to; without a pointer nothing is counted
};

struct ReencodeOptions {
    Stream stream = nullptr;  ///< CUDA only
    bool pdl = false;         ///< as GemmOptions::pdl
    Poll poll{};              ///< as GemmOptions::poll
};

/// MXFP8 as codes whose scales serve 128 of K, of rows as quantize_rows makes them or of blocks as quantize_blocks:
/// scales are the least powers of two, but no less than 2^-126, with which no code is above 448. A value keeps its bits
/// unless it is below 2^-6 of its new scale, where e4m3 has fewer: then it is off by at most 2^-10 of that. `changed`
/// counts the groups of 128 of a row with such a value. Where all is zero the scale is 1. NaN stays NaN, and has no say
/// in the scale. K is a multiple of 16; on CUDA rows of codes and q start on multiples of 16 bytes. CPU and GPU give
/// the same bits. Throws Error: InvalidArgument, Unsupported, Driver, Compile.
FINEGEMM_API void reencode(Context& context, const ReencodeArgs& args, const ReencodeOptions& options = {});

}  // namespace finegemm
