// Opening the CUDA driver. Layer cuda.
#include "cuda/driver.h"

#include <dlfcn.h>

#include <fmt/format.h>

#include <finegemm/error.h>

namespace finegemm::cuda {

namespace {

using GetProcAddress = Result (*)(const char* name, void** entry, int version, uint64_t flags, int* status);

constexpr Result kNotInitialized = 3, kStubLibrary = 34, kNoDevice = 100;

[[noreturn]] void reject_stub(const std::string& library) {
    throw Error(Errc::Unsupported,
                fmt::format("{} is the toolkit's stub, not a driver: take its directory (.../stubs) out of "
                            "LD_LIBRARY_PATH, or install NVIDIA's driver",
                            library));
}

struct Resolver {
    GetProcAddress get;
    const std::string& library;

    /// `version`: the CUDA version in which the entry point took the signature that Api declares.
    template <typename F>
    void operator()(F& entry, const char* name, int version) const {
        void* found = nullptr;
        int status = 0;
        const Result result = get(name, &found, version, 0, &status);
        if (result == kStubLibrary) reject_stub(library);
        if (result != 0 || !found)
            throw Error(Errc::Unsupported,
                        fmt::format("the CUDA driver {} has no {} of CUDA {}.{}: FineGEMM needs a driver for CUDA 12.0 "
                                    "or later (525 or later); update the driver",
                                    library, name, version / 1000, version % 1000 / 10));
        entry = reinterpret_cast<F>(found);
    }
};

void resolve_streams(const Resolver& resolve, Api& api) {
    resolve(api.StreamCreate, "cuStreamCreate", 2000);
    resolve(api.StreamDestroy, "cuStreamDestroy", 4000);
    resolve(api.StreamGetId, "cuStreamGetId", 12000);
    resolve(api.StreamQuery, "cuStreamQuery", 2000);
    resolve(api.StreamSynchronize, "cuStreamSynchronize", 2000);
    resolve(api.StreamWaitEvent, "cuStreamWaitEvent", 3020);
    resolve(api.StreamIsCapturing, "cuStreamIsCapturing", 10000);
    resolve(api.StreamBeginCapture, "cuStreamBeginCapture", 10010);
    resolve(api.StreamEndCapture, "cuStreamEndCapture", 10000);
    resolve(api.GraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", 11040);
    resolve(api.GraphDestroy, "cuGraphDestroy", 10000);
    resolve(api.GraphExecDestroy, "cuGraphExecDestroy", 10000);
    resolve(api.GraphLaunch, "cuGraphLaunch", 10000);
    resolve(api.ThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", 10010);
    resolve(api.EventCreate, "cuEventCreate", 2000);
    resolve(api.EventDestroy, "cuEventDestroy", 4000);
    resolve(api.EventRecord, "cuEventRecord", 2000);
    resolve(api.EventQuery, "cuEventQuery", 2000);
    resolve(api.EventSynchronize, "cuEventSynchronize", 2000);
    resolve(api.EventElapsedTime, "cuEventElapsedTime", 2000);
}

void resolve_all(const Resolver& resolve, Api& api) {
    resolve(api.GetErrorName, "cuGetErrorName", 6000);
    resolve(api.GetErrorString, "cuGetErrorString", 6000);
    resolve(api.Init, "cuInit", 2000);
    resolve(api.DriverGetVersion, "cuDriverGetVersion", 2020);
    resolve(api.DeviceGetCount, "cuDeviceGetCount", 2000);
    resolve(api.DeviceGet, "cuDeviceGet", 2000);
    resolve(api.DeviceGetName, "cuDeviceGetName", 2000);
    resolve(api.DeviceGetAttribute, "cuDeviceGetAttribute", 2000);
    resolve(api.DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000);
    resolve(api.DevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease", 11000);
    resolve(api.CtxPushCurrent, "cuCtxPushCurrent", 4000);
    resolve(api.CtxPopCurrent, "cuCtxPopCurrent", 4000);
    resolve(api.CtxGetCurrent, "cuCtxGetCurrent", 4000);
    resolve(api.CtxSynchronize, "cuCtxSynchronize", 2000);
    resolve(api.CtxEnablePeerAccess, "cuCtxEnablePeerAccess", 4000);
    resolve(api.DeviceCanAccessPeer, "cuDeviceCanAccessPeer", 4000);
    resolve(api.LibraryLoadData, "cuLibraryLoadData", 12000);
    resolve(api.LibraryUnload, "cuLibraryUnload", 12000);
    resolve(api.LibraryGetKernel, "cuLibraryGetKernel", 12000);
    resolve(api.KernelGetFunction, "cuKernelGetFunction", 12000);
    resolve(api.FuncSetAttribute, "cuFuncSetAttribute", 9000);
    resolve(api.OccupancyMaxActiveClusters, "cuOccupancyMaxActiveClusters", 11070);
    resolve(api.OccupancyMaxActiveBlocksPerMultiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor", 6050);
    resolve(api.LaunchKernelEx, "cuLaunchKernelEx", 11060);
    resolve(api.TensorMapEncodeTiled, "cuTensorMapEncodeTiled", 12000);
    resolve(api.MemsetD2D8Async, "cuMemsetD2D8Async", 3020);
    resolve(api.MemsetD8Async, "cuMemsetD8Async", 3020);
    resolve(api.MemAlloc, "cuMemAlloc", 3020);
    resolve(api.MemFree, "cuMemFree", 3020);
    resolve(api.IpcGetMemHandle, "cuIpcGetMemHandle", 4010);
    resolve(api.IpcOpenMemHandle, "cuIpcOpenMemHandle", 11000);
    resolve(api.IpcCloseMemHandle, "cuIpcCloseMemHandle", 4010);
    resolve(api.MemPoolCreate, "cuMemPoolCreate", 11020);
    resolve(api.MemPoolDestroy, "cuMemPoolDestroy", 11020);
    resolve(api.MemPoolSetAttribute, "cuMemPoolSetAttribute", 11020);
    resolve(api.MemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", 11020);
    resolve(api.MemFreeAsync, "cuMemFreeAsync", 11020);
    resolve(api.MemcpyDtoHAsync, "cuMemcpyDtoHAsync", 3020);
    resolve(api.MemcpyHtoDAsync, "cuMemcpyHtoDAsync", 3020);
    resolve(api.MemcpyDtoDAsync, "cuMemcpyDtoDAsync", 3020);
    resolve_streams(resolve, api);
}

}  // namespace

std::shared_ptr<const Driver> Driver::open(const std::string& library) {
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: the driver does not survive it
    if (!handle)
        throw Error(Errc::Unsupported,
                    fmt::format("no CUDA driver: {}; install NVIDIA's driver, or run on the CPU", dlerror()));
    const auto get = reinterpret_cast<GetProcAddress>(dlsym(handle, "cuGetProcAddress_v2"));
    if (!get)
        throw Error(
            Errc::Unsupported,
            fmt::format("{} has no cuGetProcAddress_v2: the driver is older than CUDA 12.0 (525); update it", library));
    auto driver = std::make_shared<Driver>();
    resolve_all({get, library}, driver->api);
    const Result result = driver->api.Init(0);
    if (result == kStubLibrary) reject_stub(library);
    if (result == kNotInitialized) fail_in_child();  // of a process in which somebody else had initialised CUDA
    if (result == 0) {
        driver->check(driver->api.DriverGetVersion(&driver->version), "cuDriverGetVersion");
        driver->check(driver->api.DeviceGetCount(&driver->devices), "cuDeviceGetCount");
    } else if (result != kNoDevice) {
        driver->check(result, "cuInit");
    }
    if (driver->devices == 0)
        throw Error(Errc::Unsupported, "the CUDA driver sees no GPU; check CUDA_VISIBLE_DEVICES, or run on the CPU");
    return driver;
}

void Driver::fail_in_child() {
    throw Error(
        Errc::Unsupported,
        "CUDA does not work in a process that was forked from one that uses it; start it by spawn or forkserver, "
        "fork before the first call on a GPU, or pass CPU matrices");
}

void Driver::fail(Result result, std::string_view call) const {
    const char *name = "unknown error", *text = "";
    api.GetErrorName(result, &name);
    api.GetErrorString(result, &text);
    throw Error(Errc::Driver, fmt::format("{} failed: {} ({}: {})", call, name, result, text));
}

}  // namespace finegemm::cuda
