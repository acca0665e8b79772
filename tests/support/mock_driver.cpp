// A stand-in for libcuda.so.1: keeps what it was asked, checks what the driver checks, fails when told to. Layer tests.
#include "mock_driver.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "mock_compute.h"
#include "mock_internals.h"
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

/// Loaded, and of the context that is current.
bool usable(Function* function) {
    return internals().functions.contains(function) && function->gpu == stack.back()->gpu;
}
/// The parameters of a kernel that is no GEMM, or of a sum over stacks; false if it is another one.
bool copied_operation(const std::string& entry, const void* from, Launch& launch) {
    const auto has = [&](const char* part) { return entry.find(part) != std::string::npos; };
    if (has("_summed"))
        static_cast<finegemm::GemmParams&>(launch.gemm) = launch.summed =
            *static_cast<const finegemm::SummedParams*>(from);
    else if (has("add_pieces")) std::memcpy(&launch.add_pieces, from, sizeof launch.add_pieces);
    else if (has("group_list")) std::memcpy(&launch.group_list, from, sizeof launch.group_list);
    else if (has("FineGEMM_quantize_columns_"))
        std::memcpy(&launch.quantize_columns, from, sizeof launch.quantize_columns);
    else if (has("FineGEMM_quantize_")) std::memcpy(&launch.quantize, from, sizeof launch.quantize);
    else if (has("mqa_logits")) std::memcpy(&launch.mqa, from, sizeof launch.mqa);
    else if (has("mqa_schedule")) std::memcpy(&launch.mqa_schedule, from, sizeof launch.mqa_schedule);
    else if (has("FineGEMM_prenorm_")) std::memcpy(&launch.prenorm, from, sizeof launch.prenorm);
    else if (has("FineGEMM_swiglu_quantize_")) std::memcpy(&launch.swiglu, from, sizeof launch.swiglu);
    else if (has("FineGEMM_routing_route")) std::memcpy(&launch.route, from, sizeof launch.route);
    else if (has("FineGEMM_routing_permute")) std::memcpy(&launch.permute, from, sizeof launch.permute);
    else if (has("FineGEMM_routing_combine")) std::memcpy(&launch.combine, from, sizeof launch.combine);
    else if (has("FineGEMM_four_bit_")) std::memcpy(&launch.four_bit, from, sizeof launch.four_bit);
    else if (has("FineGEMM_scale_layout_")) std::memcpy(&launch.scale_layout, from, sizeof launch.scale_layout);
    else return false;
    return true;
}

/// What a launch must keep to.
int check_launch(const LaunchConfig& c, const Function& function) {
    const uint32_t cluster = cluster_of(c);
    if (c.grid[0] == 0 || c.grid[0] > INT32_MAX || c.grid[1] != 1 || c.grid[2] != 1) return kInvalidValue;
    if (c.block[0] == 0 || c.block[0] > 1024 || c.block[1] != 1 || c.block[2] != 1) return kInvalidValue;
    if (cluster == 0 || cluster > 8 || c.grid[0] % cluster != 0) return kInvalidValue;
    return c.smem_bytes > static_cast<unsigned>(function.smem_bytes) ? kInvalidValue : kSuccess;
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
    const auto us = state().kernel_us.find(function->entry);
    state().clock_us += us == state().kernel_us.end() ? 1000 : us->second;
    Launch launch{.entry = function->entry,
                  .gpu = stack.back()->gpu,
                  .grid = config->grid[0],
                  .block = config->block[0],
                  .cluster = cluster_of(*config),
                  .smem_bytes = config->smem_bytes,
                  .programmatic = is_programmatic(*config),
                  .stream = config->stream,
                  .gemm = {},
                  .quantize = {},
                  .scale_layout = {},
                  .mqa = {},
                  .mqa_schedule = {},
                  .prenorm = {},
                  .swiglu = {},
                  .grouped = {},
                  .k_grouped = {},
                  .summed = {},
                  .add_pieces = {},
                  .group_list = {},
                  .affine = {},
                  .heads = {}};
    const bool is_gemm = !copied_operation(function->entry, parameters[0], launch);
    if (is_gemm && function->entry.find("_grouped") != std::string::npos)
        launch.gemm = launch.grouped = *static_cast<const finegemm::GroupedParams*>(parameters[0]);
    else if (is_gemm) std::memcpy(&launch.gemm, parameters[0], sizeof launch.gemm);
    if (function->entry.find("_affine") != std::string::npos) {
        if (function->entry.find("_grouped") != std::string::npos)
            launch.affine = static_cast<const finegemm::WithFinish<finegemm::GroupedParams, finegemm::Finish::Affine>*>(
                                parameters[0])
                                ->finish;
        else
            launch.affine =
                static_cast<const finegemm::WithFinish<finegemm::SegmentedParams, finegemm::Finish::Affine>*>(
                    parameters[0])
                    ->finish;
    }
    if (function->entry.find("_head_gaps") != std::string::npos)
        launch.heads = static_cast<const finegemm::WithFinish<finegemm::SegmentedParams, finegemm::Finish::HeadGaps>*>(
                           parameters[0])
                           ->finish;
    if (is_gemm && function->entry.find("_kgrouped") != std::string::npos)
        std::memcpy(&launch.k_grouped, parameters[0], sizeof launch.k_grouped);
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
    Description d{base, dims[0], dims[1], strides[0], box[0], box[1], type, swizzle};
    if (rank > 2) d.count = dims[2], d.stride_bytes = strides[1], d.box_count = box[2];
    *map = {};
    std::memcpy(map, &d, sizeof d);
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
