// The K-grouped FP8 GEMM of gradients of weights: groups share M and N, each has a part of K and a D of its own.
// Layer: public.
#pragma once

#include <cstdint>

#include <finegemm/context.h>
#include <finegemm/gemm.h>
#include <finegemm/grouped.h>
#include <finegemm/tensor.h>

namespace finegemm {

/// D[g, m, n] = sum over the k of group g of (A[m, k] * sfa[m, k / 128]) * (B[n, k] * sfb[n, k / 128])
/// Matrices have the layouts that GemmArgs asks for; the stride of D from matrix to matrix is a multiple of 4.
/// Groups lie side by side in A and B; groups with an A and a B of their own are not supported.
struct KGroupedGemmArgs {
    ConstMatrix a;      ///< [M, K] e4m3, the k of all groups together
    ConstMatrix sfa;    ///< [M, K/128] f32, any strides
    ConstMatrix b;      ///< [N, K] e4m3
    ConstMatrix sfb;    ///< [N, K/128] f32, any strides
    Stack d;            ///< [G, M, N] f32
    /// [G + 1], ascending, multiples of 128: group g has the k from offsets[g] up to offsets[g + 1]. They are on the
    /// device of D and are read by the kernel, so that they may be the result of work queued before it. Numbers that
    /// break the rules never lead outside of the matrices; GemmOptions::check_values finds them first.
    const int32_t* offsets = nullptr;
    int64_t groups = 0;        ///< G
    Device offsets_device{};
};

/// G from 1 to 1024, M any value, N a multiple of 8, K a multiple of 128. M = 0 or N = 0 does nothing. D of a group
/// without k becomes zero, or stays as it is if `options.accumulate` is set. Otherwise as `gemm`;
/// `options.batch_invariant` changes nothing, as it holds always.
FINEGEMM_API void k_grouped_gemm(Context& context, const KGroupedGemmArgs& args, const GemmOptions& options = {});

}  // namespace finegemm
