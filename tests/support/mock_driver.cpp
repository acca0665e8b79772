// A stand-in for libcuda.so.1: keeps what it was asked, checks what the driver checks, fails when told to. Layer tests.
#include "mock_driver.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "mock_graph.h"
#include "mock_internals.h"
#include "mock_launch.h"
#include "mock_memory.h"
#include "mock_tensor_map.h"

namespace {

using finegemm::TensorMap;
using namespace finegemm::mock;

Gpu* gpu_of(int device) {
    const int index = device - kFirstDevice;
    return index >= 0 && index < static_cast<int>(state().gpus.size()) ? &state().gpus[static_cast<size_t>(index)]
                                                                       : nullptr;
}

/// Loaded, and of the context that is current.
bool usable(Function* function) {
    return internals().functions.contains(function) && function->gpu == stack.back()->gpu;
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
    const std::map<int, int> values = {{16, gpu->sms},
                                       {13, gpu->clock_khz},
                                       {36, gpu->memory_khz},
                                       {37, gpu->bus_bits},
                                       {38, gpu->l2_bytes},
                                       {75, gpu->major},
                                       {33, 0x1b},
                                       {34, 0},
                                       {50, 0},
                                       {76, gpu->minor},
                                       {97, gpu->smem_bytes}};
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
int cuCtxSynchronize() {
    const Entry entry("cuCtxSynchronize");
    if (entry.result || stack.empty()) return entry.result ? entry.result : kInvalidContext;
    return state().capturing ? kStreamCaptureUnsupported : kSuccess;
}
int cuCtxEnablePeerAccess(Context* peer, unsigned flags) {
    const Entry entry("cuCtxEnablePeerAccess");
    if (entry.result) return entry.result;
    if (stack.empty() || !peer || peer == stack.back()) return kInvalidContext;
    return flags == 0 ? kSuccess : kInvalidValue;
}
int cuDeviceCanAccessPeer(int* can, int device, int peer) {
    const Entry entry("cuDeviceCanAccessPeer");
    if (!gpu_of(device) || !gpu_of(peer)) return kInvalidDevice;
    *can = device != peer && state().peer_access;
    return entry.result;
}

int cuLibraryLoadData(Library** library, const void* image, void*, void*, unsigned, void*, void*, unsigned) {
    const Entry entry("cuLibraryLoadData");
    if (entry.result || forbidden_in_capture()) return entry.result ? entry.result : kStreamCaptureUnsupported;
    if (!image || std::memcmp(image, kElf, sizeof kElf) != 0) return kInvalidImage;
    if (cuda_of(static_cast<const char*>(image)) > state().version / 1000) return kInvalidImage;
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
    for (const auto& [name, kernel] : library->kernels) {
        for (const auto& [gpu, function] : kernel->functions) internals().functions.erase(function.get());
        internals().kernels.erase(kernel.get());
    }
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
int cuKernelGetFunction(Function** function, Kernel* kernel) {
    const Entry entry("cuKernelGetFunction");
    if (entry.result) return entry.result;
    if (stack.empty()) return kInvalidContext;
    if (!internals().kernels.contains(kernel)) return kInvalidHandle;
    const int gpu = stack.back()->gpu;
    auto& made = kernel->functions[gpu];
    if (!made) made = std::make_unique<Function>(Function{kernel->entry, gpu});
    *function = *internals().functions.insert(made.get()).first;
    return kSuccess;
}
int cuFuncSetAttribute(Function* function, int attribute, int value) {
    const Entry entry("cuFuncSetAttribute");
    if (entry.result) return entry.result;
    if (stack.empty()) return kInvalidContext;
    if (!usable(function)) return kInvalidHandle;
    const int limit = state().gpus[static_cast<size_t>(function->gpu)].smem_bytes;
    if (attribute != 8 || value < 0 || value > limit) return kInvalidValue;
    function->smem_bytes = value;
    return kSuccess;
}
int cuOccupancyMaxActiveClusters(int* clusters, Function* function, const LaunchConfig* config) {
    const Entry entry("cuOccupancyMaxActiveClusters");
    if (entry.result) return entry.result;
    if (stack.empty()) return kInvalidContext;
    if (!usable(function)) return kInvalidHandle;
    *clusters = state().resident_clusters;
    return check_launch(*config, *function);
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function* function, int block, size_t) {
    const Entry entry("cuOccupancyMaxActiveBlocksPerMultiprocessor");
    if (entry.result) return entry.result;
    if (stack.empty()) return kInvalidContext;
    if (!usable(function) || block < 1) return kInvalidHandle;
    *blocks = state().resident_ctas;
    return kSuccess;
}
int cuLaunchKernelEx(const LaunchConfig* config, Function* function, void** parameters, void**) {
    const Entry entry("cuLaunchKernelEx");
    if (entry.result) return entry.result;
    if (stack.empty()) return kInvalidContext;
    if (!state().recording) return kSuccess;
    if (!usable(function)) return kInvalidHandle;
    if (const int code = check_launch(*config, *function)) return code;
    const Launch launch = launch_of(*config, *function, parameters[0]);
    if (const auto recording = internals().recorded.find(config->stream); recording != internals().recorded.end())
        recording->second.push_back(launch);
    else start(launch);
    return kSuccess;
}

int cuTensorMapEncodeTiled(TensorMap* map, int type, unsigned rank, void* base, const uint64_t* dims,
                           const uint64_t* strides, const uint32_t* box, const uint32_t* steps, int interleave,
                           int swizzle, int l2, int fill) {
    const Entry entry("cuTensorMapEncodeTiled");
    if (entry.result) return entry.result;
    if (!legal({map, type, rank, base, dims, strides, box, steps, interleave, swizzle, l2, fill})) return kInvalidValue;
    Description d{base, dims[0], dims[1], strides[0], box[0], box[1], type, swizzle};
    if (rank > 2) d.count = dims[2], d.stride_bytes = strides[1], d.box_count = box[2];
    *map = {};
    std::memcpy(map, &d, sizeof d);
    std::memcpy(reinterpret_cast<uint8_t*>(map) + kPromotionAt, &l2, sizeof l2);
    return kSuccess;
}

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
    {"cuCtxSynchronize", 2000, reinterpret_cast<void*>(&cuCtxSynchronize)},
    {"cuCtxEnablePeerAccess", 4000, reinterpret_cast<void*>(&cuCtxEnablePeerAccess)},
    {"cuDeviceCanAccessPeer", 4000, reinterpret_cast<void*>(&cuDeviceCanAccessPeer)},
    {"cuIpcGetMemHandle", 4010, reinterpret_cast<void*>(&cuIpcGetMemHandle)},
    {"cuIpcOpenMemHandle", 11000, reinterpret_cast<void*>(&cuIpcOpenMemHandle_v2)},
    {"cuIpcCloseMemHandle", 4010, reinterpret_cast<void*>(&cuIpcCloseMemHandle)},
    {"cuLibraryLoadData", 12000, reinterpret_cast<void*>(&cuLibraryLoadData)},
    {"cuLibraryUnload", 12000, reinterpret_cast<void*>(&cuLibraryUnload)},
    {"cuLibraryGetKernel", 12000, reinterpret_cast<void*>(&cuLibraryGetKernel)},
    {"cuKernelGetFunction", 12000, reinterpret_cast<void*>(&cuKernelGetFunction)},
    {"cuFuncSetAttribute", 9000, reinterpret_cast<void*>(&cuFuncSetAttribute)},
    {"cuOccupancyMaxActiveClusters", 11070, reinterpret_cast<void*>(&cuOccupancyMaxActiveClusters)},
    {"cuOccupancyMaxActiveBlocksPerMultiprocessor", 6050,
     reinterpret_cast<void*>(&cuOccupancyMaxActiveBlocksPerMultiprocessor)},
    {"cuLaunchKernelEx", 11060, reinterpret_cast<void*>(&cuLaunchKernelEx)},
    {"cuTensorMapEncodeTiled", 12000, reinterpret_cast<void*>(&cuTensorMapEncodeTiled)},
    {"cuMemsetD2D8Async", 3020, reinterpret_cast<void*>(&cuMemsetD2D8Async)},
    {"cuMemsetD8Async", 3020, reinterpret_cast<void*>(&cuMemsetD8Async)},
    {"cuMemAlloc", 3020, reinterpret_cast<void*>(&cuMemAlloc_v2)},
    {"cuMemFree", 3020, reinterpret_cast<void*>(&cuMemFree_v2)},
    {"cuMemPoolCreate", 11020, reinterpret_cast<void*>(&cuMemPoolCreate)},
    {"cuMemPoolDestroy", 11020, reinterpret_cast<void*>(&cuMemPoolDestroy)},
    {"cuMemPoolSetAttribute", 11020, reinterpret_cast<void*>(&cuMemPoolSetAttribute)},
    {"cuMemAllocFromPoolAsync", 11020, reinterpret_cast<void*>(&cuMemAllocFromPoolAsync)},
    {"cuMemFreeAsync", 11020, reinterpret_cast<void*>(&cuMemFreeAsync)},
    {"cuMemcpyDtoHAsync", 3020, reinterpret_cast<void*>(&cuMemcpyDtoHAsync_v2)},
    {"cuMemcpyHtoDAsync", 3020, reinterpret_cast<void*>(&cuMemcpyHtoDAsync_v2)},
    {"cuMemcpyDtoDAsync", 3020, reinterpret_cast<void*>(&cuMemcpyDtoDAsync_v2)},
    {"cuStreamCreate", 2000, reinterpret_cast<void*>(&cuStreamCreate)},
    {"cuStreamDestroy", 4000, reinterpret_cast<void*>(&cuStreamDestroy_v2)},
    {"cuStreamGetId", 12000, reinterpret_cast<void*>(&cuStreamGetId)},
    {"cuStreamQuery", 2000, reinterpret_cast<void*>(&cuStreamQuery)},
    {"cuStreamSynchronize", 2000, reinterpret_cast<void*>(&cuStreamSynchronize)},
    {"cuStreamWaitEvent", 3020, reinterpret_cast<void*>(&cuStreamWaitEvent)},
    {"cuStreamIsCapturing", 10000, reinterpret_cast<void*>(&cuStreamIsCapturing)},
    {"cuStreamBeginCapture", 10010, reinterpret_cast<void*>(&cuStreamBeginCapture_v2)},
    {"cuStreamEndCapture", 10000, reinterpret_cast<void*>(&cuStreamEndCapture)},
    {"cuGraphInstantiateWithFlags", 11040, reinterpret_cast<void*>(&cuGraphInstantiateWithFlags)},
    {"cuGraphDestroy", 10000, reinterpret_cast<void*>(&cuGraphDestroy)},
    {"cuGraphExecDestroy", 10000, reinterpret_cast<void*>(&cuGraphExecDestroy)},
    {"cuGraphLaunch", 10000, reinterpret_cast<void*>(&cuGraphLaunch)},
    {"cuThreadExchangeStreamCaptureMode", 10010, reinterpret_cast<void*>(&cuThreadExchangeStreamCaptureMode)},
    {"cuEventCreate", 2000, reinterpret_cast<void*>(&cuEventCreate)},
    {"cuEventDestroy", 4000, reinterpret_cast<void*>(&cuEventDestroy_v2)},
    {"cuEventRecord", 2000, reinterpret_cast<void*>(&cuEventRecord)},
    {"cuEventQuery", 2000, reinterpret_cast<void*>(&cuEventQuery)},
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
    s.peer_access = true;
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
    *status = 1;  // CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
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
