// How the tiles of all items are split over CTAs, and the walk over those of one. Layer device.
// All CTAs have as many tiles, to one: none ends long after the others, however long windows and contexts are.
#pragma once

#include <finegemm/device/mqa/shared.cuh>
#include <finegemm/device/ptx/convert.cuh>
#include <finegemm/device/warp.cuh>

namespace finegemm::device {

/// This CTA's part of all tiles: the item that it begins in, tiles of that before it, and how many it has.
struct MqaSplit {
    uint32_t item, before, count;
};

/// Each thread adds up the tiles of neighbouring items; the one in whose items this CTA begins looks where.
template <MqaConfig C>
__device__ MqaSplit split_tiles(const MqaParams& p, const MqaShared<C>& smem) {
    constexpr uint32_t kWarps = C.threads() / kWarpSize;
    const uint32_t each = ceil_div(p.items, C.threads());
    const uint32_t first = min(threadIdx.x * each, p.items), last = min(first + each, p.items);
    uint32_t tiles = 0;
    for (uint32_t item = first; item < last; ++item) tiles += mqa_tiles(p, item).count;
    const uint32_t up_to = sum_up_to(tiles);
    const uint32_t warp = threadIdx.x / kWarpSize;
    if (threadIdx.x % kWarpSize == kWarpSize - 1) ptx::store_shared(smem.split(warp), float_of_bits(up_to));
    __syncthreads();
    uint32_t total = 0, begin = up_to - tiles;
#pragma unroll
    for (uint32_t w = 0; w < kWarps; ++w) {
        const uint32_t of_warp = float_bits(ptx::load_shared(smem.split(w)));
        if (w < warp) begin += of_warp;
        total += of_warp;
    }
    const MqaShare share = mqa_share(total, blockIdx.x, gridDim.x);
    const uint32_t inside = share.first - begin;  // wraps around where the CTA begins before
    if (share.count > 0 && inside < tiles) {
        uint32_t item = first, before = inside;
        for (uint32_t of_item; before >= (of_item = mqa_tiles(p, item).count); ++item) before -= of_item;
        ptx::store_shared_x2(smem.split(kWarps), float_of_bits(item), float_of_bits(before));
    }
    __syncthreads();
    const ptx::Float2 found = ptx::load_shared_x2(smem.split(kWarps));
    return {float_bits(found.part[0]), float_bits(found.part[1]), share.count};
}

/// Tiles of an item that are this CTA's.
struct MqaPortion {
    uint32_t item, first, count;
};

/// The lanes of a warp look at 32 items at a time.
class MqaWalk {
public:
    __device__ MqaWalk(const MqaParams& p, const MqaSplit& split)
        : p_(p), base_(split.item), before_(split.before), left_(split.count) {
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
    /// It, where there is.
    __device__ uint32_t item() const { return base_ + ptx::lowest_bit(pending_); }
    /// Goes on to it; false behind the last one.
    __device__ bool next(MqaPortion& portion) {
        if (!more()) return false;
        const uint32_t lane = ptx::lowest_bit(pending_);
        pending_ &= pending_ - 1;
        const uint32_t count = min(ptx::value_of(tiles_.count, lane) - before_, left_);
        portion = {base_ + lane, ptx::value_of(tiles_.first, lane) + before_, count};
        before_ = 0;
        left_ -= count;
        return true;
    }

private:
    __device__ void look() {
        const uint32_t item = base_ + threadIdx.x % kWarpSize;
        tiles_ = item < p_.items ? mqa_tiles(p_, item) : MqaTiles{};
        pending_ = ptx::ballot(tiles_.count > 0);
    }

    const MqaParams& p_;
    uint32_t base_, before_, left_;
    uint32_t pending_ = 0;  // a bit for each of these items that is still to come
    MqaTiles tiles_;        // of this lane's item
};

}  // namespace finegemm::device
