// The roles that load: one thread weights, which wait for nothing, and one what tiles multiply them with. Layer device.
#pragma once

#include <finegemm/core/tma_box.h>
#include <finegemm/device/layer/shared.cuh>
#include <finegemm/device/ptx/tma.cuh>

namespace finegemm::device {

/// Where the weights of a tile are: its first 32 rows, and its last.
template <LayerConfig C>
struct LayerWeights {
    const TensorMap* map;
    uint32_t upper, lower, k_blocks;

    __device__ static LayerWeights of(const LayerRole<C>& role, const LayerTile& tile) {
        const LayerParams& p = role.p;
        const uint32_t expert = role.shared.group[tile.group].expert;
        if (tile.second) {
            const uint32_t row = expert * p.hidden + tile.col * C.kTileRows;
            return {&p.down, row, row + C.kHalf, tile.k_blocks};
        }
        const uint32_t row = expert * 2 * p.pairs + tile.col * C.kHalf;
        return {&p.gate_up, row, row + p.pairs, tile.k_blocks};
    }
    __device__ void load(ptx::SmemAddr to, ptx::SmemAddr full, uint32_t kb) const {
        ptx::tma_load(to, map, full, kb * kScaleBlock, upper, kEvictFirst);
        ptx::tma_load(to + C.kBlockBytes / 2, map, full, kb * kScaleBlock, lower, kEvictFirst);
    }
    __device__ void prefetch(uint32_t kb) const {
        ptx::tma_prefetch(map, kb * kScaleBlock, upper);
        ptx::tma_prefetch(map, kb * kScaleBlock, lower);
    }
};

/// While all stages wait for rows that others make, memory goes on: L2 takes the stages that come next.
template <LayerConfig C>
struct LayerPrefetch {
    static constexpr uint32_t kMost = 10;
    uint32_t ahead = 0;  // stages behind the one that waits

    /// `kb`: of the stage that waits. Until it is empty.
    __device__ void wait_for_stage(const LayerRole<C>& role, ptx::SmemAddr empty, uint32_t parity,
                                   const LayerWeights<C>& now, uint32_t kb, uint32_t next_ticket) {
        while (!ptx::mbarrier_test_wait(empty, parity)) {
            if (ahead == kMost || !ptx::load_acquire_cta(address_of(&role.shared.rows_missing))) {
                wait(empty, parity);
                break;
            }
            const uint32_t at = kb + ahead * C.kStageBlocks, now_end = align_up(now.k_blocks, C.kStageBlocks);
            if (at < now.k_blocks) prefetch(now, at);
            else if (next_ticket < role.tiles())
                prefetch(LayerWeights<C>::of(role, LayerTile::of(role.p, role.shared.groups, next_ticket)),
                         at - now_end);
            ++ahead;
        }
        ahead -= ahead > 0 ? 1 : 0;
    }

private:
    __device__ static void prefetch(const LayerWeights<C>& of, uint32_t kb) {
        for (uint32_t b = kb; b < min(kb + C.kStageBlocks, of.k_blocks); ++b) of.prefetch(b);
    }
};

/// Tells the roles of the CTA's tiles, and loads their weights as stages become empty.
template <LayerConfig C>
__device__ void load_weights(const LayerRole<C>& role) {
    LayerShared<C>& shared = role.shared;
    auto at = RingCursor<C.stages()>::producer();
    const uint32_t tiles = role.tiles();
    uint32_t ticket = shared.first_ticket, stages = 0;
    LayerPrefetch<C> prefetch;
    for (uint32_t i = 0;; ++i) {
        shared.tickets[i % C.kTiles] = ticket;
        ptx::mbarrier_arrive(address_of(&shared.tile_known[i % C.kTiles]));
        if (ticket >= tiles) return;
        const uint32_t next = ptx::add_relaxed(role.counters + LayerCounters::kTickets, 1);
        const auto weights = LayerWeights<C>::of(role, LayerTile::of(role.p, shared.groups, ticket));
        for (uint32_t kb = 0; kb < weights.k_blocks; kb += C.kStageBlocks, ++at) {
            const uint32_t blocks = min(C.kStageBlocks, weights.k_blocks - kb);
            prefetch.wait_for_stage(role, address_of(&shared.empty[at.stage]), at.parity, weights, kb, next);
            const ptx::SmemAddr full = address_of(&shared.full[at.stage]);
            ptx::mbarrier_arrive_expect_tx(full, blocks * C.kBlockBytes);
            ptx::mbarrier_arrive(address_of(&shared.armed[at.stage]));
            ptx::store_release_cta(address_of(&shared.stages_armed), ++stages);
            for (uint32_t b = 0; b < blocks; ++b)
                weights.load(address_of(shared.stages[at.stage]) + b * C.kBlockBytes, full, kb + b);
        }
        ticket = next;
    }
}

/// Rows that a tile multiplies its weights with.
struct LayerRows {
    const TensorMap* map;
    const float* scales;
    uint32_t first, count;

