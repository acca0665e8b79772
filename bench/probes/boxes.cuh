// A matrix of bytes in boxes of 128 rows of 128: where each lies, and the tensor map that TMA loads them by.
// Layer bench.
#pragma once

#include <cuda.h>

#include <finegemm/device/ptx/tma.cuh>

#include "probe.cuh"

namespace probe {

constexpr uint32_t kBox = 128, kBoxBytes = kBox * kBox, kPitch = 4096;  // bytes of a row of the matrix
constexpr uint64_t kEvictNormal = 0x1000000000000000, kEvictFirst = 0x12f0000000000000;

__host__ __device__ constexpr uint32_t box_x(uint32_t box) { return box % (kPitch / kBox) * kBox; }
__host__ __device__ constexpr uint32_t box_y(uint32_t box) { return box / (kPitch / kBox) * kBox; }

/// `pitch`: bytes of a row.
inline TensorMap map_of(char* data, size_t bytes, uint32_t box_rows, size_t pitch = kPitch) {
    void* entry;
    cudaDriverEntryPointQueryResult found;
    CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found));
    TensorMap map;
    const cuuint64_t extents[] = {pitch, bytes / pitch}, strides[] = {pitch};
    const cuuint32_t box[] = {kBox, box_rows}, steps[] = {1, 1};
    const CUresult result = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry)(
        reinterpret_cast<CUtensorMap*>(&map), CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, data, extents, strides, box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    check(result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue, "cuTensorMapEncodeTiled");
    return map;
}

}  // namespace probe
