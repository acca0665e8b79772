// TMA, the bulk tensor copy engine. Layer device. One instruction per function. PTX ISA, cp.async.bulk.tensor.
#pragma once

#include <finegemm/core/tensor_map.h>
#include <finegemm/device/ptx/memory.cuh>

namespace finegemm::ptx {

/// Loads a tensor map into the cache that TMA reads it from. PTX ISA, prefetch.tensormap.
__device__ inline void prefetch_tensor_map(const TensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// Gives a tensor map in global memory another address, of whole 16 bytes. PTX ISA, tensormap.replace.
__device__ inline void replace_address(TensorMap* map, const void* data) {
    asm volatile("tensormap.replace.tile.global_address.global.b1024.b64 [%0], %1;" ::"l"(map), "l"(data) : "memory");
}
/// Another number of columns, in elements.
__device__ inline void replace_cols(TensorMap* map, uint32_t cols) {
    asm volatile("tensormap.replace.tile.global_dim.global.b1024.b32 [%0], 0, %1;" ::"l"(map), "r"(cols) : "memory");
}
/// Other bytes from row to row, a multiple of 16.
__device__ inline void replace_row_stride(TensorMap* map, uint64_t bytes) {
    asm volatile("tensormap.replace.tile.global_stride.global.b1024.b64 [%0], 0, %1;" ::"l"(map), "l"(bytes)
                 : "memory");
}
/// Makes the maps that the thread has written ones that others can acquire. PTX ISA, fence.proxy.tensormap.
__device__ inline void release_tensor_maps() {
    asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
}
/// Has the thread's next loads by this map see what was released, not what TMA's cache has of its address.
__device__ inline void acquire_tensor_map(const TensorMap* map) {
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

/// Loads the box at (x, y), x along the contiguous dimension, into this CTA; its bytes count on `barrier`.
__device__ inline void tma_load(SmemAddr to, const TensorMap* map, SmemAddr barrier, uint32_t x, uint32_t y,
                                uint64_t policy) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, "
        "%4}], [%2], %5;" ::"r"(to.bits),
        "l"(map), "r"(barrier.bits), "r"(x), "r"(y), "l"(policy)
        : "memory");
}

/// tma_load with the device's own cache policy.
__device__ inline void tma_load(SmemAddr to, const TensorMap* map, SmemAddr barrier, uint32_t x, uint32_t y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
            to.bits),
        "l"(map), "r"(barrier.bits), "r"(x), "r"(y)
        : "memory");
}
/// Likewise from matrix z of a stack; named apart from the load of a matrix with a policy.
__device__ inline void tma_load_stacked(SmemAddr to, const TensorMap* map, SmemAddr barrier, uint32_t x, uint32_t y,
                                        uint32_t z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
        "[%2];" ::"r"(to.bits),
        "l"(map), "r"(barrier.bits), "r"(x), "r"(y), "r"(z)
        : "memory");
}

/// Loads bytes that lie one behind the other. Addresses and number are multiples of 16. PTX ISA, cp.async.bulk.
__device__ inline void bulk_load(SmemAddr to, const void* from, uint32_t bytes, SmemAddr barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to.bits),
        "l"(from), "r"(bytes), "r"(barrier.bits)
        : "memory");
}

/// bulk_load with a cache policy.
__device__ inline void bulk_load(SmemAddr to, const void* from, uint32_t bytes, SmemAddr barrier, uint64_t policy) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], "
        "%4;" ::"r"(to.bits),
        "l"(from), "r"(bytes), "r"(barrier.bits), "l"(policy)
        : "memory");
}

/// Stores bytes that lie one behind the other; the thread has to commit them. PTX ISA, cp.async.bulk.
__device__ inline void bulk_store(void* to, SmemAddr from, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from.bits), "r"(bytes)
                 : "memory");
}

/// tma_load into all CTAs of the cluster whose bit is set in `ranks`, at the same offset, counting on each one's
/// barrier.
__device__ inline void tma_load_multicast(SmemAddr to, const TensorMap* map, SmemAddr barrier, uint32_t x, uint32_t y,
                                          uint16_t ranks, uint64_t policy) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
        "[%0], [%1, {%3, %4}], [%2], %5, %6;" ::"r"(to.bits),
        "l"(map), "r"(barrier.bits), "r"(x), "r"(y), "h"(ranks), "l"(policy)
        : "memory");
}

