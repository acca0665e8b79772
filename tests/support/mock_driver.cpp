// A CUDA driver without a GPU: it checks what the real one checks, records what it is asked, and computes nothing. Layer tests.
#include "mock_driver.h"

#include <atomic>
#include <cstring>
#include <mutex>

namespace {

using namespace finegemm;
using mock::Control;

std::mutex mutex;
Control control;
constexpr int kInvalidValue = 1;
int context_object, library_object;
thread_local int pushed_here = 0;

struct Kernel {
    char entry[96];
};
Kernel kernels[256];
int kernel_count = 0;

/// What each entry point begins with: counts the call and says whether it shall fail.
#define ENTER(name)                                                                                        \
    const std::scoped_lock lock(mutex);                                                                    \
    ++control.calls;                                                                                       \
    if (control.failing_entry && std::strcmp(control.failing_entry, name) == 0) return control.failure;

int GetErrorName(int, const char** text) { return *text = "CUDA_ERROR_MOCK", 0; }
int GetErrorString(int, const char** text) { return *text = "the mock was told to fail", 0; }
int Init(unsigned) {
    ENTER("cuInit")
    return control.init_result;
}
int DriverGetVersion(int* v) {
    ENTER("cuDriverGetVersion")
    return *v = control.version, 0;
}
int DeviceGetCount(int* n) {
    ENTER("cuDeviceGetCount")
    return *n = control.devices, 0;
}
int DeviceGet(int* device, int index) {
    ENTER("cuDeviceGet")
    if (index < 0 || index >= control.devices) return 101;
    return *device = index, 0;
}
int DeviceGetName(char* to, int size, int) {
    ENTER("cuDeviceGetName")
    std::strncpy(to, control.name, static_cast<size_t>(size) - 1);
    to[size - 1] = '\0';
    return 0;
}
int DeviceGetAttribute(int* value, int which, int) {
    ENTER("cuDeviceGetAttribute")
    switch (which) {
        case 16: return *value = 132, 0;
        case 13: return *value = 1980000, 0;
        case 36: return *value = 3201000, 0;
        case 37: return *value = 6144, 0;
        case 38: return *value = 50 << 20, 0;
        case 75: return *value = control.major, 0;
        case 76: return *value = control.minor, 0;
        case 97: return *value = 232448, 0;
        default: return kInvalidValue;
    }
}
int DevicePrimaryCtxRetain(void** context, int) {
    ENTER("cuDevicePrimaryCtxRetain")
    ++control.retains;
    return *context = &context_object, 0;
}
int DevicePrimaryCtxRelease(int) {
    ENTER("cuDevicePrimaryCtxRelease")
    return ++control.releases, 0;
}
int CtxPushCurrent(void*) {
    ENTER("cuCtxPushCurrent")
    ++pushed_here;
    return ++control.pushed, 0;
}
int CtxPopCurrent(void**) {
    ENTER("cuCtxPopCurrent")
    --pushed_here;
    return --control.pushed, 0;
}
int CtxGetCurrent(void** context) {
    ENTER("cuCtxGetCurrent")
    return *context = pushed_here > 0 ? &context_object : nullptr, 0;
}
int LibraryLoadData(void** library, const void*, void*, void*, unsigned, void*, void*, unsigned) {
    ENTER("cuLibraryLoadData")
    ++control.loads;
    return *library = &library_object, 0;
}
int LibraryUnload(void*) {
    ENTER("cuLibraryUnload")
    return ++control.unloads, 0;
}
int LibraryGetKernel(void** kernel, void*, const char* entry) {
    ENTER("cuLibraryGetKernel")
    for (int i = 0; i < kernel_count; ++i)
        if (std::strcmp(kernels[i].entry, entry) == 0) return *kernel = &kernels[i], 0;
    if (kernel_count == 256) return kInvalidValue;
    std::strncpy(kernels[kernel_count].entry, entry, sizeof kernels[0].entry - 1);
    return *kernel = &kernels[kernel_count++], 0;
}
int KernelSetAttribute(int, int value, void*, int) {
    ENTER("cuKernelSetAttribute")
    return value > 232448 ? kInvalidValue : 0;
}

struct LaunchConfig {   // CUlaunchConfig
    uint32_t grid[3], block[3], smem;
    void* stream;
    struct {
        int id;
        char pad[4];
        uint32_t value[16];
    }* attributes;
    uint32_t attribute_count;
};

int OccupancyMaxActiveClusters(int* clusters, void*, const LaunchConfig* c) {
    ENTER("cuOccupancyMaxActiveClusters")
    return *clusters = 132 / static_cast<int>(c->attributes[0].value[0]), 0;
}
int OccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int, size_t smem) {
    ENTER("cuOccupancyMaxActiveBlocksPerMultiprocessor")
    return *blocks = smem + 1024 <= 116736 ? 2 : 1, 0;
}
int LaunchKernelEx(const LaunchConfig* c, void* kernel, void** arguments, void**) {
    ENTER("cuLaunchKernelEx")
    if (pushed_here == 0) return 201;   // no context is current
    ++control.launches;
    mock::LaunchRecord& r = control.last_launch;
    r = {c->grid[0], c->block[0], 1, c->smem, c->stream, static_cast<Kernel*>(kernel)->entry, {}};
    for (uint32_t i = 0; i < c->attribute_count; ++i)
        if (c->attributes[i].id == 4) r.cluster = c->attributes[i].value[0];
    const bool gemm = std::strstr(r.entry, "quantize") == nullptr;   // a quantisation kernel's argument is smaller
    std::memcpy(static_cast<void*>(&r.params), arguments[0], gemm ? sizeof r.params : 64);
    return r.grid % r.cluster ? kInvalidValue : 0;
}
int TensorMapEncodeTiled(TensorMap* map, int type, uint32_t rank, void* base, const uint64_t* dims, const uint64_t* strides,
                         const uint32_t* box, const uint32_t* element_strides, int interleave, int swizzle, int promotion, int fill) {
    ENTER("cuTensorMapEncodeTiled")
    // The CUDA driver API's rules for a 2D tiled map without interleave.
    const uint64_t element = type == 0 ? 1 : 2, span = swizzle == 0 ? 256 * element : 16ull << swizzle;
    const bool legal = rank == 2 && reinterpret_cast<uintptr_t>(map) % 64 == 0 && reinterpret_cast<uintptr_t>(base) % 16 == 0 &&
                       dims[0] > 0 && dims[1] > 0 && dims[0] <= 1ull << 32 && dims[1] <= 1ull << 32 && strides[0] % 16 == 0 &&
                       strides[0] < 1ull << 40 && box[0] > 0 && box[1] > 0 && box[0] <= 256 && box[1] <= 256 &&
                       box[0] * element % 16 == 0 && box[0] * element <= span && element_strides[0] == 1 && element_strides[1] == 1 &&
                       interleave == 0 && fill == 0 && (type == 0 || type == 9);
    if (!legal) return kInvalidValue;
    std::memset(static_cast<void*>(map), 0, sizeof *map);
    map->words[0] = control.encodes;
    control.last_maps[control.encodes++ % 8] = {*map, type, swizzle, promotion, base, dims[0], dims[1], strides[0], box[0], box[1]};
    return 0;
}
int MemsetD2D8Async(unsigned long long address, size_t pitch, unsigned char, size_t width, size_t height, void*) {
    ENTER("cuMemsetD2D8Async")
    ++control.memsets;
    control.last_memset = {address, pitch, width, height};
    return 0;
}
int MemsetD8Async(unsigned long long, unsigned char, size_t, void*) {
    ENTER("cuMemsetD8Async")
    return ++control.memsets, 0;
}
int MemAlloc(unsigned long long* p, size_t) {
    ENTER("cuMemAlloc")
    return *p = 1 << 20, 0;
}
int MemFree(unsigned long long) {
    ENTER("cuMemFree")
    return 0;
}
/// Tests pass host memory for device memory.
int MemcpyDtoHAsync(void* to, unsigned long long from, size_t bytes, void*) {
    ENTER("cuMemcpyDtoHAsync")
    ++control.copies;
    std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
    return 0;
}
int MemcpyHtoDAsync(unsigned long long, const void*, size_t, void*) {
    ENTER("cuMemcpyHtoDAsync")
    return ++control.copies, 0;
}
int StreamSynchronize(void*) {
    ENTER("cuStreamSynchronize")
    return 0;
}
int StreamIsCapturing(void*, int* state) {
    ENTER("cuStreamIsCapturing")
    return *state = control.capturing, 0;
}
int ThreadExchangeStreamCaptureMode(int*) {
    ENTER("cuThreadExchangeStreamCaptureMode")
    return 0;
}
int EventCreate(void** event, unsigned) { return *event = &context_object, 0; }
int EventDestroy(void*) { return 0; }
int EventRecord(void*, void*) { return 0; }
int EventSynchronize(void*) { return 0; }
int EventElapsedTime(float* ms, void*, void*) { return *ms = 1, 0; }

