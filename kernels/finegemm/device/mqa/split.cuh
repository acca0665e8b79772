// How the tiles of all items are split over CTAs, and the walk over those of one. Layer device.
// All CTAs have as much to do, to a tile: none ends long after the others, however long windows and contexts are.
#pragma once

#include <finegemm/device/mqa/shared.cuh>
#include <finegemm/device/ptx/convert.cuh>
#include <finegemm/device/warp.cuh>

namespace finegemm::device {

/// Brings the table of pages to L2 while lengths are read: they tell which of its entries a CTA begins with, and memory
/// would be waited for once more. Some threads have a line each; of a table with more lines, those that begin it.
template <MqaConfig C>
__device__ void prefetch_table(const MqaParams& p) {
    constexpr uint32_t kLine = 128, kThreads = 128;
    if (threadIdx.x >= kThreads || p.keys == 0) return;
    const uint32_t lines = ceil_div((p.keys >> p.page_log2) * 4, kLine), i = blockIdx.x * kThreads + threadIdx.x;
    if (i / lines < p.items) ptx::prefetch_global(p.table + i / lines * p.table_stride + i % lines * (kLine / 4));
}

/// Brings the first pages of all requests to L2 while lengths are read, some tiles by each CTA, the first page of each
/// request before the second of any: whoever has their tiles finds them there, and memory is at work from then on.
/// Beyond its length a request may have any numbers in the table: those of pages that exist are prefetched in vain.
template <MqaConfig C>
__device__ void prefetch_pages(const MqaParams& p) {
    constexpr uint32_t kTiles = 4;
    if (threadIdx.x >= kTiles << (6 - p.page_log2) || p.items == 0) return;
    const uint32_t i = threadIdx.x * gridDim.x + blockIdx.x, page = i / p.items, item = i - page * p.items;
    if (page >= p.keys >> p.page_log2) return;
    const uint32_t number = p.table[item * p.table_stride + page];
    if (number < p.page_count) ptx::bulk_prefetch(p.pages + number * p.page_stride, (C.dim + 4) << p.page_log2);
}

/// This CTA's part of all tiles: the item that it begins in, tiles of that before it, and what its part may cost. In an
/// item tiles come first, and then what it costs beyond them: who begins there begins with the next item.
struct MqaSplit {
    uint32_t item, before, cost;
};

/// Each thread adds up what neighbouring items cost; the one in whose items this CTA begins looks where. Few items are
/// left to each warp that loads: then nobody waits for other warps.
template <MqaConfig C>
__device__ MqaSplit split_tiles(const MqaParams& p, const MqaShared<C>& smem, uint32_t warpgroup) {
    constexpr uint32_t kWarps = C.threads() / kWarpSize;
    constexpr uint32_t kAtOnce = C.keys == MqaKeys::Pages ? 8 : max(1, 8 / C.queries());
    const bool few = p.items <= kAtOnce * kWarpSize;
    if (few && warpgroup < kMqaWarpgroups) return {};
    static_assert(kWarpSize == 1 << 5);  // a shift: the compiler would divide by either number at run time
    const uint32_t each = few ? (p.items + kWarpSize - 1) >> 5 : ceil_div(p.items, C.threads());
    const uint32_t first = min((few ? threadIdx.x % kWarpSize : threadIdx.x) * each, p.items);
    const uint32_t last = min(first + each, p.items);
    uint32_t cost = 0;
    const auto cost_of = [&](uint32_t item) { return mqa_cost(C, mqa_tiles<C>(p, item).count); };
    if (C.keys == MqaKeys::Pages && each == 1) {  // few instructions: the first tile waits for them
        if (first < last) cost = cost_of(first);
    } else {
        for (uint32_t item = first; item < last; item += kAtOnce)
#pragma unroll
            for (uint32_t u = 0; u < kAtOnce; ++u) {
                const uint32_t of_item = cost_of(min(item + u, p.items - 1));
                cost += item + u < last ? of_item : 0;
            }
    }
    const uint32_t up_to = sum_up_to(cost);
    const uint32_t warp = threadIdx.x / kWarpSize;
    uint32_t total = ptx::value_of(up_to, kWarpSize - 1), begin = up_to - cost;
    if (!few) {
        if (threadIdx.x % kWarpSize == 0) ptx::store_shared(smem.split(warp), float_of_bits(total));
        __syncthreads();
        total = 0;
#pragma unroll
        for (uint32_t w = 0; w < kWarps; ++w) {
            const uint32_t of_warp = float_bits(ptx::load_shared(smem.split(w)));
            if (w < warp) begin += of_warp;
            total += of_warp;
        }
    }
    const MqaShare share = mqa_share(total, blockIdx.x, gridDim.x);
    const uint32_t inside = share.first - begin;  // wraps around where the CTA begins before
    const bool begins = share.count > 0 && inside < cost;
    uint32_t item = first, before = inside, left = share.count;
    if (begins) {
        while (true) {
            const uint32_t tiles = mqa_tiles<C>(p, item).count, of_item = mqa_cost(C, tiles);
            if (before < tiles) break;
            ++item;
            if (before < of_item) {
                left -= min(of_item - before, left);
                before = 0;
                break;
            }
            before -= of_item;
        }
        if (!few) ptx::store_shared_words_x4(smem.split(kWarps), {item, before, left, 0});
    }
    if (few) {
        const uint32_t who = ptx::ballot(begins), lane = ptx::lowest_bit(who);
        return {ptx::value_of(item, lane), ptx::value_of(before, lane), who != 0 ? ptx::value_of(left, lane) : 0};
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
        if (left_ <= mqa_cost(C, ptx::value_of(tiles_.count, ptx::lowest_bit(pending_)))) return false;
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
        left_ -= min(mqa_cost(C, tiles) - before_, left_);
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
