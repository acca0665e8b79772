// TMA, on the host: bytes come late, and until then others lie there. Tensor maps are the mock driver's. Layer tests.
#pragma once

#include <finegemm/core/tma_box.h>
#include <finegemm/device/ptx/mbarrier.cuh>

#include "support/mock_driver.h"

namespace finegemm::ptx {

inline void prefetch_tensor_map(const TensorMap*) {}

inline void arrive_later(SmemAddr to, uint32_t bytes, SmemAddr barrier, std::function<void()> copy) {
    std::memset(host_address(to), 0xff, bytes);
    machine->mbarrier(barrier.bits);
    machine->later([=] {
        copy();
        machine->overwritten(to.bits, bytes);
        machine->come(machine->mbarrier(barrier.bits), bytes);
    });
}

inline void tma_load_stacked(SmemAddr to, const TensorMap* map, SmemAddr barrier, uint32_t x, uint32_t y, uint32_t z) {
    const mock::Description d = mock::description_of(*map);
    constexpr Swizzle kSwizzles[] = {Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128};
    const uint32_t element = d.type == 0 ? 1 : d.type == 9 ? 2 : 4, row_bytes = d.box_cols * element;
    if (to.bits % 128 != 0) machine->fail("TMA wants 128 bytes aligned");
    arrive_later(to, d.box_rows * row_bytes, barrier, [=] {
        for (uint32_t r = 0; r < d.box_rows; ++r)
            for (uint32_t i = 0; i < row_bytes; ++i) {
                const uint64_t col = x + i / element;
                const bool exists = y + r < d.rows && col < d.cols && (d.count == 0 || z < d.count);
                const auto* from = static_cast<const uint8_t*>(d.data) + z * d.stride_bytes +
                                   (y + r) * d.row_stride_bytes + uint64_t{x} * element + i;
                *host_address({swizzled(to.bits + r * row_bytes + i, kSwizzles[d.swizzle])}) = exists ? *from : 0;
            }
    });
}
inline void tma_load(SmemAddr to, const TensorMap* map, SmemAddr barrier, uint32_t x, uint32_t y) {
    tma_load_stacked(to, map, barrier, x, y, 0);
}
inline void tma_load(SmemAddr to, const TensorMap* map, SmemAddr barrier, uint32_t x, uint32_t y, uint64_t) {
    tma_load(to, map, barrier, x, y);
}

inline void bulk_load(SmemAddr to, const void* from, uint32_t bytes, SmemAddr barrier) {
    check_aligned(from, 16);
    if (to.bits % 16 != 0 || bytes % 16 != 0) machine->fail("bulk copies want 16 bytes aligned");
    arrive_later(to, bytes, barrier, [=] { std::memcpy(host_address(to), from, bytes); });
}
inline void bulk_store(void* to, SmemAddr from, uint32_t bytes) {
    check_aligned(to, 16);
    if (from.bits % 16 != 0 || bytes % 16 != 0) machine->fail("bulk copies want 16 bytes aligned");
    machine->later([=] {
        machine->check_fenced(from.bits, bytes);
        std::memcpy(to, host_address(from), bytes);
    });
}
inline void bulk_commit_group() {}
inline void bulk_wait_read() {
    while (machine->has_pending(machine->current())) machine->let_others_run();
}
inline void fence_proxy_async_shared() { machine->fence(); }

}  // namespace finegemm::ptx
