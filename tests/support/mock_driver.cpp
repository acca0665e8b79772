// A stand-in for libcuda.so.1: keeps what it was asked, checks what the driver checks, fails when told to. Layer tests.
#include "mock_driver.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "mock_compute.h"
#include "mock_internals.h"
#include "mock_tensor_map.h"

namespace {

using finegemm::TensorMap;
using namespace finegemm::mock;

Gpu* gpu_of(int device) {
    const int index = device - kFirstDevice;
    return index >= 0 && index < static_cast<int>(state().gpus.size()) ? &state().gpus[static_cast<size_t>(index)]
                                                                       : nullptr;
}

/// Whether a call that a capturing stream may forbid is forbidden now: a thread in relaxed mode may do it.
bool forbidden_in_capture() { return state().capturing && capture_mode != 2; }

uint32_t cluster_of(const LaunchConfig& c) {
    for (unsigned i = 0; i < c.attribute_count; ++i)
        if (c.attributes[i].id == 4) return c.attributes[i].value.cluster[0];
    return 1;
}

bool is_programmatic(const LaunchConfig& c) {
    for (unsigned i = 0; i < c.attribute_count; ++i)
        if (c.attributes[i].id == 6) return c.attributes[i].value.allowed == 1;
    return false;
}

/// What a launch on the current context's GPU must keep to.
int check_launch(const LaunchConfig& c, const Kernel& kernel) {
    const uint32_t cluster = cluster_of(c);
    const int gpu = stack.back()->gpu;
    const auto smem = kernel.smem_bytes.find(gpu);
    const unsigned smem_limit = smem == kernel.smem_bytes.end() ? 48 << 10 : static_cast<unsigned>(smem->second);
    if (c.grid[0] == 0 || c.grid[0] > INT32_MAX || c.grid[1] != 1 || c.grid[2] != 1) return kInvalidValue;
    if (c.block[0] == 0 || c.block[0] > 1024 || c.block[1] != 1 || c.block[2] != 1) return kInvalidValue;
    if (cluster == 0 || cluster > 8 || c.grid[0] % cluster != 0) return kInvalidValue;
    return c.smem_bytes > smem_limit ? kInvalidValue : kSuccess;
}

int cuGetErrorName(int code, const char** name) {
    const Entry entry("cuGetErrorName");
    *name = code == kInvalidValue ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR_MOCK";
    return entry.result;
}
int cuGetErrorString(int, const char** text) {
    const Entry entry("cuGetErrorString");
    *text = "as the mock says";
    return entry.result;
}
int cuInit(unsigned) {
    const Entry entry("cuInit");
    return entry.result ? entry.result : state().gpus.empty() ? kNoDevice : kSuccess;
}
int cuDriverGetVersion(int* version) {
    const Entry entry("cuDriverGetVersion");
    *version = state().version;
    return entry.result;
}
int cuDeviceGetCount(int* count) {
    const Entry entry("cuDeviceGetCount");
    *count = static_cast<int>(state().gpus.size());
    return entry.result;
}
int cuDeviceGet(int* device, int index) {
    const Entry entry("cuDeviceGet");
    *device = kFirstDevice + index;
    return entry.result ? entry.result : gpu_of(*device) ? kSuccess : kInvalidDevice;
}
int cuDeviceGetName(char* name, int size, int device) {
    const Entry entry("cuDeviceGetName");
    const Gpu* gpu = gpu_of(device);
    if (!gpu) return kInvalidDevice;
    std::strncpy(name, gpu->name.c_str(), static_cast<size_t>(size));
    return entry.result;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
    const Entry entry("cuDeviceGetAttribute");
    const Gpu* gpu = gpu_of(device);
    if (!gpu) return kInvalidDevice;
    const std::map<int, int> values = {{16, gpu->sms},      {13, gpu->clock_khz}, {36, gpu->memory_khz},
                                       {37, gpu->bus_bits}, {38, gpu->l2_bytes},  {75, gpu->major},
                                       {33, 0x1b},          {34, 0},              {50, 0},
                                       {76, gpu->minor},    {97, gpu->smem_bytes}};
    const auto found = values.find(attribute);
    if (found == values.end()) return kInvalidValue;
    *value = found->second;
    return entry.result;
}

int cuDevicePrimaryCtxRetain(Context** context, int device) {
    const Entry entry("cuDevicePrimaryCtxRetain");
    Gpu* gpu = gpu_of(device);
    if (entry.result || !gpu) return entry.result ? entry.result : kInvalidDevice;
    ++gpu->retains;
    *context = &internals().contexts[device - kFirstDevice];
    (*context)->gpu = device - kFirstDevice;
    return kSuccess;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
    const Entry entry("cuDevicePrimaryCtxRelease");
    Gpu* gpu = gpu_of(device);
    if (!gpu) return kInvalidDevice;
    return gpu->retains-- > 0 ? entry.result : kInvalidContext;
}
int cuCtxPushCurrent_v2(Context* context) {
    const Entry entry("cuCtxPushCurrent");
    if (entry.result || !context) return entry.result ? entry.result : kInvalidContext;
    stack.push_back(context);
    return kSuccess;
}
int cuCtxPopCurrent_v2(Context** context) {
    const Entry entry("cuCtxPopCurrent");
    if (stack.empty()) return kInvalidContext;
    *context = stack.back();
    stack.pop_back();
    return entry.result;
}
int cuCtxGetCurrent(Context** context) {
    const Entry entry("cuCtxGetCurrent");
    *context = stack.empty() ? nullptr : stack.back();
    return entry.result;
}

int cuLibraryLoadData(Library** library, const void* image, void*, void*, unsigned, void*, void*, unsigned) {
    const Entry entry("cuLibraryLoadData");
    if (entry.result || forbidden_in_capture()) return entry.result ? entry.result : kStreamCaptureUnsupported;
    if (!image || std::memcmp(image, kElf, sizeof kElf) != 0) return kInvalidImage;
    auto made = std::make_unique<Library>();
    *library = made.get();
    internals().libraries.emplace(*library, std::move(made));
    ++state().libraries;
    return kSuccess;
}
int cuLibraryUnload(Library* library) {
    const Entry entry("cuLibraryUnload");
    const auto found = internals().libraries.find(library);
    if (found == internals().libraries.end()) return kInvalidHandle;
    for (const auto& [name, kernel] : library->kernels) internals().kernels.erase(kernel.get());
    internals().libraries.erase(found);
    --state().libraries;
    return entry.result;
}
int cuLibraryGetKernel(Kernel** kernel, Library* library, const char* name) {
    const Entry entry("cuLibraryGetKernel");
    if (!internals().libraries.contains(library)) return kInvalidHandle;
    if (entry.result) return entry.result;
    auto& made = library->kernels[name];
    made = std::make_unique<Kernel>(Kernel{name, {}});
    *kernel = made.get();
    internals().kernels[*kernel] = *kernel;
    return kSuccess;
}
int cuKernelSetAttribute(int attribute, int value, Kernel* kernel, int device) {
    const Entry entry("cuKernelSetAttribute");
    const Gpu* gpu = gpu_of(device);
    if (!gpu) return kInvalidDevice;
    if (!internals().kernels.contains(kernel)) return kInvalidHandle;
    if (entry.result) return entry.result;
    if (attribute != 8 || value < 0 || value > gpu->smem_bytes) return kInvalidValue;
    kernel->smem_bytes[device - kFirstDevice] = value;
    return kSuccess;
}
int cuOccupancyMaxActiveClusters(int* clusters, Kernel* kernel, const LaunchConfig* config) {
    const Entry entry("cuOccupancyMaxActiveClusters");
    if (entry.result) return entry.result;
    if (stack.empty()) return kInvalidContext;
    if (!internals().kernels.contains(kernel)) return kInvalidHandle;
    *clusters = state().resident_clusters;
    return check_launch(*config, *kernel);
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel* kernel, int block, size_t) {
    const Entry entry("cuOccupancyMaxActiveBlocksPerMultiprocessor");
    if (entry.result) return entry.result;
    if (stack.empty()) return kInvalidContext;
    if (!internals().kernels.contains(kernel) || block < 1) return kInvalidHandle;
    *blocks = state().resident_ctas;
    return kSuccess;
}
int cuLaunchKernelEx(const LaunchConfig* config, Kernel* kernel, void** parameters, void**) {
    const Entry entry("cuLaunchKernelEx");
    if (entry.result) return entry.result;
    if (stack.empty()) return kInvalidContext;
    if (!state().recording) return kSuccess;
    if (!internals().kernels.contains(kernel)) return kInvalidHandle;
    if (const int code = check_launch(*config, *kernel)) return code;
    const auto us = state().kernel_us.find(kernel->entry);
    state().clock_us += us == state().kernel_us.end() ? 1000 : us->second;
    Launch launch{.entry = kernel->entry,
                  .gpu = stack.back()->gpu,
                  .grid = config->grid[0],
                  .block = config->block[0],
                  .cluster = cluster_of(*config),
                  .smem_bytes = config->smem_bytes,
                  .programmatic = is_programmatic(*config),
                  .stream = config->stream,
                  .gemm = {},
                  .quantize = {}};
    if (kernel->entry.starts_with("finegemm_quantize_"))
        std::memcpy(&launch.quantize, parameters[0], sizeof launch.quantize);
    else
        std::memcpy(&launch.gemm, parameters[0], sizeof launch.gemm);
    compute_if_asked(launch);
    state().launches.push_back(std::move(launch));
    return kSuccess;
}

int cuTensorMapEncodeTiled(TensorMap* map, int type, unsigned rank, void* base, const uint64_t* dims,
                           const uint64_t* strides, const uint32_t* box, const uint32_t* steps, int interleave,
                           int swizzle, int l2, int fill) {
    const Entry entry("cuTensorMapEncodeTiled");
    if (entry.result) return entry.result;
    if (!legal({map, type, rank, base, dims, strides, box, steps, interleave, swizzle, l2, fill})) return kInvalidValue;
    const Description d{base, dims[0], dims[1], strides[0], box[0], box[1], type, swizzle};
    *map = {};
    std::memcpy(map, &d, sizeof d);
    return kSuccess;
}

int cuMemsetD2D8Async(char* to, size_t pitch, unsigned char value, size_t width, size_t height, void*) {
    const Entry entry("cuMemsetD2D8Async");
    if (entry.result) return entry.result;
    if (stack.empty()) return kInvalidContext;
    if (height > 1 && pitch < width) return kInvalidValue;
    for (size_t row = 0; row < height; ++row) std::memset(to + row * pitch, value, width);
    return kSuccess;
}
int cuMemsetD8Async(char* to, unsigned char value, size_t bytes, void*) {
    const Entry entry("cuMemsetD8Async");
    if (!entry.result) std::memset(to, value, bytes);
    return entry.result;
}
int cuMemAlloc_v2(void** to, size_t bytes) {
    const Entry entry("cuMemAlloc");
    if (entry.result) return entry.result;
    *to = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    state().allocations += *to != nullptr;
    return *to ? kSuccess : kOutOfMemory;
}
int cuMemFree_v2(void* memory) {
    const Entry entry("cuMemFree");
    std::free(memory);
    --state().allocations;
    return entry.result;
}
int cuMemcpyDtoHAsync_v2(void* to, const void* from, size_t bytes, void*) {
    const Entry entry("cuMemcpyDtoHAsync");
    if (!entry.result) std::memcpy(to, from, bytes);
    return entry.result;
}
int cuMemcpyHtoDAsync_v2(void* to, const void* from, size_t bytes, void*) {
    const Entry entry("cuMemcpyHtoDAsync");
    if (!entry.result) std::memcpy(to, from, bytes);
    return entry.result;
}

int cuMemcpyDtoDAsync_v2(void* to, const void* from, size_t bytes, void*) {
    const Entry entry("cuMemcpyDtoDAsync");
    if (!entry.result) std::memcpy(to, from, bytes);
    return entry.result;
}

int cuStreamSynchronize(void*) { return Entry("cuStreamSynchronize").result; }
int cuStreamIsCapturing(void*, int* capturing) {
    const Entry entry("cuStreamIsCapturing");
    *capturing = state().capturing;
    return entry.result;
}
int cuThreadExchangeStreamCaptureMode(int* mode) {
    const Entry entry("cuThreadExchangeStreamCaptureMode");
    if (!entry.result) std::swap(*mode, capture_mode);
    return entry.result;
}
int cuEventCreate(void** event, unsigned) {
    const Entry entry("cuEventCreate");
    if (!entry.result) *event = reinterpret_cast<void*>(static_cast<uintptr_t>(0x100 + state().events++));
    return entry.result;
}
int cuEventDestroy_v2(void*) {
    const Entry entry("cuEventDestroy");
    --state().events;
    return entry.result;
}
int cuEventRecord(void* event, void*) {
    const Entry entry("cuEventRecord");
    internals().recorded_us[event] = state().clock_us;
    return entry.result;
}
int cuEventSynchronize(void*) { return Entry("cuEventSynchronize").result; }
int cuEventElapsedTime(float* milliseconds, void* from, void* to) {
    const Entry entry("cuEventElapsedTime");
    *milliseconds = static_cast<float>((internals().recorded_us[to] - internals().recorded_us[from]) / 1000);
    return entry.result;
}

/// Each entry point with the CUDA version of this signature. The real driver has
/// older ones too, which nobody should ask for.
struct Symbol {
    const char* name;
    int version;
    void* entry;
};
const Symbol kSymbols[] = {
    {"cuGetErrorName", 6000, reinterpret_cast<void*>(&cuGetErrorName)},
    {"cuGetErrorString", 6000, reinterpret_cast<void*>(&cuGetErrorString)},
    {"cuInit", 2000, reinterpret_cast<void*>(&cuInit)},
    {"cuDriverGetVersion", 2020, reinterpret_cast<void*>(&cuDriverGetVersion)},
    {"cuDeviceGetCount", 2000, reinterpret_cast<void*>(&cuDeviceGetCount)},
    {"cuDeviceGet", 2000, reinterpret_cast<void*>(&cuDeviceGet)},
    {"cuDeviceGetName", 2000, reinterpret_cast<void*>(&cuDeviceGetName)},
    {"cuDeviceGetAttribute", 2000, reinterpret_cast<void*>(&cuDeviceGetAttribute)},
    {"cuDevicePrimaryCtxRetain", 7000, reinterpret_cast<void*>(&cuDevicePrimaryCtxRetain)},
    {"cuDevicePrimaryCtxRelease", 11000, reinterpret_cast<void*>(&cuDevicePrimaryCtxRelease_v2)},
    {"cuCtxPushCurrent", 4000, reinterpret_cast<void*>(&cuCtxPushCurrent_v2)},
    {"cuCtxPopCurrent", 4000, reinterpret_cast<void*>(&cuCtxPopCurrent_v2)},
    {"cuCtxGetCurrent", 4000, reinterpret_cast<void*>(&cuCtxGetCurrent)},
    {"cuLibraryLoadData", 12000, reinterpret_cast<void*>(&cuLibraryLoadData)},
    {"cuLibraryUnload", 12000, reinterpret_cast<void*>(&cuLibraryUnload)},
    {"cuLibraryGetKernel", 12000, reinterpret_cast<void*>(&cuLibraryGetKernel)},
    {"cuKernelSetAttribute", 12000, reinterpret_cast<void*>(&cuKernelSetAttribute)},
    {"cuOccupancyMaxActiveClusters", 11070, reinterpret_cast<void*>(&cuOccupancyMaxActiveClusters)},
    {"cuOccupancyMaxActiveBlocksPerMultiprocessor", 6050,
     reinterpret_cast<void*>(&cuOccupancyMaxActiveBlocksPerMultiprocessor)},
    {"cuLaunchKernelEx", 11060, reinterpret_cast<void*>(&cuLaunchKernelEx)},
    {"cuTensorMapEncodeTiled", 12000, reinterpret_cast<void*>(&cuTensorMapEncodeTiled)},
    {"cuMemsetD2D8Async", 3020, reinterpret_cast<void*>(&cuMemsetD2D8Async)},
    {"cuMemsetD8Async", 3020, reinterpret_cast<void*>(&cuMemsetD8Async)},
    {"cuMemAlloc", 3020, reinterpret_cast<void*>(&cuMemAlloc_v2)},
    {"cuMemFree", 3020, reinterpret_cast<void*>(&cuMemFree_v2)},
    {"cuMemcpyDtoHAsync", 3020, reinterpret_cast<void*>(&cuMemcpyDtoHAsync_v2)},
    {"cuMemcpyHtoDAsync", 3020, reinterpret_cast<void*>(&cuMemcpyHtoDAsync_v2)},
    {"cuMemcpyDtoDAsync", 3020, reinterpret_cast<void*>(&cuMemcpyDtoDAsync_v2)},
    {"cuStreamSynchronize", 2000, reinterpret_cast<void*>(&cuStreamSynchronize)},
    {"cuStreamIsCapturing", 10000, reinterpret_cast<void*>(&cuStreamIsCapturing)},
    {"cuThreadExchangeStreamCaptureMode", 10010, reinterpret_cast<void*>(&cuThreadExchangeStreamCaptureMode)},
    {"cuEventCreate", 2000, reinterpret_cast<void*>(&cuEventCreate)},
    {"cuEventDestroy", 4000, reinterpret_cast<void*>(&cuEventDestroy_v2)},
    {"cuEventRecord", 2000, reinterpret_cast<void*>(&cuEventRecord)},
    {"cuEventSynchronize", 2000, reinterpret_cast<void*>(&cuEventSynchronize)},
    {"cuEventElapsedTime", 2000, reinterpret_cast<void*>(&cuEventElapsedTime)},
};

}  // namespace

