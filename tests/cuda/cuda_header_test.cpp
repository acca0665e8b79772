// The library's own declarations of the driver's types, held against cuda.h where the CUDA toolkit is. Layer tests.
#include <gtest/gtest.h>

#include "cuda/driver.h"
#include "support/same_signature.h"

#if __has_include(<cuda.h>) && __has_include(<cudaTypedefs.h>)

#include <cuda.h>
#include <cudaTypedefs.h>

#include <cstddef>

namespace finegemm::cuda {
namespace {

using test::kSameSignature;

// With the version that driver.cpp asks for.
#define SAME(name, version) static_assert(kSameSignature<decltype(Api::name), PFN_cu##name##_v##version>)
SAME(GetErrorName, 6000);
SAME(GetErrorString, 6000);
SAME(Init, 2000);
SAME(DriverGetVersion, 2020);
SAME(DeviceGetCount, 2000);
SAME(DeviceGet, 2000);
SAME(DeviceGetName, 2000);
SAME(DeviceGetAttribute, 2000);
SAME(DevicePrimaryCtxRetain, 7000);
SAME(DevicePrimaryCtxRelease, 11000);
SAME(CtxPushCurrent, 4000);
SAME(CtxPopCurrent, 4000);
SAME(CtxGetCurrent, 4000);
SAME(CtxSynchronize, 2000);
SAME(LibraryLoadData, 12000);
SAME(LibraryUnload, 12000);
SAME(LibraryGetKernel, 12000);
SAME(KernelGetFunction, 12000);
SAME(FuncSetAttribute, 9000);
SAME(OccupancyMaxActiveClusters, 11070);
SAME(OccupancyMaxActiveBlocksPerMultiprocessor, 6050);
SAME(LaunchKernelEx, 11060);
SAME(TensorMapEncodeTiled, 12000);
SAME(MemsetD2D8Async, 3020);
SAME(MemsetD8Async, 3020);
SAME(MemAlloc, 3020);
SAME(MemFree, 3020);
SAME(MemcpyDtoHAsync, 3020);
SAME(MemcpyHtoDAsync, 3020);
SAME(MemcpyDtoDAsync, 3020);
SAME(StreamCreate, 2000);
SAME(StreamDestroy, 4000);
SAME(StreamGetId, 12000);
SAME(StreamQuery, 2000);
SAME(StreamSynchronize, 2000);
SAME(StreamWaitEvent, 3020);
SAME(StreamIsCapturing, 10000);
SAME(StreamBeginCapture, 10010);
SAME(StreamEndCapture, 10000);
SAME(GraphInstantiateWithFlags, 11040);
SAME(GraphDestroy, 10000);
SAME(GraphExecDestroy, 10000);
SAME(GraphLaunch, 10000);
SAME(ThreadExchangeStreamCaptureMode, 10010);
SAME(EventCreate, 2000);
SAME(EventDestroy, 4000);
SAME(EventRecord, 2000);
SAME(EventQuery, 2000);
SAME(EventSynchronize, 2000);
SAME(EventElapsedTime, 2000);
#undef SAME

static_assert(sizeof(LaunchAttribute) == sizeof(CUlaunchAttribute) &&
              alignof(LaunchAttribute) <= alignof(CUlaunchAttribute));
static_assert(offsetof(LaunchAttribute, value) == offsetof(CUlaunchAttribute, value));
static_assert(sizeof(LaunchConfig) == sizeof(CUlaunchConfig));
static_assert(offsetof(LaunchConfig, block) == offsetof(CUlaunchConfig, blockDimX));
static_assert(offsetof(LaunchConfig, smem_bytes) == offsetof(CUlaunchConfig, sharedMemBytes));
static_assert(offsetof(LaunchConfig, stream) == offsetof(CUlaunchConfig, hStream));
static_assert(offsetof(LaunchConfig, attributes) == offsetof(CUlaunchConfig, attrs));
static_assert(offsetof(LaunchConfig, attribute_count) == offsetof(CUlaunchConfig, numAttrs));
static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));
static_assert(alignof(TensorMap) >= 64);  // what cuTensorMapEncodeTiled asks for; CUDA 13 aligns its own type to 128

constexpr bool same(DeviceAttribute ours, CUdevice_attribute theirs) { return static_cast<int>(ours) == theirs; }
static_assert(same(DeviceAttribute::MultiprocessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
static_assert(same(DeviceAttribute::ClockRateKhz, CU_DEVICE_ATTRIBUTE_CLOCK_RATE));
static_assert(same(DeviceAttribute::MemoryClockKhz, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE));
static_assert(same(DeviceAttribute::PciBus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID));
static_assert(same(DeviceAttribute::PciDevice, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID));
static_assert(same(DeviceAttribute::PciDomain, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID));
static_assert(same(DeviceAttribute::BusWidthBits, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH));
static_assert(same(DeviceAttribute::L2Bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE));
static_assert(same(DeviceAttribute::ComputeMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
static_assert(same(DeviceAttribute::ComputeMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
static_assert(same(DeviceAttribute::MaxSharedMemoryOptin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));

TEST(CudaHeader, AgreesWithOurConstants) {
    EXPECT_EQ(kClusterDimension, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
    EXPECT_EQ(kProgrammaticSerialization, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
    EXPECT_EQ(kMaxDynamicSharedMemory, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
    EXPECT_EQ(sizeof(DevicePtr), sizeof(CUdeviceptr));
    EXPECT_EQ(sizeof(Result), sizeof(CUresult));
}

}  // namespace
}  // namespace finegemm::cuda

#else

TEST(CudaHeader, AgreesWithOurConstants) {
    GTEST_SKIP() << "no cuda.h: the CUDA toolkit is not on this machine's include path";
}

#endif
