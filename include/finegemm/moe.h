// A layer of experts as one call: rows of tokens, both products with their activation, weighted sums. Layer: public.
#pragma once

#include <optional>
#include <string>

#include <finegemm/four_bit.h>
#include <finegemm/gemm.h>

namespace finegemm {

/// A layer without its pointers: what its plan and its memory depend on.
struct MoeShape {
    int64_t tokens = 0;        ///< T
    int64_t choices = 1;       ///< k, from 1 to 16, of each token; T * k is at most 2^23
    int64_t hidden = 0;        ///< H, a multiple of 16, up to 2^20
    int64_t intermediate = 0;  ///< I, likewise: pairs of a gate and an up
    int64_t experts = 1;       ///< E that are here, from 1 to 1024
    int64_t rows = 0;          ///< that there is memory for, of all experts together; 0: T * k, which is always enough
    int64_t expected_m = 0;    ///< of an expert, to choose kernels by; 0: as many as there may be, evenly. Set it where
    ///< many ids are those of other devices' experts
    int32_t num_sms = 0;                      ///< as GemmOptions::num_sms
    bool f32_between = false;                 ///< as MoeOptions
    std::optional<bool> fused{};              ///< as MoeOptions
    std::optional<FourBitFormat> four_bit{};  ///< of MoeArgs::gate_up_packed, where it is given
    bool four_bit_alone = false;              ///< weights are not given as FP8, too
    bool biased = false;                      ///< MoeOptions has biases
    bool operator==(const MoeShape&) const = default;
};

struct MoeOptions {
    float gate_limit = 0;              ///< of clamps: gates to at most this, ups to at most this magnitude; 0: none
    float gate_alpha = 1;              ///< above 0: the sigmoid is that of so many times the gate
    float up_offset = 0;               ///< is added to ups
    bool f32_between = false;          ///< gates, ups and what becomes of them are not rounded to bf16; `fused` then
    bool power_of_two_scales = false;  ///< of rows of x and of the activation
    bool weights_first = false;        ///< weights multiply the activation, before it is rounded and quantised, and not
                                       ///< rows of the second product
    /// [E, 2 I] and [E, H] f32 or bf16, columns contiguous, on CUDA in rows of whole 16 bytes; both or neither. The
    /// former is added to gates and ups, in f32 before the clamps, the latter to rows of the second product, before
    /// weights multiply them. The activation has a launch of its own then
    ConstMatrix gate_up_bias{}, down_bias{};
    std::optional<bool> fused{};  ///< the activation is part of the first product's launch, for which I is a multiple
    ///< of 128, or has one of its own. Unset: whichever is expected to be faster. The bits are the same
    int64_t rows = 0;                    ///< as MoeShape
    int64_t expected_m = 0;              ///< as MoeShape
    Numerics numerics = Numerics::Fast;  ///< CPU only: of the products
    int32_t num_sms = 0;                 ///< as GemmOptions::num_sms
    bool pdl = false;                    ///< as GemmOptions::pdl, of the first launch; those behind it always overlap
    std::optional<bool> check_values{};  ///< look for more choices than there are rows, and at weights' scales; unset:
                                         ///< as the context has it
    Stream stream = nullptr;             ///< CUDA only
    Poll poll{};                         ///< as GemmOptions::poll
};

/// T tokens choose k experts each, of which E are here. All on one device.
struct MoeArgs {
    ConstMatrix x;           ///< [T, H] bf16, or e4m3 with scales; columns contiguous, on CUDA rows of whole 16 bytes
    ConstMatrix x_scales{};  ///< [T, ceil(H/128)] f32, any strides, of e4m3; else left out
    ConstMatrix ids;         ///< [T, k] i32 or i64, columns contiguous
    ConstMatrix weights{};   ///< [T, k] f32, columns contiguous; left out: ones
    ConstStack gate_up;      ///< [E, 2 I, H] e4m3 as B of grouped_gemm: rows of gates above those of their ups
    ConstStack gate_up_scales;    ///< [E, ceil(2 I/128), ceil(H/128)] f32: quantize_weights makes both
    ConstStack down;              ///< [E, H, I] e4m3
    ConstStack down_scales;       ///< [E, ceil(H/128), ceil(I/128)] f32
    int64_t first = 0;            ///< id of the first expert here; other ids are those of other devices, or none
    Matrix out;                   ///< [T, H] bf16, columns contiguous
    void* workspace = nullptr;    ///< memory of the device, on CUDA at a multiple of 16; null: the library takes some
    int64_t workspace_bytes = 0;  ///< of it: at least moe_workspace_bytes
    /// Weights of 4 bits, [E, 2 I, H] and [E, H, I], both or neither, both of one format. Those of FP8 may be left out
    /// then; where they are given, too, as unpack_four_bit makes them of Mxfp4, each product takes those with which it
    /// is expected to be faster. The bits are the same
    FourBitWeights gate_up_packed{}, down_packed{};
};

/// out[t] = sum over a token's choices c of weights[t, c] * (down[e] SwiGLU(gate_up[e] x[t] + gate_up_bias[e]) +
/// down_bias[e]), e = ids[t, c], without those that are not here. It is route, permute_quantize, grouped_gemm,
/// swiglu_quantize unless that is `fused`, grouped_gemm and combine, and has their bits, on CPU and GPU; docs/moe.md
/// has the steps. Weights of 4 bits are multiplied by four_bit_gemm, with the activation in a launch of its own, and
/// give the bits of their FP8. A token's bits depend on that token alone. A token without experts becomes zero; one
/// that chooses an expert twice has it twice. NaN of a token or of an expert stays in what that has a part in. Where
/// rows are used up, choices have none, as of `route`. On CUDA the launches are queued and the call does not wait, so
/// that a graph may capture it; rows that no choice has take no time. `out` and the workspace share no memory with
/// anything else. T = 0: nothing is done. Throws Error: InvalidArgument, Unsupported, Driver, Compile, OutOfMemory.
FINEGEMM_API void moe(Context& context, const MoeArgs& args, const MoeOptions& options = {});

/// Memory that a call of this shape takes, whichever way it is computed. Throws Error(InvalidArgument).
FINEGEMM_API int64_t moe_workspace_bytes(const MoeShape& shape);

/// How a GPU computes it and why: JSON text with `launches`, each with its call, `kernel`, predicted `us` and `bytes`
/// that it moves, their sum `us`, `fused`, `why` and `workspace_bytes`. `device`: as of explain(GemmShape).
/// Throws Error(InvalidArgument) for what no call may have.
FINEGEMM_API std::string explain(const MoeShape& shape, const std::string& device = {});

}  // namespace finegemm
