// The tiles of a CTA, as its loading warp finds them. Layer device.
#pragma once

#include <finegemm/four_bit/four_bit.h>
#include <finegemm/device/ptx/control.cuh>
#include <finegemm/device/warp.cuh>

namespace finegemm::device {

/// Walks over every gridDim.x-th tile of all spans of rows; a converged warp does, each lane with a span of 32 at once.
/// Tiles that share blocks of B are neighbours.
template <FourBitConfig C>
class FourBitWalk {
public:
    __device__ explicit FourBitWalk(const FourBitParams& p) : p_(p), next_(blockIdx.x) { look(); }

    __device__ FourBitTile next() {
        while (next_ - before_ >= all()) {
            before_ += all();
            first_ += kWarpSize;
            if (first_ >= p_.groups.spans()) return {};
            look();
        }
        const uint32_t wanted = next_ - before_, lane = ptx::lowest_bit(ptx::ballot(up_to_ > wanted));
        const uint32_t begin = ptx::value_of(range_.begin, lane), size = ptx::value_of(range_.end, lane) - begin;
        const uint32_t group = ptx::value_of(group_, lane), tiles = ceil_div(size, C.tile_rows());
        const uint32_t of_span = wanted - (ptx::value_of(up_to_, lane) - tiles * p_.n_tiles(C));
        const uint32_t block = of_span / tiles, done = (of_span - block * tiles) * C.tile_rows();
        next_ += gridDim.x;
        return {p_.groups.stacked ? group : 0, begin + done, min(size - done, C.tile_rows()), block, group};
    }

private:
    /// Tiles of these 32 spans.
    __device__ uint32_t all() const { return ptx::value_of(up_to_, kWarpSize - 1); }
    __device__ void look() {
        const uint32_t span = first_ + threadIdx.x % kWarpSize;
        range_ = {};
        group_ = 0;
        if (span < p_.groups.spans()) {
            const GroupLayout::Ends ends = p_.groups.ends_of(span);
            range_ = p_.groups.range(ends);
            group_ = ends.group;
        }
        __syncwarp();
        up_to_ = sum_up_to(ceil_div(range_.size(), C.tile_rows()) * p_.n_tiles(C));
    }

    const FourBitParams& p_;
    uint32_t next_, first_ = 0, before_ = 0;  // the next tile, the first span looked at, and tiles before it
    RowRange range_;                          // of this lane's span
    uint32_t group_ = 0, up_to_ = 0;          // its group, and tiles up to its last one
};

}  // namespace finegemm::device
