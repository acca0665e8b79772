// The kernel that adds up the pieces of a sum over stacks, in their order. Layer device.
#pragma once

#include <finegemm/core/fp8.h>
#include <finegemm/gemm/add_pieces.h>
#include <finegemm/gemm/store_layout.h>
#include <finegemm/device/ptx/convert.cuh>

namespace finegemm::device {

/// Pieces whose sums a thread asks for before it adds them: an answer from L2 takes about a microsecond.
inline constexpr uint32_t kPiecesInFlight = 16;

/// A thread for each element of D.
template <AddPiecesConfig C>
__device__ void add_pieces(const AddPiecesParams& p) {
    const uint64_t i = blockIdx.x * static_cast<uint64_t>(C.threads()) + threadIdx.x, row = i / p.n, col = i % p.n;
    const uint64_t apart = static_cast<uint64_t>(p.m) * p.n;
    if (row >= p.m) return;
    uint8_t* const to = static_cast<uint8_t*>(p.d) + (row * p.d_row_stride + col) * bytes_of(C.output);
    const bool adds = C.output == Output::F32 && p.accumulate;
    const float old = float_of_bits(ptx::load_global_if(adds, to));
    float sum = 0;
#pragma unroll 1
    for (uint32_t first = 0; first < p.pieces; first += kPiecesInFlight) {
        float next[kPiecesInFlight];
#pragma unroll
        for (uint32_t j = 0; j < kPiecesInFlight; ++j)
            next[j] = float_of_bits(
                ptx::load_global_if(first + j < p.pieces, p.sums + static_cast<uint64_t>(first + j) * apart + i));
#pragma unroll
        for (uint32_t j = 0; j < kPiecesInFlight; ++j)
            if (first + j < p.pieces) sum += next[j];
    }
    if (adds) sum = ptx::add_ftz(old, sum);
    ptx::store_global_if(C.output == Output::F32, to, float_bits(sum));
    const uint32_t half = C.output == Output::F16 ? ptx::pack_f16(sum, 0) : ptx::pack_bf16(sum, 0);
    ptx::store_global_half_if(C.output != Output::F32, to, static_cast<uint16_t>(half));
}

}  // namespace finegemm::device
