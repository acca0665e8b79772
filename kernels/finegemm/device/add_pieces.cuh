// The kernel that adds up the pieces of a sum over stacks, in their order. Layer device.
#pragma once

#include <finegemm/core/fp8.h>
#include <finegemm/gemm/add_pieces.h>
#include <finegemm/gemm/store_layout.h>
#include <finegemm/device/ptx/convert.cuh>

namespace finegemm::device {

/// Pieces whose sums a thread asks for before it adds them: an answer from L2 takes about a microsecond.
inline constexpr uint32_t kPiecesInFlight = 12;

/// Pieces of one row of D, a thread for four columns. N is a multiple of 8: all of them exist, or none.
template <AddPiecesConfig C>
__device__ void add_pieces(const AddPiecesParams& p) {
    constexpr uint32_t kCols = C.columns();
    static_assert(kCols == 4, "16 bytes of f32");
    const uint32_t row = p.ctas_of_row.quotient(blockIdx.x), cta = blockIdx.x - row * p.ctas_of_row.divisor;
    const uint32_t col = (cta * C.threads() + threadIdx.x) * kCols;
    if (col >= p.n) return;
    const uint64_t apart = static_cast<uint64_t>(p.m) * p.n;
    const float* from = p.sums + static_cast<uint64_t>(row) * p.n + col;
    uint8_t* const to = static_cast<uint8_t*>(p.d) + (row * p.d_row_stride + col) * bytes_of(C.output);
    const bool adds = C.output == Output::F32 && p.accumulate;
    const ptx::Words4 old = ptx::load_global_x4_if(adds, to);
    float sum[kCols] = {};
#pragma unroll 1
    for (uint32_t first = 0; first < p.pieces; first += kPiecesInFlight, from += kPiecesInFlight * apart) {
        ptx::Words4 next[kPiecesInFlight];
#pragma unroll
        for (uint32_t j = 0; j < kPiecesInFlight; ++j)
            next[j] = ptx::load_global_x4_if(first + j < p.pieces, from + j * apart);
#pragma unroll
        for (uint32_t j = 0; j < kPiecesInFlight; ++j)
#pragma unroll
            for (uint32_t i = 0; i < kCols; ++i)
                if (first + j < p.pieces) sum[i] += float_of_bits(next[j].w[i]);
    }
#pragma unroll
    for (uint32_t i = 0; i < kCols; ++i)
        if (adds) sum[i] = ptx::add_ftz(float_of_bits(old.w[i]), sum[i]);
    const auto pack = [](float low, float high) {
        return C.output == Output::F16 ? ptx::pack_f16(low, high) : ptx::pack_bf16(low, high);
    };
    if (C.output == Output::F32)
        ptx::store_global_x4(to, {float_bits(sum[0]), float_bits(sum[1]), float_bits(sum[2]), float_bits(sum[3])});
    else ptx::store_global_x2_if(true, to, pack(sum[0], sum[1]), pack(sum[2], sum[3]));
}

}  // namespace finegemm::device
