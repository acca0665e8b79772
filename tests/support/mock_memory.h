// The mock driver's memory, copies and events. Layer tests; only mock_driver.cpp includes it.
#pragma once

#include <cstring>
#include <new>

#include "mock_internals.h"

namespace finegemm::mock {

inline int cuMemsetD2D8Async(char* to, size_t pitch, unsigned char value, size_t width, size_t height, void*) {
    const Entry entry("cuMemsetD2D8Async");
    if (entry.result) return entry.result;
    if (stack.empty()) return kInvalidContext;
    if (height > 1 && pitch < width) return kInvalidValue;
    for (size_t row = 0; row < height; ++row) std::memset(to + row * pitch, value, width);
    return kSuccess;
}
inline int cuMemsetD8Async(char* to, unsigned char value, size_t bytes, void*) {
    const Entry entry("cuMemsetD8Async");
    if (!entry.result) std::memset(to, value, bytes);
    return entry.result;
}
inline int cuMemAlloc_v2(void** to, size_t bytes) {
    const Entry entry("cuMemAlloc");
    if (entry.result) return entry.result;
    *to = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    state().allocations += *to != nullptr;
    return *to ? kSuccess : kOutOfMemory;
}
inline int cuMemFree_v2(void* memory) {
    const Entry entry("cuMemFree");
    std::free(memory);
    --state().allocations;
    return entry.result;
}
struct MemoryName {
    char bytes[64];
};
/// The name is the address: processes of the mock's are pretended.
inline int cuIpcGetMemHandle(MemoryName* name, void* memory) {
    const Entry entry("cuIpcGetMemHandle");
    std::memcpy(name->bytes, &memory, sizeof memory);
    return entry.result;
}
inline int cuIpcOpenMemHandle_v2(void** to, MemoryName name, unsigned flags) {
    const Entry entry("cuIpcOpenMemHandle");
    if (entry.result) return entry.result;
    if (stack.empty() || flags != 1) return kInvalidValue;
    std::memcpy(to, name.bytes, sizeof *to);
    ++state().opened;
    return kSuccess;
}
inline int cuIpcCloseMemHandle(void*) {
    const Entry entry("cuIpcCloseMemHandle");
    --state().opened;
    return entry.result;
}
inline int cuMemPoolCreate(void** pool, const void*) {
    const Entry entry("cuMemPoolCreate");
    if (entry.result) return entry.result;
    ++state().pools;
    *pool = &state();
    return kSuccess;
}
inline int cuMemPoolDestroy(void*) {
    const Entry entry("cuMemPoolDestroy");
    --state().pools;
    return entry.result;
}
inline int cuMemPoolSetAttribute(void*, int, void*) { return Entry("cuMemPoolSetAttribute").result; }
inline int cuMemAllocFromPoolAsync(void** to, size_t bytes, void*, void*) {
    const Entry entry("cuMemAllocFromPoolAsync");
    if (entry.result) return entry.result;
    if (stack.empty()) return kInvalidContext;
    *to = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    state().allocations += *to != nullptr;
    return *to ? kSuccess : kOutOfMemory;
}
inline int cuMemFreeAsync(void* memory, void*) {
    const Entry entry("cuMemFreeAsync");
    std::free(memory);
    --state().allocations;
    return entry.result;
}
inline int cuMemcpyDtoHAsync_v2(void* to, const void* from, size_t bytes, void*) {
    const Entry entry("cuMemcpyDtoHAsync");
    if (!entry.result) std::memcpy(to, from, bytes);
    return entry.result;
}
inline int cuMemcpyHtoDAsync_v2(void* to, const void* from, size_t bytes, void*) {
    const Entry entry("cuMemcpyHtoDAsync");
    if (!entry.result) std::memcpy(to, from, bytes);
    return entry.result;
}

inline int cuMemcpyDtoDAsync_v2(void* to, const void* from, size_t bytes, void*) {
    const Entry entry("cuMemcpyDtoDAsync");
    if (!entry.result) std::memcpy(to, from, bytes);
    return entry.result;
}

inline int cuStreamQuery(void*) { return Entry("cuStreamQuery").result; }
inline int cuStreamSynchronize(void*) { return Entry("cuStreamSynchronize").result; }
inline int cuThreadExchangeStreamCaptureMode(int* mode) {
    const Entry entry("cuThreadExchangeStreamCaptureMode");
    if (!entry.result) std::swap(*mode, capture_mode);
    return entry.result;
}
inline int cuEventCreate(void** event, unsigned) {
    const Entry entry("cuEventCreate");
    if (!entry.result) *event = reinterpret_cast<void*>(static_cast<uintptr_t>(0x100 + state().events++));
    return entry.result;
}
inline int cuEventDestroy_v2(void*) {
    const Entry entry("cuEventDestroy");
    --state().events;
    return entry.result;
}
inline int cuEventRecord(void* event, void*) {
    const Entry entry("cuEventRecord");
    internals().recorded_us[event] = state().clock_us;
    return entry.result;
}
inline int cuStreamWaitEvent(void*, void*, unsigned) { return Entry("cuStreamWaitEvent").result; }
inline int cuEventQuery(void*) { return Entry("cuEventQuery").result; }
inline int cuEventSynchronize(void*) { return Entry("cuEventSynchronize").result; }
inline int cuEventElapsedTime(float* milliseconds, void* from, void* to) {
    const Entry entry("cuEventElapsedTime");
    *milliseconds = static_cast<float>((internals().recorded_us[to] - internals().recorded_us[from]) / 1000);
    return entry.result;
}

/// Each entry point with the CUDA version of this signature. The real driver has
/// older ones too, which nobody should ask for.

}  // namespace finegemm::mock
