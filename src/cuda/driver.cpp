// Opening the CUDA driver. Layer cuda.
#include "cuda/driver.h"

#include <dlfcn.h>

#include <fmt/format.h>

#include <finegemm/error.h>

namespace finegemm::cuda {

namespace {

using GetProcAddress = Result (*)(const char* name, void** entry, int version, uint64_t flags, int* status);

constexpr Result kStubLibrary = 34, kNoDevice = 100;

/// Each entry point with the CUDA version in which it took the signature that Api declares.
template <typename F>
void resolve(GetProcAddress get, F& entry, const char* name, int version) {
    void* found = nullptr;
    int status = 0;
    if (get(name, &found, version, 0, &status) != 0 || !found)
        throw Error(Errc::Unsupported, fmt::format("the CUDA driver has no {} of CUDA {}.{}: FineGEMM needs a driver for "
                                                   "CUDA 12.0 or later (525 or later); update the driver",
                                                   name, version / 1000, version % 1000 / 10));
    entry = reinterpret_cast<F>(found);
}

void resolve_all(GetProcAddress get, Api& api) {
    resolve(get, api.GetErrorName, "cuGetErrorName", 6000);
    resolve(get, api.GetErrorString, "cuGetErrorString", 6000);
    resolve(get, api.Init, "cuInit", 2000);
    resolve(get, api.DriverGetVersion, "cuDriverGetVersion", 2020);
    resolve(get, api.DeviceGetCount, "cuDeviceGetCount", 2000);
    resolve(get, api.DeviceGet, "cuDeviceGet", 2000);
    resolve(get, api.DeviceGetName, "cuDeviceGetName", 2000);
    resolve(get, api.DeviceGetAttribute, "cuDeviceGetAttribute", 2000);
    resolve(get, api.DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000);
    resolve(get, api.DevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease", 11000);
    resolve(get, api.CtxPushCurrent, "cuCtxPushCurrent", 4000);
    resolve(get, api.CtxPopCurrent, "cuCtxPopCurrent", 4000);
    resolve(get, api.CtxGetCurrent, "cuCtxGetCurrent", 4000);
    resolve(get, api.LibraryLoadData, "cuLibraryLoadData", 12000);
    resolve(get, api.LibraryUnload, "cuLibraryUnload", 12000);
    resolve(get, api.LibraryGetKernel, "cuLibraryGetKernel", 12000);
    resolve(get, api.KernelSetAttribute, "cuKernelSetAttribute", 12000);
    resolve(get, api.OccupancyMaxActiveClusters, "cuOccupancyMaxActiveClusters", 11070);
    resolve(get, api.OccupancyMaxActiveBlocksPerMultiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor", 6050);
    resolve(get, api.LaunchKernelEx, "cuLaunchKernelEx", 11060);
    resolve(get, api.TensorMapEncodeTiled, "cuTensorMapEncodeTiled", 12000);
    resolve(get, api.MemsetD2D8Async, "cuMemsetD2D8Async", 3020);
    resolve(get, api.MemsetD8Async, "cuMemsetD8Async", 3020);
    resolve(get, api.MemAlloc, "cuMemAlloc", 3020);
    resolve(get, api.MemFree, "cuMemFree", 3020);
    resolve(get, api.MemcpyDtoHAsync, "cuMemcpyDtoHAsync", 3020);
    resolve(get, api.MemcpyHtoDAsync, "cuMemcpyHtoDAsync", 3020);
    resolve(get, api.StreamSynchronize, "cuStreamSynchronize", 2000);
    resolve(get, api.StreamIsCapturing, "cuStreamIsCapturing", 10000);
    resolve(get, api.ThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", 10010);
    resolve(get, api.EventCreate, "cuEventCreate", 2000);
    resolve(get, api.EventDestroy, "cuEventDestroy", 4000);
    resolve(get, api.EventRecord, "cuEventRecord", 2000);
    resolve(get, api.EventSynchronize, "cuEventSynchronize", 2000);
    resolve(get, api.EventElapsedTime, "cuEventElapsedTime", 2000);
}

}  // namespace

std::shared_ptr<const Driver> Driver::open(const std::string& library) {
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);   // never closed: the driver does not survive it
    if (!handle)
        throw Error(Errc::Unsupported, fmt::format("no CUDA driver: {}; install NVIDIA's driver, or run on the CPU", dlerror()));
    const auto get = reinterpret_cast<GetProcAddress>(dlsym(handle, "cuGetProcAddress_v2"));
    if (!get)
        throw Error(Errc::Unsupported, fmt::format("{} has no cuGetProcAddress_v2: the driver is older than CUDA 12.0 (525); "
                                                   "update it",
                                                   library));
    auto driver = std::make_shared<Driver>();
    resolve_all(get, driver->api);
    const Result result = driver->api.Init(0);
    if (result == kStubLibrary)
        throw Error(Errc::Unsupported, fmt::format("{} is the toolkit's stub, not a driver: take its directory (.../stubs) out "
                                                   "of LD_LIBRARY_PATH, or install NVIDIA's driver",
                                                   library));
    if (result == kNoDevice) throw Error(Errc::Unsupported, "the CUDA driver sees no GPU; check CUDA_VISIBLE_DEVICES");
    driver->check(result, "cuInit");
    driver->check(driver->api.DriverGetVersion(&driver->version), "cuDriverGetVersion");
    driver->check(driver->api.DeviceGetCount(&driver->devices), "cuDeviceGetCount");
    if (driver->devices == 0) throw Error(Errc::Unsupported, "the CUDA driver sees no GPU; check CUDA_VISIBLE_DEVICES");
    return driver;
}

void Driver::fail(Result result, std::string_view call) const {
    const char *name = "unknown error", *text = "";
    api.GetErrorName(result, &name);
    api.GetErrorString(result, &text);
    throw Error(Errc::Driver, fmt::format("{} failed: {} ({}: {})", call, name, result, text));
}

}  // namespace finegemm::cuda
