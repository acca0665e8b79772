// The main loop of decoded operands: B comes to the tensor cores from registers, A in bf16 from shared memory.
// Layer device.
#pragma once

#include <finegemm/device/mma/consumer.cuh>
#include <finegemm/device/mma/decode.cuh>

namespace finegemm::device {

/// Where a thread's codes of B and their factors lie in a stage.
template <GemmConfig C>
struct DecodedB {
    uint32_t codes, factors;

    __device__ explicit DecodedB(uint32_t warpgroup) {
        const uint32_t thread = threadIdx.x % 128, of_four = thread % 4;
        const uint32_t row = row_part_of(C, warpgroup) * 64 + mx_row_of_b(wgmma_accumulator(thread, 0).row);
        codes = mx_codes_at(row, of_four);
        factors = row * kMxScaleBytes + of_four / 2 * 4;
        ptx::pin(codes);
        ptx::pin(factors);
    }

    /// Half a k-block of 64 rows as wgmma's A: four registers for each 16 of K, of the thread's upper and lower rows in
    /// turn.
    template <uint32_t Half>
    __device__ void decode(uint32_t (&a)[16], const Shared<C>& smem, uint32_t stage) const {
        constexpr uint32_t kLower = 8;  // rows
        const SmemAddr from = smem.b(stage) + (codes ^ Half * 64), scales = smem.sfb(stage) + (factors + Half * 8);
        const ptx::Words4 upper = ptx::load_shared_words_x4(from), lower = ptx::load_shared_words_x4(from + kLower * 128);
        const uint32_t of_upper = ptx::load_shared_word(scales),
                       of_lower = ptx::load_shared_word(scales + kLower * kMxScaleBytes);
        uint32_t found = 0;
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            found |= decode_codes(a[4 * i], a[4 * i + 2], upper.w[i], of_upper);
            found |= decode_codes(a[4 * i + 1], a[4 * i + 3], lower.w[i], of_lower);
        }
        if (is_unusual(found, of_upper | of_lower)) {
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i) {
                decode_unusual(a[4 * i], a[4 * i + 2], upper.w[i], of_upper);
                decode_unusual(a[4 * i + 1], a[4 * i + 3], lower.w[i], of_lower);
            }
        }
    }
};

/// Starts the products of half a k-block.
template <uint32_t Half, uint32_t Rows, GemmConfig C>
__device__ inline void start_decoded(float (&sum)[Rows / 2], const uint32_t (&a)[16], const Shared<C>& smem,
                                     uint32_t stage, bool add) {
    const uint32_t b = wgmma_descriptor_low(smem.a(stage).bits + Half * (smem.kAt.a_stage / 2));
    ptx::wgmma_fence();
    ptx::wgmma_k64_bf16_of_registers(sum, a, b, add);
    ptx::wgmma_commit_group();
}

/// The sums of a tile that has at most `Rows` rows. Each half of a k-block is decoded while the tensor cores multiply
/// the one before it.
template <uint32_t Rows, GemmConfig C, typename Tiles>
__device__ void multiply_decoded(Accumulator<C>& acc, const Consumer<C>& consumer, const DecodedB<C>& b,
                                 KBlockIterator<C, Tiles>& blocks) {
    if (Rows < C.tile_m && blocks.tile.rows > Rows)
        return multiply_decoded<min(2 * Rows, C.tile_m)>(acc, consumer, b, blocks);
    auto& sum = reinterpret_cast<float (&)[Rows / 2]>(acc.sum[0]);
    const Shared<C>& smem = consumer.smem;
    uint32_t first[16], second[16];
    wait(smem.full(blocks.at.stage), blocks.at.parity);
    b.template decode<0>(first, smem, blocks.at.stage);
    bool add = false;
#pragma unroll 1
    for (bool more = true; more; add = true) {
        const uint32_t stage = blocks.at.stage;
        start_decoded<0, Rows>(sum, first, smem, stage, add);
        b.template decode<1>(second, smem, stage);
        start_decoded<1, Rows>(sum, second, smem, stage, true);
        more = !blocks.last_of_tile();
        if (more) {
            blocks.next();
            wait(smem.full(blocks.at.stage), blocks.at.parity);
        }
        ptx::wgmma_wait_group<1>();
        if (more) b.template decode<0>(first, smem, blocks.at.stage);
        ptx::wgmma_wait_group<0>();
        consumer.release(stage);
    }
#pragma unroll
    for (uint32_t r = 0; r < Rows / 2; ++r) ptx::pin(sum[r]);
}

template <GemmConfig C, TileSource<C> Tiles, TileEpilogue<C> Epilogue>
__device__ void mainloop_decoded(const Consumer<C>& consumer, KBlockIterator<C, Tiles>& blocks, Epilogue&& epilogue) {
    constexpr uint32_t kLeast = Tiles::ragged() ? 16 : C.tile_m;  // rows of a tile of one product are a few at most
    const DecodedB<C> b(consumer.warpgroup);
    Accumulator<C> acc;
    do {
        const Tile tile = blocks.tile;
        multiply_decoded<kLeast>(acc, consumer, b, blocks);
        epilogue(acc, tile);
    } while (blocks.next());
}

}  // namespace finegemm::device