/// tma_load from matrix z of a stack.
__device__ inline void tma_load(SmemAddr to, const TensorMap* map, SmemAddr barrier, uint32_t x, uint32_t y, uint32_t z,
                                uint64_t policy) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, "
        "%4, %5}], [%2], %6;" ::"r"(to.bits),
        "l"(map), "r"(barrier.bits), "r"(x), "r"(y), "r"(z), "l"(policy)
        : "memory");
}

__device__ inline void tma_load_multicast(SmemAddr to, const TensorMap* map, SmemAddr barrier, uint32_t x, uint32_t y,
                                          uint32_t z, uint16_t ranks, uint64_t policy) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5}], [%2], %6, %7;" ::"r"(to.bits),
        "l"(map), "r"(barrier.bits), "r"(x), "r"(y), "r"(z), "h"(ranks), "l"(policy)
        : "memory");
}

/// Prefetches the line of an address to L2. PTX ISA, prefetch.
__device__ inline void prefetch_global(const void* at) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(at) : "memory");
}

/// Prefetches bytes that are contiguous to L2, both the address and the number a multiple of 16. PTX ISA,
/// cp.async.bulk.prefetch.
__device__ inline void bulk_prefetch(const void* from, uint32_t bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

/// Prefetches the box at (x, y) to L2. PTX ISA, cp.async.bulk.prefetch.tensor.
__device__ inline void tma_prefetch(const TensorMap* map, uint32_t x, uint32_t y) {
    asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global [%0, {%1, %2}];" ::"l"(map), "r"(x), "r"(y) : "memory");
}

/// Prefetches a box of matrix z of a stack to L2. PTX ISA, cp.async.bulk.prefetch.tensor.
__device__ inline void tma_prefetch(const TensorMap* map, uint32_t x, uint32_t y, uint32_t z, uint64_t policy) {
    asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.L2::cache_hint [%0, {%1, %2, %3}], %4;" ::"l"(map), "r"(x),
                 "r"(y), "r"(z), "l"(policy)
                 : "memory");
}

/// tma_load by one lane of a converged warp, always the same one, with the device's own cache policy.
/// PTX ISA, elect.sync.
__device__ inline void tma_load_elected(SmemAddr to, const TensorMap* map, SmemAddr barrier, uint32_t x, uint32_t y) {
    asm volatile(
        "{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\n"
        "@p cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], "
        "[%2];\n}\n" ::"r"(to.bits),
        "l"(map), "r"(barrier.bits), "r"(x), "r"(y)
        : "memory");
}

/// tma_load_elected from matrix z of a stack.
__device__ inline void tma_load_elected(SmemAddr to, const TensorMap* map, SmemAddr barrier, uint32_t x, uint32_t y,
                                        uint32_t z) {
    asm volatile(
        "{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\n"
        "@p cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
        "[%2];\n}\n" ::"r"(to.bits),
        "l"(map), "r"(barrier.bits), "r"(x), "r"(y), "r"(z)
        : "memory");
}

__device__ inline void tma_load_elected(SmemAddr to, const TensorMap* map, SmemAddr barrier, uint32_t x, uint32_t y,
                                        uint32_t z, uint64_t policy) {
    asm volatile(
        "{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\n"
        "@p cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, "
        "%4, %5}], [%2], %6;\n}\n" ::"r"(to.bits),
        "l"(map), "r"(barrier.bits), "r"(x), "r"(y), "r"(z), "l"(policy)
        : "memory");
}

/// Stores a box at (x, y) from this CTA, by one lane of a converged warp, always the same one; what lies outside of the
/// matrix is not written. PTX ISA, cp.async.bulk.tensor and elect.sync.
__device__ inline void tma_store(const TensorMap* map, SmemAddr from, uint32_t x, uint32_t y) {
    asm volatile(
        "{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\n"
        "@p cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];\n}\n" ::"l"(map),
        "r"(from.bits), "r"(x), "r"(y)
        : "memory");
}

/// tma_store to matrix z of a stack.
__device__ inline void tma_store(const TensorMap* map, SmemAddr from, uint32_t x, uint32_t y, uint32_t z) {
    asm volatile(
        "{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\n"
        "@p cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];\n}\n" ::"l"(map),
        "r"(from.bits), "r"(x), "r"(y), "r"(z)
        : "memory");
}

/// Makes a group of the stores of this thread since the last call. PTX ISA, cp.async.bulk.commit_group.
__device__ inline void bulk_commit_group() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

/// Until shared memory has been read by all groups of this thread. PTX ISA, cp.async.bulk.wait_group.
__device__ inline void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }

/// Orders this thread's ordinary stores to shared memory before what TMA and wgmma read there. PTX ISA, fence.proxy.
__device__ inline void fence_proxy_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace finegemm::ptx
