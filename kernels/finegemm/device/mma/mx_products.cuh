// The main loop of MX products whose scales' products the tensor cores make. Layer device.
// sa[m] * sb[n] of each 32 of K is a product of a matrix of one column and one of one row. Promotions by it take one
// instruction for each element where those by scales take two and loads of all rows' scales.
#pragma once

#include <finegemm/device/mma/consumer.cuh>

namespace finegemm::device {

/// A product of 32 of K with so many rows, and the factors of its elements, as the tensor cores leave them.
template <uint32_t Rows>
struct MxPart {
    static constexpr uint32_t kRegisters = Rows / 2;
    float product[2 * kRegisters];  // the factors behind the products
};

/// Starts the parts of one k-block after another: WGMMAs multiply four columns of scales, of which all but one are
/// zeros in the one operand, so that one instruction reads the other, all four scales of each row of A, as it lies.
template <GemmConfig C>
struct MxParts {
    const Consumer<C>& consumer;
    uint32_t thread = threadIdx.x % 128;
    uint32_t a, b, scales;  // of the next part: halves of descriptors
    uint32_t part;          // the next one
    uint32_t upper, lower;  // scales of this thread's rows, in the part that its column of scales is of

    /// Waits for a k-block and begins with its first part.
    __device__ void enter(const RingCursor<C.stages>& at) {
        const Operands operands = consumer.operands(at.stage, 0);
        a = operands.a, b = operands.b;
        scales = wgmma_short_rows_low(consumer.smem.sfa(at.stage).bits, 0);  // whose next columns meet zeros
        wait(consumer.smem.full(at.stage), at.parity);
        const uint32_t row = row_part_of(C, consumer.warpgroup) * 64 + wgmma_accumulator(thread, 0).row;
        const SmemAddr of_row = consumer.smem.sfb(at.stage) + row * kMxScaleBytes + thread % kMxParts * 4;
        upper = float_bits(ptx::load_shared(of_row));
        lower = float_bits(ptx::load_shared(of_row + 8 * kMxScaleBytes));
        part = 0;
        pin();
    }
    template <uint32_t Rows>
    __device__ void start(MxPart<Rows>& to) {
        const bool own = thread % kMxParts == part;
        const uint32_t of_upper = own ? upper : 0, of_lower = own ? lower : 0;
        ptx::wgmma_fence();
        ptx::wgmma_k32_mx(to.product, wgmma_descriptor_with(a), wgmma_descriptor_with(b), of_upper, of_lower,
                          wgmma_short_rows_with(scales));
        ptx::wgmma_commit_group();
        ++part;
        a += kMxCols / 16, b += kMxCols / 16;
        pin();
    }

private:
    /// Has all computed in the shadow of a wait.
    __device__ void pin() {
        ptx::pin(a);
        ptx::pin(b);
        ptx::pin(scales);
        ptx::pin(part);
    }
};

/// sum += product * factor, once the part has finished.
template <uint32_t Rows>
__device__ inline void promote(float (&sum)[Rows / 2], MxPart<Rows>& of) {
    constexpr uint32_t kRegisters = MxPart<Rows>::kRegisters;
#pragma unroll
    for (uint32_t r = 0; r < 2 * kRegisters; ++r) ptx::pin(of.product[r]);
#pragma unroll
    for (uint32_t r = 0; r < kRegisters; ++r) sum[r] = ptx::fma(of.product[r], of.product[kRegisters + r], sum[r]);
}

/// The sums of a tile that has at most `Rows` rows, two parts in flight. How many rows a WGMMA has is part of the
/// instruction: there is a loop for each number. Written as a step for each of two sets of registers, with a way out of
/// both: of other forms ptxas has WGMMAs wait for each other.
template <uint32_t Rows, GemmConfig C, typename Tiles>
__device__ void multiply_mx(Accumulator<C>& acc, const Consumer<C>& consumer, MxParts<C>& parts,
                            KBlockIterator<C, Tiles>& blocks) {
    if (Rows < C.tile_m && blocks.tile.rows > Rows)
        return multiply_mx<min(Rows + kSwappedStep, C.tile_m)>(acc, consumer, parts, blocks);
    auto& sum = reinterpret_cast<float (&)[Rows / 2]>(acc.sum[0]);
    MxPart<Rows> even, odd;
#pragma unroll
    for (uint32_t r = 0; r < Rows / 2; ++r) sum[r] = 0;
    parts.enter(blocks.at);
    parts.start(even);
    uint32_t stage = blocks.at.stage;
    const auto step = [&](MxPart<Rows>& now, MxPart<Rows>& later) {
        if (parts.part == kMxParts) {
            if (blocks.last_of_tile()) {
                ptx::wgmma_wait_group<0>();
                consumer.release(stage);
                promote<Rows>(sum, now);
                return false;
            }
            blocks.next();
            parts.enter(blocks.at);
        }
        const bool first = parts.part == 0;
        parts.start(later);
        ptx::wgmma_wait_group<1>();
        if (first) consumer.release(stage);
        promote<Rows>(sum, now);
        stage = blocks.at.stage;
        return true;
    };
#pragma unroll 1
    while (step(even, odd) && step(odd, even)) {}
}

template <GemmConfig C, TileSource<C> Tiles, TileEpilogue<C> Epilogue>
    requires(kPlan<C>.promotion == Promotion::MxProducts)
__device__ void mainloop_single(const Consumer<C>& consumer, KBlockIterator<C, Tiles>& blocks, Epilogue&& epilogue) {
    static_assert(C.wgmmas() == 1);
    constexpr uint32_t kLeast = Tiles::ragged() ? kSwappedStep : C.tile_m;  // one product has few tiles that lack rows
    MxParts<C> parts{consumer};
    Accumulator<C> acc;
    do {
        const Tile tile = blocks.tile;
        multiply_mx<kLeast>(acc, consumer, parts, blocks);
        epilogue(acc, tile);
    } while (blocks.next());
}

}  // namespace finegemm::device
