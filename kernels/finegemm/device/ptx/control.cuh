// Registers, barriers of a CTA and of a cluster, dependent launches. Layer device. One instruction per function.
#pragma once

#include <finegemm/core/base.h>

namespace finegemm::ptx {

/// Gives registers of this warpgroup back; all its warps execute it. PTX ISA, setmaxnreg.
template <uint32_t Registers>
__device__ inline void setmaxnreg_dec() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

template <uint32_t Registers>
__device__ inline void setmaxnreg_inc() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

/// Waits for `threads` threads, this one included, at barrier `id` (0..15) of this CTA. PTX ISA, bar.sync.
__device__ inline void named_barrier_sync(uint32_t id, uint32_t threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// Counts this warp at the barrier without waiting.
__device__ inline void named_barrier_arrive(uint32_t id, uint32_t threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ inline uint32_t cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
/// Orders no memory, which takes 800 clocks: for what fence_mbarrier_init has made visible. PTX ISA, barrier.cluster.
__device__ inline void cluster_arrive_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

/// Ends the kernel with an error. PTX ISA, trap.
__device__ inline void trap() { asm volatile("trap;"); }

/// One lane of a converged warp. PTX ISA, elect.sync.
__device__ inline bool elect_one() {
    uint32_t chosen;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}\n" : "=r"(chosen));
    return chosen != 0;
}

/// This thread's lane. Read anew each time: what follows from threadIdx keeps registers for all of a loop around it.
__device__ inline uint32_t lane() {
    uint32_t lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

/// threadIdx.x, likewise.
__device__ inline uint32_t thread() {
    uint32_t thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

/// The value of lane 0, in all lanes of a converged warp: the compiler then knows that it is the same in all of them.
__device__ inline uint32_t broadcast(uint32_t x) {
    asm volatile("shfl.sync.idx.b32 %0, %0, 0, 0x1f, 0xffffffff;" : "+r"(x));
    return x;
}

/// The value of lane `lane`, in all lanes of a converged warp. PTX ISA, shfl.sync.
__device__ inline uint32_t value_of(uint32_t x, uint32_t lane) {
    asm volatile("shfl.sync.idx.b32 %0, %0, %1, 0x1f, 0xffffffff;" : "+r"(x) : "r"(lane));
    return x;
}

/// The value of the lane `distance` below; in lanes that have none below, their own.
__device__ inline uint32_t value_below(uint32_t x, uint32_t distance) {
    asm volatile("shfl.sync.up.b32 %0, %0, %1, 0, 0xffffffff;" : "+r"(x) : "r"(distance));
    return x;
}

/// One bit for each lane of a converged warp. PTX ISA, vote.sync.
__device__ inline uint32_t ballot(bool x) {
    uint32_t lanes;
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %1, 0;\nvote.sync.ballot.b32 %0, p, 0xffffffff;\n}\n"
                 : "=r"(lanes)
                 : "r"(static_cast<uint32_t>(x)));
    return lanes;
}

/// The sum of what the lanes of a converged warp have. PTX ISA, redux.sync.
__device__ inline uint32_t sum_of_lanes(uint32_t x) {
    uint32_t sum;
    asm volatile("redux.sync.add.u32 %0, %1, 0xffffffff;" : "=r"(sum) : "r"(x));
    return sum;
}

__device__ inline uint32_t count_bits(uint32_t x) {
    uint32_t count;
    asm("popc.b32 %0, %1;" : "=r"(count) : "r"(x));
    return count;
}

/// Index of the highest bit that is set. PTX ISA, bfind.
__device__ inline uint32_t highest_bit(uint32_t x) {
    uint32_t index;
    asm("bfind.u32 %0, %1;" : "=r"(index) : "r"(x));
    return index;
}

/// Index of the lowest bit that is set. PTX ISA, brev and bfind.
__device__ inline uint32_t lowest_bit(uint32_t x) {
    uint32_t index;
    asm("{\n.reg .b32 r;\nbrev.b32 r, %1;\nbfind.shiftamt.u32 %0, r;\n}\n" : "=r"(index) : "r"(x));
    return index;
}

/// Lets the next kernel of the stream start, if it was launched to overlap with this one; what this one writes it must
/// wait for (grid_dependency_wait). PTX ISA, griddepcontrol.
__device__ inline void grid_launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

/// Waits for the end of the kernels that this one was launched to overlap with; returns at once when there are none.
__device__ inline void grid_dependency_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

}  // namespace finegemm::ptx
