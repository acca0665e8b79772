// What the roles of the kernel for a layer of experts share. Layer device.
#pragma once

#include <finegemm/core/ring.h>
#include <finegemm/layer/layer.h>
#include <finegemm/device/pipeline/wait.cuh>
#include <finegemm/device/ptx/control.cuh>
#include <finegemm/device/ptx/dynamic_shared.cuh>
#include <finegemm/device/ptx/system.cuh>

namespace finegemm::device {

inline constexpr uint32_t kMathBarrier = 1, kListedBarrier = 2;

/// A role's view of the launch.
template <LayerConfig C>
struct LayerRole {
    const LayerParams& p;
    LayerShared<C>& shared;
    uint32_t* counters;

    __device__ uint32_t tiles() const { return p.tiles(shared.groups); }
    // Counters: blocks of codes that a group has, arrivals at one of them, and at columns of y.
    __device__ uint32_t* codes_of(uint32_t group) const { return counters + LayerCounters::kPieces + group; }
    __device__ uint32_t* arrivals_at_codes(uint32_t group, uint32_t block) const {
        return codes_of(shared.groups) + group * p.pair_blocks() + block;
    }
    __device__ uint32_t* arrivals_at_y(uint32_t col) const { return arrivals_at_codes(shared.groups, col); }
};

__device__ inline ptx::SmemAddr address_of(const void* shared) { return ptx::smem_address(shared); }

/// Walks over the CTA's tiles, as their tickets come to be known. No role is so far behind that a barrier's phase is
/// mistaken for the one before: none gets more stages ahead of another than there are.
template <LayerConfig C>
struct LayerWalk {
    const LayerRole<C>& role;
    uint32_t next = 0;

    /// The ticket of the next tile; as many as there are tiles, or more: there is none.
    __device__ uint32_t ticket() {
        const uint32_t slot = next % C.kTiles;
        wait(address_of(&role.shared.tile_known[slot]), next / C.kTiles % 2);
        ++next;
        return role.shared.tickets[slot];
    }
};

}  // namespace finegemm::device