extern "C" {

#define MOCK __attribute__((visibility("default")))

MOCK State* mock_state() { return &state(); }
MOCK size_t mock_context_depth() { return stack.size(); }
MOCK void mock_reset() {
    State& s = state();
    const std::scoped_lock lock(s.mutex);
    s.recording = true;
    s.gpus = {Gpu{}};
    s.version = 12040;
    s.missing.clear();
    s.failures.clear();
    s.stub = s.capturing = false;
    s.resident_ctas = 2;
    s.resident_clusters = 60;
    s.resolved.clear();
    s.calls.clear();
    s.launches.clear();
    s.clock_us = 0;
    s.kernel_us.clear();
}

MOCK int cuGetProcAddress_v2(const char* name, void** entry, int version, uint64_t, int* status) {
    *entry = nullptr;
    *status = 1;   // CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
    State& s = state();
    const std::scoped_lock lock(s.mutex);
    if (s.stub) return kStubLibrary;
    s.resolved.emplace_back(name);
    for (const Symbol& symbol : kSymbols) {
        if (symbol.name != std::string_view(name) || s.missing.contains(name)) continue;
        if (version < symbol.version || symbol.version > s.version) continue;
        *entry = symbol.entry;
        *status = 0;
        return kSuccess;
    }
    return kNotFound;
}
}
