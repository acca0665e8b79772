// The K-grouped FP8 GEMM of gradients of weights: groups share M and N, each has a part of K and a D of its own.
// Layer: public.
#pragma once

#include <cstdint>
#include <string>

#include <finegemm/context.h>
#include <finegemm/gemm.h>
#include <finegemm/grouped.h>
#include <finegemm/tensor.h>

namespace finegemm {

/// Layout of the groups' parts of A and B in memory. The values are part of the C ABI.
enum class KLayout : int32_t {
    Columns = 0,  ///< side by side: A is [M, K] and B [N, K], and a group has some columns of them
    Blocks = 1,   ///< one behind the other: group g has an A [M, k_g] and a B [N, k_g] of its own, k_g = offsets[g+1]
                  ///< - offsets[g], row-major without gaps, which begin M * offsets[g] and N * offsets[g] elements
                  ///< behind the pointers of `a` and `b`
};

/// D[g, m, n] = sum over the k of group g of (A[m, k] * sfa[m, k / 128]) * (B[n, k] * sfb[n, k / 128])
/// Matrices have the layouts that GemmArgs asks for; the stride of D from matrix to matrix is a multiple of 4.
struct KGroupedGemmArgs {
    ConstMatrix a;    ///< [M, K] e4m3, the k of all groups together; Blocks: row stride K, as it has no gaps
    ConstMatrix sfa;  ///< [M, K/128] f32, any strides, in both layouts
    ConstMatrix b;    ///< [N, K] e4m3, as A
    ConstMatrix sfb;  ///< [N, K/128] f32, as sfa
    Stack d;          ///< [G, M, N] f32
    /// [G + 1], ascending, multiples of 128, at most K: group g has the k from offsets[g] up to offsets[g + 1].
    /// On the device of D they are read by the kernel, so that they may be the result of work queued before it. Numbers
    /// that break the rules never lead outside of the matrices then; GemmOptions::check_values finds them first.
    /// On the CPU they are read and checked by the call; a CUDA graph that captures it keeps them. Blocks needs this.
    const int32_t* offsets = nullptr;
    int64_t groups = 0;       ///< G
    Device offsets_device{};  ///< that of D, or the CPU
    KLayout layout = KLayout::Columns;
};

/// G from 1 to 1024, M any value, N a multiple of 8, K a multiple of 128. M = 0 or N = 0 does nothing. D of a group
/// without k becomes zero, or stays as it is if `options.accumulate` is set. Otherwise as `gemm`.
FINEGEMM_API void k_grouped_gemm(Context& context, const KGroupedGemmArgs& args, const GemmOptions& options = {});

/// A K-grouped product as far as the host knows it.
struct KGroupedShape {
    int64_t m = 0, n = 0;
    int64_t k = 0;  ///< of all groups together, a multiple of 128
    int64_t groups = 1;
    bool batch_invariant = false;  ///< as the option of a call
    int32_t num_sms = 0;           ///< likewise
    bool accumulate = false;       ///< likewise
};

/// Which kernel `k_grouped_gemm` takes and why: `explain` of gemm.h for groups of K.
FINEGEMM_API std::string explain(const KGroupedShape& shape, const std::string& device = {},
                                 const std::string& plan_table = {});

}  // namespace finegemm
