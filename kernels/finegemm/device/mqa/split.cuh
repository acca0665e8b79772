// How the tiles of all items are split over CTAs, and the walk over those of one. Layer device.
// All CTAs have as much to do, to a tile: none ends long after the others, however long windows and contexts are.
#pragma once

#include <finegemm/device/mqa/shared.cuh>
#include <finegemm/device/ptx/convert.cuh>
#include <finegemm/device/warp.cuh>

namespace finegemm::device {

/// This CTA's part of all tiles: the item that it begins in, tiles of that before it, and what its part may cost. In an
/// item tiles come first, and then what it costs beyond them: who begins there begins with the next item.
struct MqaSplit {
    uint32_t item, before, cost;
};

/// Each thread adds up what neighbouring items cost; the one in whose items this CTA begins looks where.
template <MqaConfig C>
__device__ MqaSplit split_tiles(const MqaParams& p, const MqaShared<C>& smem) {
    constexpr uint32_t kWarps = C.threads() / kWarpSize;
    const uint32_t each = ceil_div(p.items, C.threads());
    const uint32_t first = min(threadIdx.x * each, p.items), last = min(first + each, p.items);
    constexpr uint32_t kAtOnce = C.keys == MqaKeys::Pages ? 8 : max(1, 8 / C.queries());
    uint32_t cost = 0;
    for (uint32_t item = first; item < last; item += kAtOnce)
#pragma unroll
        for (uint32_t u = 0; u < kAtOnce; ++u) {
            const uint32_t tiles = mqa_tiles<C>(p, min(item + u, p.items - 1)).count;
            cost += item + u < last ? mqa_cost(C.form, tiles) : 0;
        }
    const uint32_t up_to = sum_up_to(cost);
    const uint32_t warp = threadIdx.x / kWarpSize;
    if (threadIdx.x % kWarpSize == kWarpSize - 1) ptx::store_shared(smem.split(warp), float_of_bits(up_to));
    __syncthreads();
    uint32_t total = 0, begin = up_to - cost;
#pragma unroll
    for (uint32_t w = 0; w < kWarps; ++w) {
        const uint32_t of_warp = float_bits(ptx::load_shared(smem.split(w)));
        if (w < warp) begin += of_warp;
        total += of_warp;
    }
    const MqaShare share = mqa_share(total, blockIdx.x, gridDim.x);
    const uint32_t inside = share.first - begin;  // wraps around where the CTA begins before
    if (share.count > 0 && inside < cost) {
        uint32_t item = first, before = inside, left = share.count;
        while (true) {
            const uint32_t tiles = mqa_tiles<C>(p, item).count, of_item = mqa_cost(C.form, tiles);
            if (before < tiles) break;
            ++item;
            if (before < of_item) {
                left -= min(of_item - before, left);
                before = 0;
                break;
            }
            before -= of_item;
        }
        ptx::store_shared_words_x4(smem.split(kWarps), {item, before, left, 0});
    }
    __syncthreads();
    const ptx::Words4 found = ptx::load_shared_words_x4(smem.split(kWarps));
    return {found.w[0], found.w[1], share.count > 0 ? found.w[2] : 0};
}

/// Tiles of an item that are this CTA's.
struct MqaPortion {
    uint32_t item, first, count;
};

/// The lanes of a warp look at 32 items at a time.
template <MqaConfig C>
class MqaWalk {
public:
    __device__ MqaWalk(const MqaParams& p, const MqaSplit& split)
        : p_(p), base_(split.item), before_(split.before), left_(split.cost) {
        if (left_ > 0) look();
    }

    /// Is there another item that has tiles?
    __device__ bool more() {
        if (left_ == 0) return false;
        while (pending_ == 0) {
            base_ += kWarpSize;
            if (base_ >= p_.items) return false;
            look();
        }
        return true;
    }
    /// The next item, where there is one.
    __device__ uint32_t item() const { return base_ + ptx::lowest_bit(pending_); }
    /// The item behind the next one. False if this CTA has none, or none at all. Not before the first portion.
    __device__ bool second(uint32_t& item) {
        if (!more()) return false;
        if (left_ <= mqa_cost(C.form, ptx::value_of(tiles_.count, ptx::lowest_bit(pending_)))) return false;
        uint32_t base = base_, items = pending_ & (pending_ - 1);
        while (items == 0) {
            base += kWarpSize;
            if (base >= p_.items) return false;
            items = ptx::ballot(tiles(base).count > 0);
        }
        item = base + ptx::lowest_bit(items);
        return true;
    }
    /// Goes on to the next item; false behind the last one.
    __device__ bool next(MqaPortion& portion) {
        if (!more()) return false;
        const uint32_t lane = ptx::lowest_bit(pending_);
        pending_ &= pending_ - 1;
        const uint32_t tiles = ptx::value_of(tiles_.count, lane);
        portion = {base_ + lane, ptx::value_of(tiles_.first, lane) + before_, min(tiles - before_, left_)};
        left_ -= min(mqa_cost(C.form, tiles) - before_, left_);
        before_ = 0;
        return true;
    }

private:
    /// What this lane's item has, of 32.
    __device__ MqaTiles tiles(uint32_t base) const {
        const uint32_t item = base + threadIdx.x % kWarpSize;
        return item < p_.items ? mqa_tiles<C>(p_, item) : MqaTiles{};
    }
    __device__ void look() {
        tiles_ = tiles(base_);
        pending_ = ptx::ballot(tiles_.count > 0);
    }

    const MqaParams& p_;
    uint32_t base_, before_, left_;  // left_: of the cost
    uint32_t pending_ = 0;           // a bit for each of these items that is still to come
    MqaTiles tiles_;                 // of this lane's item
};

}  // namespace finegemm::device
