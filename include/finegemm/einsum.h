// Batched products by their equations. Layer: public.
#pragma once

#include <string_view>

#include <finegemm/gemm.h>

namespace finegemm {

/// Tensors of three dimensions, each a stack: `count` is the extent of its first letter, rows and columns are those of
/// the others. Strides are any that are not negative, but for what the device asks for: on CUDA those of A, B and D are
/// multiples of 16 bytes, pointers aligned to 16; weights may be slices of wider tensors. D of "bmk,bnk->mn" is one
/// matrix.
struct EinsumArgs {
    ConstStack a;    ///< bf16 or f16; for "bhr,hdr->bhd" e4m3 as well. Its last letter contiguous
    ConstStack sfa;  ///< of e4m3 [b, h, ceil(r/128)] f32; nothing else has scales
    ConstStack b;    ///< of the type of A. Its last letter contiguous, by any of the equations
    ConstStack sfb;  ///< of e4m3 [h, ceil(d/128), ceil(r/128)], or [h, d, ceil(r/128)] for scales of rows
    Stack d;         ///< of the type of A, or f32; of e4m3 as of grouped_gemm. Its last letter contiguous
};

/// D of one of three equations:
/// "bhr,hdr->bhd": D[b, h, d] = sum over r of A[b, h, r] * B[h, d, r], a product for each h
/// "bhd,hdr->bhr": D[b, h, r] = sum over d of A[b, h, d] * B[h, d, r], likewise
/// "bmk,bnk->mn":  D[m, n] = sum over b and k of A[b, m, k] * B[b, n, k]
///
/// The first two are calls of grouped_gemm and keep its rules: h from 1 to 4096, b any value, the other letter of D a
/// multiple of 8 and the one that is summed over a multiple of 8 (e4m3: of 16) and not 0. K is never split: each
/// element is one sum in ascending order, and the bits of a row depend on no other row. C of an epilogue has the shape
/// of D.
///
/// The third cuts b and k, as one range, into pieces of about as many k-blocks of 64, and adds the pieces' sums in
/// their order: the same bits each time (docs/einsum.md). On CUDA the sums lie in memory of the device that the call
/// takes and gives back by its stream's order, [pieces, m, n] in f32. b * k is at most 2^31 - 1, n a multiple of 8,
/// k of 8. With `accumulate` D, of f32, is added to; it has no other epilogue.
///
/// Throws as grouped_gemm does; Error(InvalidArgument) for any other equation.
FINEGEMM_API void einsum(Context& context, std::string_view equation, const EinsumArgs& args,
                         const GemmOptions& options = {});

}  // namespace finegemm
