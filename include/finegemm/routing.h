// Routing of tokens to experts: which row each choice of a token has, rows that are filled and quantised, and their
// weighted sums. Layer: public.
#pragma once

#include <optional>

#include <finegemm/gemm.h>

namespace finegemm {

struct RouteOptions {
    Stream stream = nullptr;             ///< CUDA only
    bool pdl = false;                    ///< as GemmOptions::pdl
    std::optional<bool> check_values{};  ///< look for more choices than there are rows; unset: as the context has it
    Poll poll{};                         ///< as GemmOptions::poll
};

/// T tokens choose k experts each. Rows of an expert lie together, in the order of tokens and of a token's choices.
struct RouteArgs {
    ConstMatrix ids;       ///< [T, k] i32 or i64, columns contiguous; k from 1 to 16, T * k at most 2^23
    Matrix inverse;        ///< [T, k] i32, columns contiguous: the row of each choice, of Masked g * `rows` + its row
                           ///< of group g; -1 for an id that is none of the experts', or where rows are used up
    Matrix numbers;        ///< [1, n] i32: of groups, as `form` has them (Groups): n is E + 1 for Offsets, `rows` for
                           ///< Indices and E for PrefixSums and Masked
    Matrix permutation{};  ///< [1, `rows`], of Masked [E, `rows`], i32, contiguous: token * k + choice of each row, -1
                           ///< for padding. Rows of Masked behind those of a group are not written. May be left out
    GroupForm form = GroupForm::PrefixSums;
    int64_t experts = 1;      ///< E, from 1 to 1024
    int64_t first = 0;        ///< id of the first of these; other ids are those of other devices, or none
    int64_t rows = 0;         ///< that there are, from 1; of Masked for each group, and E * `rows` at most 2^31 - 1
    int64_t alignment = 128;  ///< of Indices and PrefixSums: groups begin at multiples of it; a power of two from 1
                              ///< (Indices: from 64) to 2^20
};

/// Writes all of `inverse`, `numbers` and `permutation`, from T = 0 on. The result depends on the ids alone: there is
/// nothing random in the order. What does not fit `rows` is left out, and numbers of groups end with `rows`;
/// `check_values` finds it first. An expert that a token chooses twice has two rows of it. On CUDA the work is queued,
/// one launch whatever T is, and the call does not wait. CPU and GPU give the same. Throws Error: InvalidArgument,
/// Unsupported, Driver, Compile.
FINEGEMM_API void route(Context& context, const RouteArgs& args, const RouteOptions& options = {});

struct PermuteOptions {
    bool power_of_two_scales = false;    ///< as QuantizeOptions
    Stream stream = nullptr;             ///< CUDA only
    int32_t num_sms = 0;                 ///< as GemmOptions::num_sms
    bool pdl = false;                    ///< as GemmOptions::pdl
    std::optional<bool> check_values{};  ///< look for rows that do not exist, or that two choices have
    Poll poll{};                         ///< as GemmOptions::poll
};

/// Rows of q are those of the tokens that chose them: of bf16 as quantize_rows makes them where q is e4m3, else as they
/// are, with their scales.
struct PermuteQuantizeArgs {
    ConstMatrix x;           ///< [T, H] bf16, f16, e4m3, e5m2 or i8, columns contiguous, rows of a multiple of 16 bytes
    ConstMatrix x_scales{};  ///< [T, ceil(H/128)] f32, any strides, of e4m3, e5m2 and i8; else left out
    ConstMatrix inverse;     ///< [T, k] i32, what `route` writes
    Stack q;                 ///< [R, H], or [E, R, H] of Masked: e4m3 of bf16, or the type of x
    Stack scales{};          ///< [R, ceil(H/128)] f32, or [E, R, ceil(H/128)], any strides; left out where q has none
};

/// A token is read, and quantised, once; one that has no row here is not read. Rows that no token has, padding and
/// unused capacity, are neither read nor written. On CUDA addresses and rows of x and q are multiples of 16 bytes. Rows
/// that are not there are ignored. CPU and GPU give the same bits. Throws Error as `route`.
FINEGEMM_API void permute_quantize(Context& context, const PermuteQuantizeArgs& args,
                                   const PermuteOptions& options = {});

struct CombineOptions {
    Stream stream = nullptr;             ///< CUDA only
    int32_t num_sms = 0;                 ///< as GemmOptions::num_sms
    bool pdl = false;                    ///< as GemmOptions::pdl
    std::optional<bool> check_values{};  ///< look for rows that do not exist
    Poll poll{};                         ///< as GemmOptions::poll
};

/// out[t] = sum over a token's choices c, in their order, of weights[t, c] * y[inverse[t, c]], without those that have
/// no row. Products and sums are FP32, each rounded; the sum begins with 0 and is rounded once to bf16.
struct CombineArgs {
    ConstStack y;           ///< [R, H], or [E, R, H] of Masked: bf16, columns contiguous, H a multiple of 8
    ConstMatrix inverse;    ///< [T, k] i32, what `route` writes
    ConstMatrix weights{};  ///< [T, k] f32, columns contiguous; left out: ones
    Matrix out;             ///< [T, H] bf16, columns contiguous
};

/// Rows that no token has may hold anything, NaN, too. A token without rows becomes zero. On CUDA addresses and rows of
/// y and out are multiples of 16 bytes. CPU and GPU give the same bits. Throws Error as `route`.
FINEGEMM_API void combine(Context& context, const CombineArgs& args, const CombineOptions& options = {});

}  // namespace finegemm
