// Addresses of everything in the shared memory of an indexer's kernel. Layer device; offsets come from mqa_smem.
#pragma once

#include <finegemm/mqa/mqa.h>
#include <finegemm/device/pipeline/wait.cuh>
#include <finegemm/device/ptx/control.cuh>

namespace finegemm::device {

using ptx::SmemAddr;

template <MqaConfig C>
struct MqaShared {
    static constexpr MqaSmemPlan kAt = mqa_smem(C);
    SmemAddr base;

    // A stage of a ring: MqaRings.
    __device__ SmemAddr keys(uint32_t stage) const { return base + (kAt.keys + stage * kAt.keys_stage); }
    __device__ SmemAddr scales(uint32_t stage) const { return base + (kAt.scales + stage * kAt.scales_stage); }
    __device__ SmemAddr tile(uint32_t stage) const { return base + (kAt.tiles + stage * 8); }
    __device__ SmemAddr full(uint32_t stage) const { return base + (kAt.full + stage * 8); }
    __device__ SmemAddr empty(uint32_t stage) const { return base + (kAt.empty + stage * 8); }

    // A slot for queries.
    __device__ SmemAddr queries(uint32_t slot) const { return base + (kAt.queries + slot * kAt.queries_slot); }
    __device__ SmemAddr weights(uint32_t slot) const { return base + (kAt.weights + slot * kAt.weights_slot); }
    __device__ SmemAddr step(uint32_t slot, uint32_t query) const { return weights(slot) + (kMqaColumns + query) * 4; }
    __device__ SmemAddr window(uint32_t slot, uint32_t query) const {
        return base + (kAt.windows + slot * kAt.windows_slot + query * 16);
    }
    __device__ SmemAddr queries_full(uint32_t slot) const { return base + (kAt.queries_full + slot * 8); }
    __device__ SmemAddr queries_empty(uint32_t slot) const { return base + (kAt.queries_empty + slot * 8); }
    __device__ SmemAddr queries_in(uint32_t slot) const { return base + (kAt.queries_in + slot * 8); }

    __device__ SmemAddr fill() const { return base + kAt.fill; }
    __device__ SmemAddr sums(uint32_t warp) const {
        return base + (kAt.sums + warp * kWarpSize * C.linear_columns() * 4);
    }
    __device__ SmemAddr split(uint32_t word) const { return base + (kAt.split + word * 4); }
};

/// Which slots the queries of a portion lie in: an item with several parts has as many, one behind the other.
template <MqaConfig C>
struct MqaSlot {
    uint32_t first, parity;

    __device__ static uint32_t parts(const MqaParams& p) { return C.most_parts() > 1 ? p.item_parts : 1; }
    /// Portions that there is room for: 2 to this power.
    __device__ static uint32_t portions_log2(const MqaParams& p) {
        static_assert(kMqaSlots == 4);
        return parts(p) == 1 ? 2 : parts(p) == 2 ? 1 : 0;
    }
    __device__ static MqaSlot of(const MqaParams& p, uint32_t portion) {
        const uint32_t log2 = portions_log2(p);
        return {(portion & ((1u << log2) - 1)) * parts(p), portion >> log2 & 1};
    }
};

/// One ring for each math warpgroup. Of several parts two or four warpgroups share one, with the stages of all: each
/// multiplies all of its tiles by one part, whose weights it keeps; of three parts one has none.
template <MqaConfig C>
struct MqaRings {
    uint32_t sharers_log2;  // warpgroups of a ring: 2 to this power
    uint32_t each;          // stages that one of them brings

    __device__ static uint32_t sharers_log2_of(const MqaParams& p) {
        const uint32_t parts = MqaSlot<C>::parts(p);
        return parts == 1 ? 0 : parts == 2 ? 1 : 2;
    }
    /// Told once it is known how many tiles the CTA has.
    __device__ static void tell(const MqaShared<C>& smem, bool many) {
        ptx::store_shared(smem.split(0), float_of_bits(many ? C.stages() : C.few_stages()));
    }
    __device__ static MqaRings of(const MqaParams& p, const MqaShared<C>& smem) {
        const bool told = C.few_stages() < C.stages();
        return {sharers_log2_of(p), told ? ptx::broadcast(float_bits(ptx::load_shared(smem.split(0)))) : C.stages()};
    }
    __device__ uint32_t sharers() const { return 1 << sharers_log2; }
    __device__ uint32_t count() const { return kMqaWarpgroups >> sharers_log2; }
    __device__ uint32_t stages() const { return each << sharers_log2; }
    __device__ uint32_t stage_of(uint32_t ring, uint32_t stage) const { return ring * stages() + stage; }
};

/// Where in a ring somebody is: core/ring.h, for as many stages as the ring has.
struct MqaCursor {
    uint32_t stage = 0, parity = 0;

    __device__ void advance(uint32_t stages) {
        const bool wraps = ++stage == stages;
        stage = wraps ? 0 : stage;
        parity ^= wraps ? 1 : 0;
    }
};

}  // namespace finegemm::device
