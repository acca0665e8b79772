// Addresses of everything in the shared memory of a kernel for weights of 4 bits. Layer device.
#pragma once

#include <finegemm/four_bit/four_bit.h>
#include <finegemm/device/pipeline/wait.cuh>

namespace finegemm::device {

using ptx::SmemAddr;

template <FourBitConfig C>
struct FourBitShared {
    static constexpr FourBitSmemPlan kAt = four_bit_smem(C);
    SmemAddr base;

    __device__ SmemAddr a(uint32_t stage) const { return base + (kAt.a + stage * kAt.a_stage); }
    __device__ SmemAddr b(uint32_t stage, uint32_t block) const {
        return base + (kAt.b + (stage * C.blocks() + block) * kFourBitBlockBytes);
    }
    __device__ SmemAddr row_scales(uint32_t stage, uint32_t set = 0) const {
        return base + (kAt.scales + stage * kAt.scales_stage + set * C.scale_places() * 4);
    }
    __device__ SmemAddr block_scale(uint32_t stage, uint32_t block) const {
        return row_scales(stage, C.scale_sets()) + block * 4;
    }
    __device__ SmemAddr decoded(uint32_t slot) const { return base + (kAt.decoded + slot * kDecodedBytes); }
    __device__ SmemAddr d(uint32_t warpgroup) const { return base + (kAt.d + warpgroup * kAt.d_warpgroup); }
    __device__ SmemAddr tile(uint32_t stage) const { return base + (kAt.tiles + stage * 16); }
    __device__ SmemAddr full(uint32_t stage) const { return base + (kAt.full + stage * 8); }
    __device__ SmemAddr scaled(uint32_t stage) const { return base + (kAt.scaled + stage * 8); }
    __device__ SmemAddr empty(uint32_t stage) const { return base + (kAt.empty + stage * 8); }
    __device__ SmemAddr is_decoded(uint32_t slot) const { return base + (kAt.is_decoded + slot * 8); }
    __device__ SmemAddr free(uint32_t slot) const { return base + (kAt.free + slot * 8); }
};

}  // namespace finegemm::device
