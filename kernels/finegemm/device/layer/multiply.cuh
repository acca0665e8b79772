// The role of a math warpgroup: every second tile of the CTA, 64 rows of weights times some of tokens. Layer device.
#pragma once

#include <finegemm/core/fragment.h>
#include <finegemm/core/wgmma_desc.h>
#include <finegemm/device/layer/shared.cuh>
#include <finegemm/device/ptx/wgmma.cuh>

namespace finegemm::device {

/// Where scales of a k-block lie: of the rows that are the thread's first two columns, and of its rows of weights.
struct LayerScaleAddresses {
    ptx::SmemAddr of_tokens, of_weights;
    uint32_t row_bytes;
};

/// sum += product * factors, in the order in which products of launches add up k-blocks.
template <uint32_t N>
__device__ void promote(float (&sum)[N / 2], const float (&product)[N / 2], const LayerScaleAddresses& at) {
    const float of_weights = ptx::load_shared(at.of_weights);
#pragma unroll
    for (uint32_t r = 0; r < N / 2; r += 4)
#pragma unroll
        for (uint32_t c = 0; c < 2; ++c) {
            const float factor = ptx::load_shared(at.of_tokens + (r * 2 + c) * at.row_bytes) * of_weights;
            sum[r + c] = ptx::fma(product[r + c], factor, sum[r + c]);
            sum[r + 2 + c] = ptx::fma(product[r + 2 + c], factor, sum[r + 2 + c]);
        }
}

template <uint32_t Pending, uint32_t N>
__device__ void finish_product(float (&product)[N]) {
    ptx::wgmma_wait_group<Pending>();
#pragma unroll
    for (uint32_t r = 0; r < N; ++r) ptx::pin(product[r]);
}

/// Products of a stage, of one k-block or of two.
template <LayerConfig C, uint32_t N>
__device__ void multiply_stage(float (&sum)[N / 2], ptx::SmemAddr stage, bool both, const LayerScaleAddresses& scales) {
    const uint32_t weights = stage.bits, tokens = weights + C.kWeightBytes;
    float first[N / 2], second[N / 2];
    if (!both) {
        ptx::wgmma_fence();
        ptx::wgmma_k128(first, wgmma_descriptor(weights), wgmma_descriptor(tokens));
        ptx::wgmma_commit_group();
        finish_product<0>(first);
        return promote<N>(sum, first, scales);
    }
    ptx::wgmma_fence();
    ptx::wgmma_k128(first, wgmma_descriptor(weights), wgmma_descriptor(tokens));
    ptx::wgmma_commit_group();
    ptx::wgmma_k128(second, wgmma_descriptor(weights + C.kBlockBytes), wgmma_descriptor(tokens + C.token_bytes()));
    ptx::wgmma_commit_group();
    finish_product<1>(first);
    promote<N>(sum, first, scales);
    finish_product<0>(second);
    promote<N>(sum, second, {scales.of_tokens + 4, scales.of_weights + 4, scales.row_bytes});
}

/// Where a math warpgroup is among the CTA's tiles and stages.
template <LayerConfig C>
struct LayerPlace {
    uint32_t tile = 0, stage = 0, armed = 0;  // of all rounds; armed: that it knows of
    RingCursor<C.stages()> ring = RingCursor<C.stages()>::consumer();

    __device__ void skip(const LayerTile& of) {
        const uint32_t to = ring.stage + of.stages(), rounds = to / C.stages();
        ring.stage = to - rounds * C.stages(), ring.parity ^= rounds & 1;
        stage += of.stages(), ++tile;
    }
    /// A phase is told from the one before it alone, and a warpgroup that skips tiles may be more than one ahead: it
    /// does not look before the stage is that of this round.
    __device__ void wait_for_stage(const LayerShared<C>& shared) {
        while (armed <= stage) armed = ptx::load_acquire_cta(address_of(&shared.stages_armed));
        wait(address_of(&shared.full[ring.stage]), ring.parity);
    }
};

template <LayerConfig C, uint32_t N>
__device__ void multiply_tile(const LayerRole<C>& role, const LayerTile& tile, LayerPlace<C>& place) {
    LayerShared<C>& shared = role.shared;
    const uint32_t slot = place.tile % C.kScales, thread = threadIdx.x % 128;
    const uint32_t k_blocks = ptx::broadcast(tile.k_blocks), row_bytes = k_blocks * 4;
    wait(address_of(&shared.scales_full[slot]), place.tile / C.kScales % 2);
    LayerScaleAddresses scales{address_of(shared.scales[slot].of_tokens) + thread % 4 * 2 * row_bytes,
                               address_of(shared.scales[slot].of_weights[thread / 64]), row_bytes};
    float sum[N / 2] = {};
#pragma unroll 1
    for (uint32_t kb = 0; kb < k_blocks; kb += C.kStageBlocks, ++place.ring, ++place.stage) {
        const uint32_t stage = place.ring.stage;
        place.wait_for_stage(shared);
        multiply_stage<C, N>(sum, address_of(shared.stages[stage]), kb + 1 < k_blocks, scales);
        scales.of_tokens = scales.of_tokens + C.kStageBlocks * 4,
        scales.of_weights = scales.of_weights + C.kStageBlocks * 4;
        __syncwarp();
        if (ptx::lane() == 0) ptx::mbarrier_arrive(address_of(&shared.empty[stage]));
    }
    if (ptx::lane() == 0) ptx::mbarrier_arrive(address_of(&shared.scales_empty[slot]));
    const uint32_t publisher = place.tile % C.kPublishers;
    wait(address_of(&shared.taken[publisher]), (place.tile / C.kPublishers + 1) % 2);
#pragma unroll
    for (uint32_t r = 0; r < N / 2; r += 2) {
        const RowCol at = wgmma_accumulator(thread, r);
        ptx::store_shared_word(address_of(&shared.sums[publisher][at.row][at.col]), ptx::pack_bf16(sum[r], sum[r + 1]));
    }
    __syncwarp();
    if (ptx::lane() == 0) ptx::mbarrier_arrive(address_of(&shared.given[publisher]));
    ++place.tile;
}

template <LayerConfig C>
__device__ void multiply_tiles(const LayerRole<C>& role) {
    const uint32_t warpgroup = ptx::broadcast(threadIdx.x / 128), tiles = ptx::broadcast(role.tiles());
    LayerWalk<C> walk{role};
    LayerPlace<C> place;
    for (;;) {
        const uint32_t ticket = ptx::broadcast(walk.ticket());
        if (ticket >= tiles) return;
        const LayerTile tile = LayerTile::of(role.p, role.shared.groups, ticket);
        if (place.tile % C.kMathWarpgroups != warpgroup) {
            place.skip(tile);
            continue;
        }
        const uint32_t rows = ptx::broadcast(role.shared.group[tile.group].rows);
        if (C.rows == 16 || rows <= 16) multiply_tile<C, 16>(role, tile, place);
        else multiply_tile<C, C.rows>(role, tile, place);
    }
}

}  // namespace finegemm::device
