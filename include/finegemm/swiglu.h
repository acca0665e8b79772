// SwiGLU with quantisation, as between the two products of an expert. Layer: public.
#pragma once

#include <finegemm/gemm.h>

namespace finegemm {

struct SwigluOptions {
    float gate_limit = 0;              ///< of clamps: gates to at most this, ups to at most this magnitude; 0: none
    float gate_alpha = 1;              ///< above 0: the sigmoid is that of so many times the gate
    float up_offset = 0;               ///< is added to ups
    bool interleaved = false;          ///< columns of x: 8 gates, 8 ups in turn; else all gates, then all ups
    bool to_bf16 = false;              ///< values are rounded to bf16 before they are quantised
    bool power_of_two_scales = false;  ///< round each scale up to a power of two (UE8M0 style)
    int32_t num_sms = 0;               ///< as GemmOptions::num_sms
    bool pdl = false;                  ///< as GemmOptions::pdl
    Stream stream = nullptr;           ///< CUDA only
    Poll poll{};                       ///< as GemmOptions::poll
};

struct SwigluArgs {
    ConstStack x;           ///< [M, 2 I] bf16 or f32, contiguous; groups that are stacked: [G, M, 2 I]
    Stack q;                ///< [M, I] e4m3, contiguous, or [G, M, I]
    Stack scales;           ///< [M, ceil(I/128)] f32, strides as of quantize_rows, or [G, M, ceil(I/128)]
    ConstMatrix weights{};  ///< [1, M] f32, any strides, or [G, M]: a factor for each row. Without a pointer: none
    Groups groups{.form = GroupForm::Whole};  ///< rows of no group are neither read nor written. Whole: there are none
                                              ///< such, of one matrix or a stack
};

/// v[m, i] = gate * sigmoid(gate_alpha * gate) * (up + up_offset) * weights[m], of gate = x[m, i] and up = x[m, I + i],
/// which is quantised as by quantize_rows: scales[m, i / 128] = amax / 448, q[m, i] = e4m3(v[m, i] * (1 / scale)).
/// kernels/finegemm/quantize/activation.h has the order of operations, each of which rounds to f32; docs/swiglu.md has
/// the error. CPU and GPU give the same bits.
/// I is a multiple of 16; on CUDA rows of x and q start on multiples of 16 bytes. What is written shares no memory with
/// anything else. Groups' numbers are read when the work is done; Indices: rows of a negative index are of no group.
/// Numbers that break the rules lead to nothing outside of the matrices. NaN of a row stays in the row. Throws Error:
/// InvalidArgument, Unsupported, Driver, Compile.
FINEGEMM_API void swiglu_quantize(Context& context, const SwigluArgs& args, const SwigluOptions& options = {});

}  // namespace finegemm
