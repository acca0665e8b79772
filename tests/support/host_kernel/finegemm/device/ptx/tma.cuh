// TMA, on the host: bytes come late, and until then others lie there. Tensor maps are the mock driver's. Layer tests.
#pragma once

#include <functional>
#include <map>

#include <finegemm/core/tma_box.h>
#include <finegemm/device/ptx/mbarrier.cuh>

#include "support/mock_driver.h"

namespace finegemm::ptx {

inline void prefetch_tensor_map(const TensorMap*) {}

/// Maps that kernels have written, and what makes them ones that loads may read.
enum class Written { ByThread, Released };
inline std::map<const TensorMap*, Written> written_maps;

inline void replace_map(TensorMap* map, const std::function<void(mock::Description&)>& change) {
    mock::Description d = mock::description_of(*map);
    change(d);
    std::memcpy(map, &d, sizeof d);
    written_maps[map] = Written::ByThread;
}
inline void replace_address(TensorMap* map, const void* data) {
    check_aligned(data, 16);
    replace_map(map, [=](mock::Description& d) { d.data = data; });
}
inline void replace_cols(TensorMap* map, uint32_t cols) {
    replace_map(map, [=](mock::Description& d) { d.cols = cols; });
}
inline void replace_row_stride(TensorMap* map, uint64_t bytes) {
    if (bytes % 16 != 0) machine->fail("TMA wants rows that begin at multiples of 16 bytes");
    replace_map(map, [=](mock::Description& d) { d.row_stride_bytes = bytes; });
}
inline void release_tensor_maps() {
    for (auto& [map, state] : written_maps) state = Written::Released;
}
inline void acquire_tensor_map(const TensorMap* map) {
    const auto found = written_maps.find(map);
    if (found != written_maps.end() && found->second == Written::Released) written_maps.erase(found);
}

/// `cta`: of the cluster, where it arrives; addresses are those of each CTA.
inline void arrive_later(uint32_t cta, SmemAddr to, uint32_t bytes, SmemAddr barrier, std::function<void()> copy) {
    std::memset(machine->shared_of(cta) + to.bits, 0xff, bytes);
    machine->mbarrier_of(cta, barrier.bits);
    machine->later_in(cta, [=] {
        copy();
        machine->overwritten(to.bits, bytes);
        machine->come(machine->mbarrier(barrier.bits), bytes);
    });
}
inline void arrive_later(SmemAddr to, uint32_t bytes, SmemAddr barrier, std::function<void()> copy) {
    arrive_later(machine->cta(), to, bytes, barrier, std::move(copy));
}

/// Calls visit(where an element's bytes lie in shared memory, where in global memory; null outside, how many) for a
/// box.
template <typename Visit>
void for_each_element(const mock::Description& d, SmemAddr at, uint32_t x, uint32_t y, uint32_t z, const Visit& visit) {
    constexpr Swizzle kSwizzles[] = {Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128};
    const uint32_t element = mock::element_bytes(d), row_bytes = d.box_cols * element;
    for (uint32_t i = 0; i < d.box_count * d.box_rows; ++i)
        for (uint32_t c = 0; c < d.box_cols; ++c) {
            const uint64_t matrix = uint64_t{z} + i / d.box_rows, row = uint64_t{y} + i % d.box_rows;
            const bool exists = row < d.rows && uint64_t{x} + c < d.cols && (d.count == 0 || matrix < d.count);
            auto* const global = static_cast<uint8_t*>(const_cast<void*>(d.data)) + matrix * d.stride_bytes +
                                 row * d.row_stride_bytes + (uint64_t{x} + c) * element;
            visit(host_address({swizzled(at.bits + i * row_bytes + c * element, kSwizzles[d.swizzle])}),
                  exists ? global : nullptr, element);
        }
}

/// To all CTAs of the cluster whose bits are set, to each in a time of its own.
inline void tma_load_multicast(SmemAddr to, const TensorMap* map, SmemAddr barrier, uint32_t x, uint32_t y, uint32_t z,
                               uint16_t ranks, uint64_t) {
    const mock::Description d = mock::description_of(*map);
    if (written_maps.contains(map)) machine->fail("TMA reads a map that was written and not acquired");
    machine->check_not_earlier(d.data);
    if (to.bits % 128 != 0) machine->fail("TMA wants 128 bytes aligned");
    if (x * mock::element_bytes(d) % 16 != 0) machine->fail("TMA wants boxes that begin at multiples of 16 bytes");
    if (ranks == 0 || ranks >> machine->ctas() != 0) machine->fail("TMA wants ranks of the cluster");
    for (uint32_t rank = 0; rank < machine->ctas(); ++rank) {
        if ((ranks >> rank & 1) == 0) continue;
        arrive_later(rank, to, mock::box_bytes(d), barrier, [=] {
            for_each_element(d, to, x, y, z, [](uint8_t* shared, const uint8_t* global, uint32_t bytes) {
                if (global) std::memcpy(shared, global, bytes);
                else std::memset(shared, 0, bytes);
            });
        });
    }
}
inline void tma_load_multicast(SmemAddr to, const TensorMap* map, SmemAddr barrier, uint32_t x, uint32_t y,
                               uint16_t ranks, uint64_t policy) {
    tma_load_multicast(to, map, barrier, x, y, 0, ranks, policy);
}
inline void tma_load_stacked(SmemAddr to, const TensorMap* map, SmemAddr barrier, uint32_t x, uint32_t y, uint32_t z) {
    tma_load_multicast(to, map, barrier, x, y, z, static_cast<uint16_t>(1u << machine->cta()), 0);
}
inline void tma_load(SmemAddr to, const TensorMap* map, SmemAddr barrier, uint32_t x, uint32_t y) {
    tma_load_stacked(to, map, barrier, x, y, 0);
}
inline void tma_load(SmemAddr to, const TensorMap* map, SmemAddr barrier, uint32_t x, uint32_t y, uint64_t) {
    tma_load_stacked(to, map, barrier, x, y, 0);
}
inline void tma_load(SmemAddr to, const TensorMap* map, SmemAddr barrier, uint32_t x, uint32_t y, uint32_t z,
                     uint64_t) {
    tma_load_stacked(to, map, barrier, x, y, z);
}
inline void tma_load_elected(SmemAddr to, const TensorMap* map, SmemAddr barrier, uint32_t x, uint32_t y,
                             uint32_t z = 0) {
    if (elect_one()) tma_load_stacked(to, map, barrier, x, y, z);
}
inline void tma_load_elected(SmemAddr to, const TensorMap* map, SmemAddr barrier, uint32_t x, uint32_t y, uint32_t z,
                             uint64_t) {
    tma_load_elected(to, map, barrier, x, y, z);
}
/// Takes what can be read.
inline void prefetch_global(const void* at) { static_cast<void>(*static_cast<const volatile uint8_t*>(at)); }
inline void bulk_prefetch(const void* from, uint32_t bytes) {
    if (reinterpret_cast<uintptr_t>(from) % 16 != 0 || bytes % 16 != 0) machine->fail("a bulk prefetch is not aligned");
    prefetch_global(from);
    prefetch_global(static_cast<const uint8_t*>(from) + bytes - 1);
}
/// Takes a box that exists in part at least: anything else would be a prefetch in vain.
inline void tma_prefetch(const TensorMap* map, uint32_t x, uint32_t y, uint32_t z, uint64_t) {
    const mock::Description d = mock::description_of(*map);
    if (x >= d.cols || y >= d.rows || (d.count > 0 && z >= d.count)) machine->fail("it prefetches what does not exist");
}

inline void tma_store(const TensorMap* map, SmemAddr from, uint32_t x, uint32_t y, uint32_t z = 0) {
    const mock::Description d = mock::description_of(*map);
    if (!elect_one()) return;
    machine->later([=] {
        machine->check_fenced(from.bits, mock::box_bytes(d));
        struct Element {
            uint8_t* to;
            uint32_t bits, bytes;
        };
        std::vector<Element> elements;
        for_each_element(d, from, x, y, z, [&](const uint8_t* shared, uint8_t* global, uint32_t bytes) {
            Element element{global, 0, bytes};
            std::memcpy(&element.bits, shared, bytes);
            if (global) elements.push_back(element);
        });
        machine->land([elements = std::move(elements)] {
            for (const Element& element : elements) std::memcpy(element.to, &element.bits, element.bytes);
        });
    });
}

inline void bulk_load(SmemAddr to, const void* from, uint32_t bytes, SmemAddr barrier) {
    check_aligned(from, 16);
    machine->check_not_earlier(from);
    if (to.bits % 16 != 0 || bytes % 16 != 0) machine->fail("bulk copies want 16 bytes aligned");
    arrive_later(to, bytes, barrier, [=] { std::memcpy(host_address(to), from, bytes); });
}
inline void bulk_load(SmemAddr to, const void* from, uint32_t bytes, SmemAddr barrier, uint64_t) {
    bulk_load(to, from, bytes, barrier);
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
    while (machine->has_pending(machine->current(), false)) machine->let_others_run();
}
inline void fence_proxy_async_shared() { machine->fence(); }

}  // namespace finegemm::ptx
