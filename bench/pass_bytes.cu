// Passes over memory without arithmetic: packing of scales and quantisation of columns, as threads of the library's
// kernels load and store, 16 bytes at a time in the same order, but with words stored as they were loaded, without
// shared memory, barriers and searches. pass_bytes.py times them beside the library's kernels:
//     nvcc -std=c++20 -O3 -gencode=arch=compute_90a,code=sm_90a -Ikernels -shared -Xcompiler -fPIC bench/pass_bytes.cu
// Layer bench.
#include <finegemm/quantize/columns.h>
#include <finegemm/device/quantize.cuh>

#include "probes/probe.cuh"

namespace probe {

/// Rows of 16 bytes a lane become words below each other: four rows of a word in each thread, as in pack_fours.
__global__ void __launch_bounds__(256, 8)
    pack_rows(const uint8_t* in, uint8_t* out, uint32_t rows, uint32_t words, uint32_t lanes, uint32_t across) {
    const uint32_t right = blockIdx.x % across, down = blockIdx.x / across, lane = threadIdx.x & (lanes - 1);
    const uint32_t word = right * lanes + lane, row = (down * blockDim.x + threadIdx.x - lane) / lanes * 4;
    if (word >= words || row >= rows) return;
    ptx::Words4 v;
#pragma unroll
    for (uint32_t r = 0; r < 4; ++r) {
        const ptx::Words4 four = ptx::load_global_once(in + (uint64_t{row + r} * words + word) * 16);
        v.w[r] = four.w[0] ^ four.w[1] ^ four.w[2] ^ four.w[3];
    }
    ptx::store_global_x4_if(true, out + (uint64_t{word} * rows + row) * 4, v);
}

inline constexpr QuantizeConfig kTile{QuantizeInput::BF16, true, QuantizeCodes::E4M3};

/// A tile of x and where it goes. Groups have `each` rows.
__device__ void move_tile(const QuantizeColumnsParams& p, uint32_t each, uint32_t down, uint32_t right) {
    constexpr QuantizeConfig C = kTile;
    using Loaded = device::Values<kTile>;
    const uint32_t end = p.rows.rows;  // tiles behind the last group have no rows
    const RowRange group{finegemm::min(down * each, end), finegemm::min((down + 1) * each, end)};
    const RowRange rows = p.groups.groups > 0 ? rows_of_block(group, 0) : rows_of_block({0, p.rows.rows}, down);
    const RowCol mine = C.origin(threadIdx.x);
    const uint32_t left = rows.size() - finegemm::min(mine.row, rows.size()), col = right * kScaleBlock + mine.col;
    const uint64_t row = rows.begin + mine.row;
    Loaded values[C.kTileRows];
#pragma unroll
    for (uint32_t u = 0; u < C.kTileRows; ++u)
        if (u < left) values[u].load(p.rows, row + u, col);
        else values[u].clear();
    if (p.rows.q) {
#pragma unroll
        for (uint32_t u = 0; u < C.kTileRows; ++u) {
            const ptx::Words4& v = values[u].words;
            Loaded::store_if(u < left, p.rows.q + (row + u) * p.rows.q_row_stride + col,
                             {{v.w[0] ^ v.w[1], v.w[2] ^ v.w[3]}});
        }
        const uint32_t lane = threadIdx.x % C.lanes();
        if (lane < finegemm::min(left, C.kTileRows))
            ptx::store_global(p.rows.scales + row + lane + right * p.rows.scale_col_stride,
                              float_of_bits(values[0].words.w[0]));
    }
    constexpr uint32_t kAcross = kScaleBlock / 16;
#pragma unroll
    for (uint32_t u = 0; u < 4; ++u) {
        const uint32_t i = threadIdx.x + u * C.threads();
        ptx::store_global_x4_if(
            true,
            p.q + uint64_t{right * kScaleBlock + i / kAcross} * p.q_row_stride + down * kScaleBlock + i % kAcross * 16,
            {{values[u].words.w[0], values[u].words.w[1], values[u + 4].words.w[0], values[u + 4].words.w[1]}});
    }
    if (threadIdx.x < kScaleBlock)
        ptx::store_global(p.scales + right * kScaleBlock + threadIdx.x + down * p.scale_col_stride,
                          float_of_bits(values[1].words.w[0]));
}

__global__ void __launch_bounds__(256, 4)
    quantize_columns(const __grid_constant__ QuantizeColumnsParams p, uint32_t each) {
    const uint32_t in_turn = p.rows.q ? p.tiles_across() : p.tiles_down();
    const uint32_t slow = blockIdx.x / in_turn, fast = blockIdx.x % in_turn;
    move_tile(p, each, p.rows.q ? slow : fast, p.rows.q ? fast : slow);
}

}  // namespace probe

/// `in`: [rows, 4 words] of 32 bits; `out`: [words, rows].
extern "C" void pack_rows(const void* in, void* out, uint32_t rows, uint32_t words, cudaStream_t stream) {
    using namespace finegemm;
    uint32_t lanes = 4;
    while (lanes < words && lanes < 16) lanes *= 2;
    const uint32_t across = ceil_div(words, lanes), down = ceil_div(rows, 4 * 256 / lanes);
    probe::pack_rows<<<across * down, 256, 0, stream>>>(static_cast<const uint8_t*>(in), static_cast<uint8_t*>(out),
                                                        rows, words, lanes, across);
    CHECK(cudaGetLastError());
}

/// `x`: [rows, cols] of bf16; `q`: [cols, columns] of bytes; `row_q`: [rows, cols] of bytes, or null; scales with rows
/// contiguous. `groups`: of as many rows each, at most 128, or 0. Sizes are multiples of 128, but for rows of groups.
extern "C" void quantize_columns(const void* x, uint8_t* q, float* scales, uint8_t* row_q, float* row_scales,
                                 uint32_t rows, uint32_t cols, uint32_t columns, uint32_t groups, cudaStream_t stream) {
    using namespace finegemm;
    QuantizeColumnsParams p{};
    p.rows.x = x, p.rows.q = row_q, p.rows.scales = row_scales, p.rows.rows = rows, p.rows.cols = cols;
    p.rows.x_row_stride = p.rows.q_row_stride = cols, p.rows.scale_row_stride = 1, p.rows.scale_col_stride = rows;
    p.q = q, p.scales = scales, p.q_row_stride = p.cols = columns;
    p.scale_row_stride = 1, p.scale_col_stride = cols, p.cta_tiles = 1;
    p.groups.groups = groups;
    const uint32_t each = groups > 0 ? rows / groups : rows;
    probe::quantize_columns<<<static_cast<uint32_t>(p.parts()), probe::kTile.threads(), 0, stream>>>(p, each);
    CHECK(cudaGetLastError());
}
