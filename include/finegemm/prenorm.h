// The product before the norm of hyper-connections: a few columns, and the sum of squares of each row.
// Layer: public.
#pragma once

#include <cstdint>
#include <string>

#include <finegemm/context.h>
#include <finegemm/tensor.h>

namespace finegemm {

struct PrenormOptions {
    Stream stream = nullptr;  ///< CUDA only
    int32_t num_sms = 0;      ///< as GemmOptions::num_sms
    bool pdl = false;         ///< as GemmOptions::pdl
    Poll poll{};              ///< as GemmOptions::poll
};

/// The sum of the S matrices of d is A * tf32(B)^T, the sum of the S rows of sqrsum has the sum of squares of each row
/// of A. tf32(x): x rounded to 11 significant bits, ties to even. A is exact, and so are products; sums are FP32.
/// docs/prenorm.md has the order and the bound of the error.
struct PrenormArgs {
    ConstMatrix a;  ///< [M, K] bf16, K contiguous and a multiple of 64; on CUDA rows start on multiples of 16 bytes
    ConstMatrix b;  ///< [N, K] f32, as a; N is 8, 16, 24 or 32
    Stack d;        ///< S slices [M, N] f32, N contiguous, S from 1 to 1024; on CUDA stores are the fastest where rows
                    ///< start on multiples of 16 bytes
    Matrix sqrsum;  ///< [S, M] f32, M contiguous
};

/// All S slices are written; how K is divided among them is not told, and some may be zero. With the same shape, S and
/// number of SMs the bits are the same from call to call. M = 0: nothing is done. d and sqrsum share no memory with
/// each other or with what is read; nothing between their rows is written. On CUDA the work is queued and the call does
/// not wait. Throws Error: InvalidArgument, Unsupported, Driver, Compile.
FINEGEMM_API void prenorm_gemm(Context& context, const PrenormArgs& args, const PrenormOptions& options = {});

/// A call of it without its pointers.
struct PrenormShape {
    int64_t m = 1, n = 24, k = 64;
    int64_t slices = 1;   ///< S
    int32_t num_sms = 0;  ///< as the option of a call
};

/// Which kernel it takes and why: JSON text with `kernel`, its name, `us`, its time by prediction, `why`, sentences,
/// `config`, what the launch is made of, and `plans`, those that there are, the fastest first. `device`: as of
/// explain(GemmShape). Throws Error(InvalidArgument) for what no call may have.
FINEGEMM_API std::string explain(const PrenormShape& shape, const std::string& device = {});

}  // namespace finegemm
