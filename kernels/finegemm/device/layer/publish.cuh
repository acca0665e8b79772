// The role of a warp that publishes what some of the CTA's tiles have become: the activation, whose last part of 128
// columns quantises them, or y, whose last expert adds up tokens. Layer device.
#pragma once

#include <finegemm/device/layer/shared.cuh>
#include <finegemm/device/layer/tokens.cuh>
#include <finegemm/device/ptx/fragment.cuh>
#include <finegemm/device/swiglu.cuh>

namespace finegemm::device {

/// Counts an arrival, behind this warp's stores; true for the last one, which may read those of all.
__device__ inline bool arrives_last(uint32_t* counter, uint32_t arrivals) {
    __syncwarp();
    const uint32_t before = ptx::broadcast(ptx::lane() == 0 ? ptx::add_acq_rel(counter, 1) : 0);
    __syncwarp();
    return before + 1 == arrivals;
}

/// The tile's sums have been read: others may take their place.
template <LayerConfig C>
__device__ void take_sums(const LayerRole<C>& role, uint32_t publisher) {
    __syncwarp();
    if (ptx::lane() == 0) ptx::mbarrier_arrive(address_of(&role.shared.taken[publisher]));
}

/// A block of codes of a group, from what its tiles have left.
template <LayerConfig C>
__device__ void quantise_block(const LayerParams& p, LayerGroup group, uint32_t block) {
    constexpr QuantizeConfig kQuantize{QuantizeInput::BF16};
    constexpr uint32_t kAtOnce = 4, kAcross = kWarpSize / kQuantize.lanes();
    const uint32_t col = block * kScaleBlock + ptx::lane() % kQuantize.lanes() * kQuantize.vector();
    for (uint32_t first = 0; first < group.rows; first += kAtOnce * kAcross) {
        Values<kQuantize> values[kAtOnce];
        const uint32_t row = first + ptx::lane() / kQuantize.lanes();
#pragma unroll
        for (uint32_t u = 0; u < kAtOnce; ++u) {
            const int64_t from = group.row + min(row + u * kAcross, group.rows - 1u);
            values[u].words = ptx::load_global_l2_x4_if(true, p.between + from * p.pairs + col);
        }
#pragma unroll
        for (uint32_t u = 0; u < kAtOnce; ++u) {
            const bool exists = row + u * kAcross < group.rows;
            const int64_t to = group.row + row + u * kAcross;
            const uint32_t most = largest_of(values[u].largest(), kQuantize.lanes());
            const float scale = block_scale_of(float_of_bits(most), p.power_of_two);
            const auto codes = values[u].codes(PtxMath::reciprocal(scale));
            ptx::store_global_x2_if(exists, p.z + to * p.pairs + col, codes.w[0], codes.w[1]);
            ptx::store_global_if(exists && ptx::lane() % kQuantize.lanes() == 0,
                                 p.z_scales + to * p.pair_blocks() + block, float_bits(scale));
        }
    }
}

template <LayerConfig C>
__device__ void publish_activation(const LayerRole<C>& role, const LayerTile& tile, uint32_t publisher) {
    const LayerParams& p = role.p;
    const LayerGroup group = role.shared.group[tile.group];
    const auto& sums = role.shared.sums[publisher];
    constexpr uint32_t kPairs = C.kHalf / 2;  // of columns
    for (uint32_t i = ptx::lane(); i < group.rows * kPairs; i += kWarpSize) {
        const uint32_t col = i % kPairs * 2, row = i / kPairs;
        float value[2];
#pragma unroll
        for (uint32_t c = 0; c < 2; ++c)
            value[c] =
                swiglu<PtxMath>(float_of_bf16(sums[col + c][row]), float_of_bf16(sums[C.kHalf + col + c][row]), p.rule);
        ptx::store_global(p.between + static_cast<int64_t>(group.row + row) * p.pairs + tile.col * C.kHalf + col,
                          ptx::pack_bf16(value[0], value[1]));
    }
    take_sums(role, publisher);
    constexpr uint32_t kTilesOfBlock = kScaleBlock / C.kHalf;
    const uint32_t block = tile.col / kTilesOfBlock;
    if (!arrives_last(role.arrivals_at_codes(tile.group, block), kTilesOfBlock)) return;
    quantise_block<C>(p, group, block);
    ptx::fence_proxy_async();  // TMA reads what has been stored
    __syncwarp();
    if (ptx::lane() == 0) ptx::add_release(role.codes_of(tile.group), 1);
}

/// Weighted sums of columns of all tokens that have rows, in the order of combine.
template <LayerConfig C>
__device__ void add_up(const LayerRole<C>& role, uint32_t first_col) {
    const LayerParams& p = role.p;
    constexpr uint32_t kVector = 8, kAcross = C.kTileRows / kVector, kAtOnce = 8;
    for (uint32_t i = ptx::lane(); i < p.tokens * kAcross; i += kWarpSize) {
        const uint32_t token = i / kAcross, col = first_col + i % kAcross * kVector;
        float sum[kVector] = {};
        bool any = false;
        for (uint32_t first = 0; first < p.k; first += kAtOnce) {
            ptx::Words4 y[kAtOnce];
            float weights[kAtOnce];
            bool exists[kAtOnce];
#pragma unroll
            for (uint32_t c = 0; c < kAtOnce; ++c) {
                const bool chosen = first + c < p.k;
                const uint32_t row = chosen ? role.shared.rows[token * p.k + first + c] : static_cast<uint32_t>(kNoRow);
                exists[c] = row != static_cast<uint32_t>(kNoRow), any = any || exists[c];
                y[c] = ptx::load_global_l2_x4_if(exists[c],
                                                 p.y + (exists[c] ? static_cast<int64_t>(row) : 0) * p.hidden + col);
                weights[c] = exists[c] ? role.shared.weights[token * p.k + first + c] : 0.0f;
            }
#pragma unroll
            for (uint32_t c = 0; c < kAtOnce; ++c)
#pragma unroll
                for (uint32_t e = 0; e < kVector; ++e) {
                    const uint32_t word = y[c].w[e / 2];
                    const float value = float_of_bits(e % 2 == 0 ? word << 16 : word & 0xffff0000u);
                    const float added = ptx::add(sum[e], ptx::multiply(weights[c], value));
                    sum[e] = exists[c] ? added : sum[e];
                }
        }
        ptx::store_global_x4_if(any, p.out + token * p.out_row_stride + col * 2,
                                ptx::Words4{{ptx::pack_bf16(sum[0], sum[1]), ptx::pack_bf16(sum[2], sum[3]),
                                             ptx::pack_bf16(sum[4], sum[5]), ptx::pack_bf16(sum[6], sum[7])}});
    }
}

template <LayerConfig C>
__device__ void publish_y(const LayerRole<C>& role, const LayerTile& tile, uint32_t publisher) {
    const LayerParams& p = role.p;
    const LayerGroup group = role.shared.group[tile.group];
    const auto& sums = role.shared.sums[publisher];
    const uint32_t first_col = tile.col * C.kTileRows, col = ptx::lane() * 2;
    for (uint32_t row = 0; row < group.rows; ++row) {
        const uint32_t low = sums[col][row], high = sums[col + 1][row];
        if (p.k > 1) {
            ptx::store_global(p.y + static_cast<int64_t>(group.row + row) * p.hidden + first_col + col,
                              low | high << 16);
            continue;
        }
        // The only choice of its token: there is nothing to add.
        const uint32_t token = role.shared.choices[group.row + row];
        const float weight = role.shared.weights[token];
        const auto weighted = [&](uint32_t code) {
            return ptx::add(0.0f, ptx::multiply(weight, float_of_bits(code << 16)));
        };
        ptx::store_global(p.out + token * p.out_row_stride + (first_col + col) * 2,
                          ptx::pack_bf16(weighted(low), weighted(high)));
    }
    take_sums(role, publisher);
    if (p.k == 1) return;
    if (arrives_last(role.arrivals_at_y(tile.col), role.shared.groups)) add_up(role, first_col);
}

/// The sum of an only token that has no rows; it may have been quantised before that was known.
__device__ inline void zero_sum(const LayerParams& p, uint32_t publisher) {
    for (uint32_t i = publisher * kWarpSize + ptx::lane(); i < p.hidden / 8; i += LayerConfig::kPublishers * kWarpSize)
        ptx::store_global_x4(p.out + i * 16, ptx::Words4{});
}

template <LayerConfig C>
__device__ void publish_tiles(const LayerRole<C>& role, uint32_t publisher) {
    const uint32_t tiles = role.tiles();
    if (tiles == 0 && role.p.tokens == 1) return zero_sum(role.p, publisher);
    LayerWalk<C> walk{role};
    for (uint32_t i = 0;; ++i) {
        const uint32_t ticket = walk.ticket();
        if (ticket >= tiles) return;
        if (i % C.kPublishers != publisher) continue;
        wait(address_of(&role.shared.given[publisher]), i / C.kPublishers % 2);
        const LayerTile tile = LayerTile::of(role.p, role.shared.groups, ticket);
        if (tile.second) publish_y(role, tile, publisher);
        else publish_activation(role, tile, publisher);
    }
}

}  // namespace finegemm::device