    /// The rows of an only token are alike: those from the first one on serve all experts.
    __device__ static LayerRows of(const LayerParams& p, const LayerTile& tile, LayerGroup group) {
        if (tile.second) return {&p.codes, p.z_scales + group.row * tile.k_blocks, group.row, group.rows};
        const uint32_t first = p.tokens == 1 ? 0 : group.row;
        return {&p.rows, p.q_scales + first * tile.k_blocks, first, group.rows};
    }
};

/// Loads the scales of the i-th tile.
template <LayerConfig C>
__device__ void load_scales(const LayerRole<C>& role, const LayerTile& tile, const LayerRows& rows, uint32_t i) {
    const LayerParams& p = role.p;
    const uint32_t slot = i % C.kScales, bytes = tile.k_blocks * 4, expert = role.shared.group[tile.group].expert;
    const uint32_t block = tile.second ? expert * p.hidden_blocks() + tile.col * C.kTileRows / kScaleBlock
                                       : expert * 2 * p.pair_blocks() + tile.col * C.kHalf / kScaleBlock;
    const float* const upper = (tile.second ? p.down_scales : p.gate_up_scales) + block * tile.k_blocks;
    const float* const lower = upper + (tile.second ? 0 : p.pair_blocks() * tile.k_blocks);
    LayerScales<C>& to = role.shared.scales[slot];
    const ptx::SmemAddr full = address_of(&role.shared.scales_full[slot]);
    wait(address_of(&role.shared.scales_empty[slot]), (i / C.kScales + 1) % 2);
    ptx::mbarrier_arrive_expect_tx(full, (rows.count + 2) * bytes);
    ptx::bulk_load(address_of(to.of_tokens), rows.scales, rows.count * bytes, full);
    ptx::bulk_load(address_of(to.of_weights[0]), upper, bytes, full);
    ptx::bulk_load(address_of(to.of_weights[1]), lower, bytes, full);
}

/// Until `count` have come, whose stores TMA sees then.
template <LayerConfig C>
__device__ void wait_for_rows(const LayerRole<C>& role, const uint32_t* counter, uint32_t count) {
    const ptx::SmemAddr missing = address_of(&role.shared.rows_missing);
    ptx::store_release_cta(missing, 1);
    while (ptx::load_acquire(counter) < count) {}
    ptx::store_release_cta(missing, 0);
    ptx::fence_proxy_async();
}

/// Loads rows of tokens, or of the activation, when they are there, and scales.
template <LayerConfig C>
__device__ void load_rows(const LayerRole<C>& role) {
    LayerShared<C>& shared = role.shared;
    const LayerParams& p = role.p;
    auto at = RingCursor<C.stages()>::consumer();
    const uint32_t tiles = role.tiles();
    bool tokens_there = false;
    uint32_t codes_there = 0;  // groups that have all of them
    LayerWalk<C> walk{role};
    for (uint32_t i = 0;; ++i) {
        const uint32_t ticket = walk.ticket();
        if (ticket >= tiles) return;
        const LayerTile tile = LayerTile::of(p, shared.groups, ticket);
        if (!tile.second && !tokens_there) wait_for_rows(role, role.counters + LayerCounters::kTokens, p.tasks);
        if (tile.second && tile.group >= codes_there) {
            wait_for_rows(role, role.codes_of(tile.group), p.pair_blocks());
            codes_there = tile.group + 1;
        }
        tokens_there = true;
        const LayerRows rows = LayerRows::of(p, tile, shared.group[tile.group]);
        load_scales(role, tile, rows, i);
        const uint32_t boxes = ceil_div(rows.count, C.kBoxRows), box_bytes = C.kBoxRows * kScaleBlock;
        for (uint32_t kb = 0; kb < tile.k_blocks; kb += C.kStageBlocks, ++at) {
            const uint32_t blocks = min(C.kStageBlocks, tile.k_blocks - kb);
            wait(address_of(&shared.armed[at.stage]), at.parity);
            const ptx::SmemAddr full = address_of(&shared.full[at.stage]);
            ptx::mbarrier_arrive_expect_tx(full, blocks * boxes * box_bytes);
            const ptx::SmemAddr to = address_of(shared.stages[at.stage]) + C.kWeightBytes;
            for (uint32_t b = 0; b < blocks; ++b)
                for (uint32_t box = 0; box < boxes; ++box)
                    ptx::tma_load(to + b * C.token_bytes() + box * box_bytes, rows.map, full, (kb + b) * kScaleBlock,
                                  rows.first + box * C.kBoxRows);
        }
    }
}

}  // namespace finegemm::device
