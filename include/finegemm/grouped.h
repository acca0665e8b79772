// The grouped FP8 GEMM of mixtures of experts: groups share N and K, each has weights and a number of rows of its own.
// Layer: public.
#pragma once

#include <cstdint>
#include <string>

#include <finegemm/context.h>
#include <finegemm/gemm.h>
#include <finegemm/tensor.h>

namespace finegemm {

/// Meaning of the numbers in `Groups::data`.
enum class GroupForm : int32_t {
    Offsets = 1,     ///< [G + 1], ascending: group g has rows data[g] up to data[g + 1]; any numbers, 0 too
    Indices = 2,     ///< [M]: the group of each row, -1 for padding. Groups begin at multiples of `alignment` and have
                     ///< their padding behind their rows. Rows of D for padding become zero
    PrefixSums = 3,  ///< [G]: group g ends at row data[g]; it begins at the next multiple of `alignment` after the one
                     ///< before. The rows between are neither read nor written
    Masked = 4,      ///< [G]: A, sfa and D are stacks of G matrices of M rows, of which the first data[g] are used.
                     ///< The rows behind them are neither read nor written
};

/// Which rows belong to which group. The numbers are on the device of D and are read by the kernel, so that they may
/// be the result of work queued before it. Numbers that break the rules never lead outside of the matrices;
/// GemmOptions::check_values finds them first.
struct Groups {
    GroupForm form = GroupForm::Offsets;
    const int32_t* data = nullptr;
    int64_t size = 0;         ///< of data
    int64_t alignment = 128;  ///< of Indices and PrefixSums; a power of two from 1 (Indices: from 64) to 2^30
    int64_t expected_m = 0;   ///< of a group, to choose the kernel by; 0: M / G, and M for Masked
    Device device{};
};

/// `count` matrices of one shape; `stride`: elements from one to the next.
struct ConstStack {
    ConstMatrix matrix;
    int64_t count = 1;
    int64_t stride = 0;
};

/// A writable stack.
struct Stack {
    Matrix matrix;
    int64_t count = 1;
    int64_t stride = 0;
    operator ConstStack() const { return {matrix, count, stride}; }
};

/// D[m, n] = sum over k of (A[m, k] * sfa[m, k / 128]) * (B[g, n, k] * sfb[g, n / 128, k / 128]), g the group of row m.
/// Matrices have the layouts that GemmArgs asks for; strides of stacks of A, B and D are multiples of 16 bytes.
struct GroupedGemmArgs {
    ConstStack a;    ///< [M, K] e4m3; Masked: [G, M, K]
    ConstStack sfa;  ///< [M, ceil(K/128)] f32; Masked: [G, M, ceil(K/128)]
    ConstStack b;    ///< [G, N, K] e4m3
    ConstStack sfb;  ///< [G, ceil(N/128), ceil(K/128)] f32
    Stack d;         ///< [M, N] bf16; Masked: [G, M, N]
    Groups groups;
};

/// G from 1 to 1024, M any value and no promise about how much of it is used, N a multiple of 8, K a multiple of 16 and
/// not 0. M = 0 or N = 0 does nothing. Rows of D that belong to no group are not written, except that Indices makes
/// them zero. Otherwise as `gemm`; `options.batch_invariant` changes nothing, as it holds always.
FINEGEMM_API void grouped_gemm(Context& context, const GroupedGemmArgs& args, const GemmOptions& options = {});

/// A grouped product as far as the host knows it.
struct GroupedShape {
    int64_t m = 0;  ///< rows of all groups together, as many as there may be; for Masked G times M
    int64_t n = 0, k = 0;
    int64_t groups = 1;
    int64_t expected_m = 0;  ///< as Groups::expected_m
    int64_t alignment = 0;   ///< Groups::alignment of Indices; 0 for other forms, whose kernels do not depend on it
    int32_t num_sms = 0;     ///< as the option of a call
};

/// Which kernel `grouped_gemm` takes and why: `explain` of gemm.h for groups.
FINEGEMM_API std::string explain(const GroupedShape& shape, const std::string& device = {},
                                 const std::string& plan_table = {});

}  // namespace finegemm
