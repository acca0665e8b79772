// The kernel that writes a list of groups of K: their offsets, and tensor maps of their blocks. Layer device.
#pragma once

#include <finegemm/gemm/group_list.h>
#include <finegemm/device/ptx/tma.cuh>

#if defined(__CUDACC_VER_MAJOR__) && __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ < 1205
#error "tensormap.replace takes a stride in other units before CUDA 12.5; use a newer NVRTC or nvcc"
#endif

namespace finegemm::device {

/// The map of the block whose `cols` columns begin at k.
__device__ inline void list_block(TensorMap* to, const ListedBlocks& of, int64_t k, uint32_t cols, uint32_t bytes) {
    *to = of.map;
    ptx::replace_address(to, of.data + k * of.k_bytes);
    ptx::replace_cols(to, cols);
    ptx::replace_row_stride(to, static_cast<uint64_t>(cols) * bytes);
}

/// A thread for each group, and one for the end of the last.
template <GroupListConfig C>
__device__ void write_group_list(const GroupListParams& p) {
    const uint32_t i = blockIdx.x * C.threads() + threadIdx.x;
    if (i > p.groups) return;
    const int32_t k = p.offsets[i];
    p.offsets_to[p.first + i] = k;
    if (!p.maps_to || i == p.groups) return;
    const uint32_t cols = static_cast<uint32_t>(p.offsets[i + 1] - k);
    if (cols == 0) return;  // nothing is loaded
    TensorMap* const maps = p.maps_to + 2 * (p.first + i);
    list_block(maps, p.a, k, cols, p.element_bytes);
    list_block(maps + 1, p.b, k, cols, p.element_bytes);
    ptx::release_tensor_maps();  // the product's kernel acquires them: TMA else may read what its cache has of before
}

}  // namespace finegemm::device
