// The main loop of decoded operands: B comes to the tensor cores from registers, A from shared memory, both in f16 and
// with their scales over the largest ones of a k-block, by which its product is promoted. Layer device.
#pragma once

#include <finegemm/device/mma/consumer.cuh>
#include <finegemm/device/mma/decode.cuh>

namespace finegemm::device {

/// Half a k-block of a thread's rows of B as wgmma's A: four registers for each 16 of K.
using DecodedHalf = uint32_t[16];
/// Rows by which WGMMAs of a tile differ that lacks some.
inline constexpr uint32_t kDecodedStep = 32;

/// Where a thread's codes of B and their factors lie in a stage; and the factors of a k-block.
template <GemmConfig C>
struct DecodedB {
    uint32_t codes, factors;
    bool odd;  // the thread's sixteen codes are of the second 32 of K in each half
    ptx::Words4 upper, lower;

    __device__ explicit DecodedB(uint32_t warpgroup) {
        const uint32_t thread = threadIdx.x % 128, of_four = thread % 4;
        const uint32_t row = swapped_part_of(C, warpgroup) * 64 + swapped_col(C, wgmma_accumulator(thread, 0).row);
        codes = mx_codes_at(row, of_four);
        factors = row * kMxScaleBytes;
        odd = of_four >= 2;
        ptx::pin(codes);
        ptx::pin(factors);
    }
    __device__ void load_factors(const Shared<C>& smem, uint32_t stage) {
        upper = ptx::load_shared_words_x4(smem.sfb(stage) + factors);
        lower = ptx::load_shared_words_x4(smem.sfb(stage) + (factors + kLowerRows * kMxScaleBytes));
    }
    __device__ float largest_of_upper() const { return float_of_bits(upper.w[2]); }
    __device__ float largest_of_lower() const { return float_of_bits(lower.w[2]); }

    template <uint32_t Half>
    __device__ void decode(DecodedHalf& a, const Shared<C>& smem, uint32_t stage) const {
        const SmemAddr from = smem.b(stage) + (codes ^ Half * 64);
        const ptx::Words4 of_upper = ptx::load_shared_words_x4(from),
                          of_lower = ptx::load_shared_words_x4(from + kLowerRows * kRowBytes);
        const uint32_t upper_factor = ptx::both_of_half(upper.w[Half], odd),
                       lower_factor = ptx::both_of_half(lower.w[Half], odd);
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            decode_codes(a[4 * i], a[4 * i + 2], of_upper.w[i], upper_factor);
            decode_codes(a[4 * i + 1], a[4 * i + 3], of_lower.w[i], lower_factor);
        }
    }

private:
    static constexpr uint32_t kLowerRows = 8;  // from a thread's upper row to its lower one
};

/// Starts the products of half a k-block with the first `Rows` rows of a tile; the second half's are added.
template <uint32_t Half, uint32_t Rows, GemmConfig C>
__device__ inline void start_decoded(float (&product)[Rows / 2], const DecodedHalf& a, const Shared<C>& smem,
                                     uint32_t stage) {
    const uint32_t b = wgmma_descriptor_low(smem.a(stage).bits + Half * (smem.kAt.a_stage / 2));
    ptx::wgmma_fence();
    if (Half == 0) ptx::wgmma_k64_f16_of_registers(product, a, b);
    else ptx::add_wgmma_k64_f16_of_registers(product, a, b);
    ptx::wgmma_commit_group();
}

/// sum += product * (largest of B's row * largest of A's row), once the product has finished.
template <uint32_t Rows, GemmConfig C>
__device__ inline void promote_decoded(float (&sum)[Rows / 2], float (&product)[Rows / 2], float upper, float lower,
                                       SmemAddr largest_of_a) {
#pragma unroll
    for (uint32_t r = 0; r < Rows / 2; ++r) ptx::pin(product[r]);
#pragma unroll
    for (uint32_t r = 0; r < Rows / 2; r += 4) {
        const ptx::Float2 a = ptx::load_shared_x2(largest_of_a + r * 8);
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i) {
            sum[r + i] = ptx::fma(product[r + i], upper * a.part[i], sum[r + i]);
            sum[r + 2 + i] = ptx::fma(product[r + 2 + i], lower * a.part[i], sum[r + 2 + i]);
        }
    }
}

/// The sums of a tile that has at most `Rows` rows. Each half of a k-block is decoded while the tensor cores multiply
/// the one before it. How many rows a WGMMA has is part of the instruction: there is a loop for each number.
template <uint32_t Rows, GemmConfig C, typename Tiles>
__device__ void multiply_decoded(Accumulator<C>& acc, const Consumer<C>& consumer, DecodedB<C>& b,
                                 KBlockIterator<C, Tiles>& blocks) {
    if (Rows < C.tile_m && blocks.tile.rows > Rows)
        return multiply_decoded<min(Rows + kDecodedStep, C.tile_m)>(acc, consumer, b, blocks);
    auto& sum = reinterpret_cast<float (&)[Rows / 2]>(acc.sum[0]);
    const Shared<C>& smem = consumer.smem;
    const uint32_t col = wgmma_accumulator(threadIdx.x % 128, 0).col;
    DecodedHalf first, second;
    float product[Rows / 2];
    acc.clear();
    wait(smem.full(blocks.at.stage), blocks.at.parity);
    b.load_factors(smem, blocks.at.stage);
    b.template decode<0>(first, smem, blocks.at.stage);
#pragma unroll 1
    for (bool more = true; more;) {
        const uint32_t stage = blocks.at.stage;
        start_decoded<0, Rows>(product, first, smem, stage);
        b.template decode<1>(second, smem, stage);
        start_decoded<1, Rows>(product, second, smem, stage);
        const float upper = b.largest_of_upper(), lower = b.largest_of_lower();
        more = !blocks.last_of_tile();
        if (more) {
            blocks.next();
            wait(smem.full(blocks.at.stage), blocks.at.parity);
            b.load_factors(smem, blocks.at.stage);
        }
        ptx::wgmma_wait_group<1>();
        if (more) b.template decode<0>(first, smem, blocks.at.stage);
        ptx::wgmma_wait_group<0>();
        promote_decoded<Rows, C>(sum, product, upper, lower, smem.largest_of_a(stage) + col * 4);
        consumer.release(stage);
    }
}

template <GemmConfig C, TileSource<C> Tiles, TileEpilogue<C> Epilogue>
__device__ void mainloop_decoded(const Consumer<C>& consumer, KBlockIterator<C, Tiles>& blocks, Epilogue&& epilogue) {
    constexpr uint32_t kLeast = Tiles::ragged() ? kDecodedStep : C.tile_m;  // rows of one product are seldom fewer
    DecodedB<C> b(consumer.warpgroup);
    Accumulator<C> acc;
    do {
        const Tile tile = blocks.tile;
        multiply_decoded<kLeast>(acc, consumer, b, blocks);
        epilogue(acc, tile);
    } while (blocks.next());
}

}  // namespace finegemm::device
