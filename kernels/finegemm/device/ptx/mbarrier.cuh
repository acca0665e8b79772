// mbarriers. Layer device. One instruction per function. PTX ISA, "Parallel synchronization: mbarrier".
#pragma once

#include <finegemm/device/ptx/memory.cuh>

namespace finegemm::ptx {

__device__ inline void mbarrier_init(SmemAddr barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier.bits), "r"(arrivals) : "memory");
}

/// Makes initialised mbarriers visible to the other CTAs of the cluster and to the async proxy.
__device__ inline void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ inline void mbarrier_arrive(SmemAddr barrier, uint32_t times = 1) {
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(barrier.bits), "r"(times) : "memory");
}

/// Arrives once `loaded` has come from memory. ptxas lets an arrival pass loads that nothing has used, and behind many
/// stores these take longer than what is told by the arrival takes to overwrite what they read.
__device__ inline void mbarrier_arrive_having(SmemAddr barrier, uint32_t loaded) {
    asm volatile(
        "{\n.reg .b32 one;\nor.b32 one, %1, 1;\nmin.u32 one, one, 1;\n"
        "mbarrier.arrive.release.cta.shared::cta.b64 _, [%0], one;\n}\n" ::"r"(barrier.bits),
        "r"(loaded)
        : "memory");
}

/// Arrives at a barrier of any CTA of the cluster; the address comes from map_to_rank. The scope stays that of the CTA:
/// what the arrival orders are tensor-core and TMA accesses of stages, and cluster scope costs a flush of the L1 cache
/// at each arrival.
__device__ inline void mbarrier_arrive_cluster(SmemAddr barrier) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier.bits) : "memory");
}

/// Likewise, with cluster scope, for what the other CTA overwrites when it knows of the arrival.
__device__ inline void mbarrier_arrive_release_cluster(SmemAddr barrier) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier.bits) : "memory");
}

/// Arrives once and expects bytes that asynchronous copies will write.
__device__ inline void mbarrier_arrive_expect_tx(SmemAddr barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(barrier.bits), "r"(bytes)
                 : "memory");
}

/// Likewise, at a barrier of any CTA of the cluster, whose address map_to_rank gives. It orders nothing.
__device__ inline void mbarrier_arrive_expect_tx_cluster(SmemAddr barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(barrier.bits),
                 "r"(bytes)
                 : "memory");
}

/// mbarrier_arrive_expect_tx by one lane of a converged warp, always the same one. PTX ISA, elect.sync.
__device__ inline void mbarrier_expect_tx_elected(SmemAddr barrier, uint32_t bytes) {
    asm volatile(
        "{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\n"
        "@p mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;\n}\n" ::"r"(barrier.bits),
        "r"(bytes)
        : "memory");
}

/// Arrives when all copies that this thread has started (copy_async) have landed. PTX ISA, cp.async.mbarrier.arrive.
__device__ inline void mbarrier_arrive_after_copies(SmemAddr barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier.bits) : "memory");
}

/// True once the phase of this parity has completed. The hardware suspends the thread for a while before it says no.
__device__ inline bool mbarrier_try_wait(SmemAddr barrier, uint32_t parity) {
    uint32_t done;
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, "
        "p;\n}\n"
        : "=r"(done)
        : "r"(barrier.bits), "r"(parity)
        : "memory");
    return done != 0;
}

/// Likewise, at once.
__device__ inline bool mbarrier_test_wait(SmemAddr barrier, uint32_t parity) {
    uint32_t done;
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.test_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, "
        "p;\n}\n"
        : "=r"(done)
        : "r"(barrier.bits), "r"(parity)
        : "memory");
    return done != 0;
}

/// mbarrier_try_wait with cluster scope, for ordinary data that other CTAs have stored.
__device__ inline bool mbarrier_try_wait_cluster(SmemAddr barrier, uint32_t parity) {
    uint32_t done;
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, "
        "p;\n}\n"
        : "=r"(done)
        : "r"(barrier.bits), "r"(parity)
        : "memory");
    return done != 0;
}

}  // namespace finegemm::ptx