struct Entry {
    const char* name;
    void* function;
};
#define E(name) {"cu" #name, reinterpret_cast<void*>(&name)}
const Entry entries[] = {
    E(GetErrorName), E(GetErrorString), E(Init), E(DriverGetVersion), E(DeviceGetCount), E(DeviceGet), E(DeviceGetName),
    E(DeviceGetAttribute), E(DevicePrimaryCtxRetain), E(DevicePrimaryCtxRelease), E(CtxPushCurrent), E(CtxPopCurrent),
    E(CtxGetCurrent), E(LibraryLoadData), E(LibraryUnload), E(LibraryGetKernel), E(KernelSetAttribute),
    E(OccupancyMaxActiveClusters), E(OccupancyMaxActiveBlocksPerMultiprocessor), E(LaunchKernelEx), E(TensorMapEncodeTiled),
    E(MemsetD2D8Async), E(MemsetD8Async), E(MemAlloc), E(MemFree), E(MemcpyDtoHAsync), E(MemcpyHtoDAsync), E(StreamSynchronize),
    E(StreamIsCapturing), E(ThreadExchangeStreamCaptureMode), E(EventCreate), E(EventDestroy), E(EventRecord),
    E(EventSynchronize), E(EventElapsedTime)};

}  // namespace

extern "C" {

__attribute__((visibility("default"))) Control* mock_control() { return &control; }
__attribute__((visibility("default"))) void mock_reset() {
    const std::scoped_lock lock(mutex);
    control = Control{};
}

__attribute__((visibility("default"))) int cuGetProcAddress_v2(const char* name, void** function, int, uint64_t, int*) {
    for (const Entry& e : entries)
        if (std::strcmp(e.name, name) == 0 && !(control.missing_entry && std::strcmp(control.missing_entry, name) == 0))
            return *function = e.function, 0;
    return 500;   // CUDA_ERROR_NOT_FOUND
}

}  // extern "C"
