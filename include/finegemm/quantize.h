// Casts to e4m3 with fine-grained scales. Layer: public.
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
/// x: [M, K] bf16, f16 or f32, K contiguous; q: [M, K] e4m3, K contiguous.
/// scales: [M, ceil(K/128)] f32, row-major, MN-major, or padded: the larger stride steps over what the smaller spans.
/// K is a multiple of 16; on CUDA the rows of x and q start on multiples of 16 bytes. q, scales and x share no memory.
/// A block of zeros has scale 1 and stays zero; no scale is below 2^-126.
/// NaN becomes NaN (0x7f), infinity becomes +-448.
/// CPU and GPU give the same bits. Throws Error: InvalidArgument, Unsupported, Driver, Compile.
FINEGEMM_API void quantize_rows(Context& context, const ConstMatrix& x, const Matrix& q, const Matrix& scales,
                                const QuantizeOptions& options = {});

/// 128x128 scales, as weights have: scales: [ceil(N/128), ceil(K/128)] f32. Otherwise as quantize_rows.
FINEGEMM_API void quantize_blocks(Context& context, const ConstMatrix& x, const Matrix& q, const Matrix& scales,
                                  const QuantizeOptions& options = {});

}  // namespace finegemm
