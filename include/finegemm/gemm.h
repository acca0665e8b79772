// The FP8 GEMM with fine-grained scales. Layer: public.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <finegemm/context.h>
#include <finegemm/tensor.h>

namespace finegemm {

/// D[m, n] = sum over k of (A[m, k] * sfa[m, k / 128]) * (B[n, k] * sfb[n / 128, k / 128])
/// With scales for each row of B, as gradients of weights need: sfb[n, k / 128]; D may then be f32, and be added to.
/// All on one device. Row strides of A, B and D are at least their columns; those of A and B on a GPU below 2^40 bytes.
/// Strides of scales are any that are not negative; 0 repeats a scale.
struct GemmArgs {
    ConstMatrix a;    ///< [M, K] e4m3, K contiguous, row stride a multiple of 16, pointer aligned to 16
    ConstMatrix sfa;  ///< [M, ceil(K/128)] f32, pointer aligned to 4
    ConstMatrix b;    ///< [N, K] e4m3, as A
    ConstMatrix sfb;  ///< [ceil(N/128), ceil(K/128)], or [N, ceil(K/128)] for scales of rows; f32, as sfa
    Matrix d;         ///< [M, N] bf16, or f32 with scales of rows; N contiguous, row stride a multiple of 8 (f32: of
                      ///< 4), pointer aligned to 16
};

struct GemmOptions {
    Stream stream = nullptr;                ///< CUDA only
    Numerics numerics = Numerics::Fast;     ///< CPU only
    std::optional<bool> check_values{};     ///< overrides Options::check_values for this call
    std::optional<bool> batch_invariant{};  ///< overrides Options::batch_invariant for this call
    int32_t num_sms = 0;                    ///< CUDA only: SMs that the kernel may use at most, so that others stay
                                            ///< free, for communication say; 0, or more than there are: all
    bool pdl = false;                       ///< CUDA only: programmatic dependent launch. The kernel is set up while
                                            ///< the one before it in the stream ends, and waits for it before it
                                            ///< reads or writes a matrix: always right, a little faster
    bool prefetch_weights = false;          ///< with pdl, which it needs: loads of B begin before that. No kernel
                                            ///< that may still run then, in this stream, writes to B: not the one
                                            ///< before, nor one that other launches with pdl have overlapped with.
                                            ///< Not for groups, whose sizes are read first
    bool accumulate = false;                ///< D += the product instead of D = the product; D is f32 then
    std::string config{};                   ///< a kernel by name (see explain) instead of the planner's choice;
                                            ///< on the CPU it gives Numerics::Hopper the order of the sums
};

/// M is any value, N a multiple of 8, K a multiple of 16. M = 0 or N = 0 does nothing; K = 0 writes zeros, or leaves D
/// if `accumulate` is set.
/// Runs where D lives; on CUDA the work is queued on `stream` and the call does not wait for it.
/// Arguments are checked in each case. Between the first and the last byte of D lies none of the other four, not even
/// in the padding of its rows. Extents are at most 2^31 - 1, strides and offsets 64-bit.
/// Throws Error: InvalidArgument, Unsupported (no Hopper GPU), Driver, Compile. Nothing is written then.
FINEGEMM_API void gemm(Context& context, const GemmArgs& args, const GemmOptions& options = {});

/// A product as far as the host knows it.
struct GemmShape {
    int64_t m = 0, n = 0, k = 0;
    bool row_b_scales = false;      ///< scales for each row of B, not for each 128x128 block
    DType out_dtype = DType::BF16;  ///< of D: BF16, or with row_b_scales F32
    bool batch_invariant = false;   ///< as the option of a call
    int32_t num_sms = 0;            ///< likewise
    bool accumulate = false;        ///< likewise; needs F32
};

/// Which kernel `gemm` takes and why: JSON text (docs/jit.md gives the fields).
/// `device`: a known device ("h200", "h100", "gh200", "h800", "h20"), or empty for the first GPU, if the driver of
/// Options::from_environment has one and it is a Hopper, else h200.
/// `plan_table`: as Options::plan_table; empty: none, or that of the environment if `device` is empty, too.
/// If `device` is empty, FINEGEMM_BATCH_INVARIANT=1 holds for every shape, as it does for calls that do not say.
/// Throws Error(InvalidArgument), Error(Io) for a table that cannot be read.
FINEGEMM_API std::string explain(const GemmShape& shape, const std::string& device = {},
                                 const std::string& plan_table = {});
/// `explain` for scales of 128x128 blocks of B and D in bf16.
FINEGEMM_API std::string explain(int64_t m, int64_t n, int64_t k, const std::string& device = {},
                                 bool batch_invariant = false, const std::string& plan_table = {});

}  // namespace finegemm
