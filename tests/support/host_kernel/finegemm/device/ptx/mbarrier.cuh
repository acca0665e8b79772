// mbarriers, on the host. Layer tests.
#pragma once

#include <finegemm/device/ptx/memory.cuh>

namespace finegemm::ptx {

inline void mbarrier_init(SmemAddr barrier, uint32_t arrivals) {
    machine->mbarrier(barrier.bits) = {.expected = arrivals, .pending = arrivals};
}
inline void fence_mbarrier_init() {}

inline void mbarrier_arrive(SmemAddr barrier, uint32_t times = 1) {
    machine->pause();
    machine->arrive(machine->mbarrier(barrier.bits), times, 0);
}
inline void mbarrier_arrive_having(SmemAddr barrier, uint32_t) { mbarrier_arrive(barrier); }
inline void mbarrier_arrive_release_cluster(SmemAddr barrier) {
    machine->pause();
    machine->shared_of(rank_of(barrier));
    machine->arrive(machine->mbarrier_of(rank_of(barrier), offset_of(barrier)), 1, 0);
}
inline void mbarrier_arrive_expect_tx(SmemAddr barrier, uint32_t bytes) {
    machine->pause();
    machine->arrive(machine->mbarrier(barrier.bits), 1, bytes);
}
inline void mbarrier_arrive_expect_tx_cluster(SmemAddr barrier, uint32_t bytes) {
    machine->pause();
    machine->shared_of(rank_of(barrier));
    machine->arrive(machine->mbarrier_of(rank_of(barrier), offset_of(barrier)), 1, bytes);
}
inline void mbarrier_expect_tx_elected(SmemAddr barrier, uint32_t bytes) {
    if (elect_one()) mbarrier_arrive_expect_tx(barrier, bytes);
}
inline void mbarrier_arrive_cluster(SmemAddr barrier) { mbarrier_arrive_release_cluster(barrier); }
inline void mbarrier_arrive_after_copies(SmemAddr barrier) {
    machine->pause();
    machine->after_copies([=] { machine->arrive(machine->mbarrier(barrier.bits), 1, 0); });
}
/// Waits until it can say yes.
inline bool mbarrier_try_wait(SmemAddr barrier, uint32_t parity) {
    const host_kernel::Mbarrier& b = machine->mbarrier(barrier.bits);
    if (b.expected == 0) machine->fail("it waits at an mbarrier that has not been made");
    if ((b.phase & 1) == parity) machine->wait_while(b.phase, 1, parity, "an mbarrier");
    return true;
}
inline bool mbarrier_test_wait(SmemAddr barrier, uint32_t parity) {
    machine->pause();
    const host_kernel::Mbarrier& b = machine->mbarrier(barrier.bits);
    if (b.expected == 0) machine->fail("it looks at an mbarrier that has not been made");
    return (b.phase & 1) != parity;
}
inline bool mbarrier_try_wait_cluster(SmemAddr barrier, uint32_t parity) { return mbarrier_try_wait(barrier, parity); }

}  // namespace finegemm::ptx
