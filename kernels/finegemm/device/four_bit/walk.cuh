// The tiles of a CTA, as its loading warp finds them. Layer device.
#pragma once

#include <finegemm/four_bit/four_bit.h>
#include <finegemm/device/ptx/control.cuh>
#include <finegemm/device/warp.cuh>

namespace finegemm::device {

/// Walks over the slabs of a CTA, which are neighbours: as many as each other CTA has, or one more, so that all end
/// together. A converged warp does, each lane with a span of rows of 32 at once.
class FourBitWalk {
public:
    __device__ explicit FourBitWalk(const FourBitParams& p) : p_(p) {
        uint32_t all = 0;
        for (uint32_t first = 0; first < p.groups.spans(); first += kWarpSize) {
            look(first);
            all += of_these();
        }
        if (p.groups.spans() > kWarpSize) look(0);
        share_ = FourBitShare::of(all, blockIdx.x, gridDim.x);
    }

    __device__ FourBitTile next() {
        if (share_.begin >= share_.end) return {};
        while (share_.begin - before_ >= of_these()) {
            before_ += of_these();
            look(first_ + kWarpSize);
        }
        const uint32_t wanted = share_.begin - before_, lane = ptx::lowest_bit(ptx::ballot(up_to_ > wanted));
        const uint32_t begin = ptx::value_of(range_.begin, lane), size = ptx::value_of(range_.end, lane) - begin;
        const uint32_t group = ptx::value_of(group_, lane);
        const uint32_t of_span = wanted - (ptx::value_of(up_to_, lane) - slabs_of(size));
        const uint32_t done = of_span / p_.shape.slabs, slab = of_span - done * p_.shape.slabs;
        const uint32_t slabs = min(min(kFourBitSlabs, p_.shape.slabs - slab), share_.end - share_.begin);
        share_.begin += slabs;
        const uint32_t row = done * kFourBitRows;
        return {p_.groups.stacked ? group : 0, begin + row, min(size - row, kFourBitRows), slab, slabs, group};
    }

private:
    /// Slabs of so many rows.
    __device__ uint32_t slabs_of(uint32_t rows) const { return ceil_div(rows, kFourBitRows) * p_.shape.slabs; }
    /// Of these 32 spans.
    __device__ uint32_t of_these() const { return ptx::value_of(up_to_, kWarpSize - 1); }
    __device__ void look(uint32_t first) {
        first_ = first;
        const uint32_t span = first + threadIdx.x % kWarpSize;
        range_ = {};
        group_ = 0;
        if (span < p_.groups.spans()) {
            const GroupLayout::Ends ends = p_.groups.ends_of(span);
            range_ = p_.groups.range(ends);
            group_ = ends.group;
        }
        __syncwarp();
        up_to_ = sum_up_to(slabs_of(range_.size()));
    }

    const FourBitParams& p_;
    FourBitShare share_{};             // that is left
    uint32_t first_ = 0, before_ = 0;  // the first span looked at, and slabs before it
    RowRange range_;                   // of this lane's span
    uint32_t group_ = 0, up_to_ = 0;   // its group, and slabs up to its last one
};

}  // namespace finegemm::device
