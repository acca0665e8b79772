// The CUDA driver, opened at run time: own declarations of the few types and entry points that the library uses.
// Layer cuda. No CUDA header and no CUDA library is needed to build or to start; a test holds the types against cuda.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <finegemm/gemm/params.h>

#include "os/process.h"

namespace finegemm::cuda {

using Result = int;
using DeviceHandle = int;
using DevicePtr = unsigned long long;
using ContextHandle = struct ContextTag*;
using StreamHandle = void*;
using PoolHandle = struct PoolTag*;
using LibraryHandle = struct LibraryTag*;
using KernelHandle = struct KernelTag*;
using FunctionHandle = struct FunctionTag*;  // a kernel in one context
using GraphHandle = struct GraphTag*;
using GraphExecHandle = struct GraphExecTag*;  // that can be launched

// CUlaunchAttributeID: cluster dimension, programmatic stream serialisation.
inline constexpr int kClusterDimension = 4, kProgrammaticSerialization = 6;

/// CUlaunchAttribute.
struct LaunchAttribute {
    int id = 0;
    char pad[4] = {};
    union {
        uint32_t cluster[3];
        int allowed;
        char bytes[64];
    } value = {};
};

/// CUmemPoolProps: memory of a device, for nobody else.
struct PoolProps {
    int allocation = 1;  // CU_MEM_ALLOCATION_TYPE_PINNED
    int handles = 0;
    int location = 1;  // CU_MEM_LOCATION_TYPE_DEVICE
    int device = 0;
    void* security = nullptr;
    char reserved[64] = {};
};
inline constexpr int kReleaseThreshold = 4;  // CUmemPool_attribute

/// CUipcMemHandle: names memory to other processes of the host.
struct MemoryName {
    char bytes[64] = {};
};
inline constexpr unsigned kLazyPeerAccess = 1;  // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

/// CUlaunchConfig.
struct LaunchConfig {
    uint32_t grid[3] = {1, 1, 1};
    uint32_t block[3] = {1, 1, 1};
    uint32_t smem_bytes = 0;
    StreamHandle stream = nullptr;
    LaunchAttribute* attributes = nullptr;
    uint32_t attribute_count = 0;
};

// CUdevice_attribute and CUfunction_attribute values, as cuda.h numbers them.
enum class DeviceAttribute : int {
    MultiprocessorCount = 16,
    ClockRateKhz = 13,
    MemoryClockKhz = 36,
    PciBus = 33,
    PciDevice = 34,
    BusWidthBits = 37,
    L2Bytes = 38,
    PciDomain = 50,
    ComputeMajor = 75,
    ComputeMinor = 76,
    MaxSharedMemoryOptin = 97,
};
inline constexpr int kMaxDynamicSharedMemory = 8;
inline constexpr int kRelaxedCapture = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED

/// The entry points, named as in cuda.h without "cu". All are resolved when the driver is opened.
struct Api {
    Result (*GetErrorName)(Result, const char**);
    Result (*GetErrorString)(Result, const char**);
    Result (*Init)(unsigned);
    Result (*DriverGetVersion)(int*);
    Result (*DeviceGetCount)(int*);
    Result (*DeviceGet)(DeviceHandle*, int);
    Result (*DeviceGetName)(char*, int, DeviceHandle);
    Result (*DeviceGetAttribute)(int*, int, DeviceHandle);
    Result (*DevicePrimaryCtxRetain)(ContextHandle*, DeviceHandle);
    Result (*DevicePrimaryCtxRelease)(DeviceHandle);
    Result (*CtxPushCurrent)(ContextHandle);
    Result (*CtxPopCurrent)(ContextHandle*);
    Result (*CtxGetCurrent)(ContextHandle*);
    Result (*CtxSynchronize)();
    Result (*CtxEnablePeerAccess)(ContextHandle, unsigned flags);
    Result (*DeviceCanAccessPeer)(int*, DeviceHandle, DeviceHandle peer);
    Result (*LibraryLoadData)(LibraryHandle*, const void*, void*, void*, unsigned, void*, void*, unsigned);
    Result (*LibraryUnload)(LibraryHandle);
    Result (*LibraryGetKernel)(KernelHandle*, LibraryHandle, const char*);
    Result (*KernelGetFunction)(FunctionHandle*, KernelHandle);  // of the current context
    Result (*FuncSetAttribute)(FunctionHandle, int attribute, int value);
    Result (*OccupancyMaxActiveClusters)(int*, FunctionHandle, const LaunchConfig*);
    Result (*OccupancyMaxActiveBlocksPerMultiprocessor)(int*, FunctionHandle, int block, size_t smem);
    Result (*LaunchKernelEx)(const LaunchConfig*, FunctionHandle, void** parameters, void** extra);
    Result (*TensorMapEncodeTiled)(TensorMap*, int type, uint32_t rank, void* base, const uint64_t* dims,
                                   const uint64_t* strides, const uint32_t* box, const uint32_t* element_strides,
                                   int interleave, int swizzle, int l2_promotion, int oob_fill);
    Result (*MemsetD2D8Async)(DevicePtr, size_t pitch, unsigned char value, size_t width, size_t height, StreamHandle);
    Result (*MemsetD8Async)(DevicePtr, unsigned char value, size_t bytes, StreamHandle);
    Result (*MemAlloc)(DevicePtr*, size_t);
    Result (*MemFree)(DevicePtr);
    Result (*IpcGetMemHandle)(MemoryName*, DevicePtr);
    Result (*IpcOpenMemHandle)(DevicePtr*, MemoryName, unsigned flags);
    Result (*IpcCloseMemHandle)(DevicePtr);
    Result (*MemPoolCreate)(PoolHandle*, const PoolProps*);
    Result (*MemPoolDestroy)(PoolHandle);
    Result (*MemPoolSetAttribute)(PoolHandle, int attribute, void* value);
    Result (*MemAllocFromPoolAsync)(DevicePtr*, size_t, PoolHandle, StreamHandle);
    Result (*MemFreeAsync)(DevicePtr, StreamHandle);
    Result (*MemcpyDtoHAsync)(void*, DevicePtr, size_t, StreamHandle);
    Result (*MemcpyHtoDAsync)(DevicePtr, const void*, size_t, StreamHandle);
    Result (*MemcpyDtoDAsync)(DevicePtr, DevicePtr, size_t, StreamHandle);
    Result (*StreamCreate)(StreamHandle*, unsigned flags);
    Result (*StreamDestroy)(StreamHandle);
    Result (*StreamGetId)(StreamHandle, unsigned long long*);  // that no other stream ever has
    Result (*StreamQuery)(StreamHandle);
    Result (*StreamSynchronize)(StreamHandle);
    Result (*StreamWaitEvent)(StreamHandle, void* event, unsigned flags);
    Result (*StreamIsCapturing)(StreamHandle, int*);
    Result (*StreamBeginCapture)(StreamHandle, int mode);
    Result (*StreamEndCapture)(StreamHandle, GraphHandle*);
    Result (*GraphInstantiateWithFlags)(GraphExecHandle*, GraphHandle, unsigned long long flags);
    Result (*GraphDestroy)(GraphHandle);
    Result (*GraphExecDestroy)(GraphExecHandle);
    Result (*GraphLaunch)(GraphExecHandle, StreamHandle);
    Result (*ThreadExchangeStreamCaptureMode)(int*);
    Result (*EventCreate)(void**, unsigned);
    Result (*EventDestroy)(void*);
    Result (*EventRecord)(void*, StreamHandle);
    Result (*EventQuery)(void*);
    Result (*EventSynchronize)(void*);
    Result (*EventElapsedTime)(float*, void*, void*);
};

class Driver {
public:
    /// Opens the driver and initialises it. Throws Error(Unsupported) that says what is missing and what to do:
    /// no library, a toolkit's stub, no device, a driver without an entry point that we need.
    static std::shared_ptr<const Driver> open(const std::string& library = "libcuda.so.1");

    Api api{};
    int version = 0;  // 12040 is CUDA 12.4
    int devices = 0;

    /// In a child of fork CUDA does not work, and nothing of the parent's is to be released. Throws Error(Unsupported)
    /// there.
    void check_process() const {
        if (!process.is_this()) fail_in_child();
    }

    const os::Process process;  // that opened it

    /// Throws Error(Driver) that names the call and the driver's reason.
    void check(Result result, std::string_view call) const {
        if (result != 0) fail(result, call);
    }

private:
    [[noreturn]] static void fail_in_child();
    [[noreturn]] void fail(Result result, std::string_view call) const;
};

}  // namespace finegemm::cuda
