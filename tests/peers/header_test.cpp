// Our declarations of cuBLASLt and NVML, held against their headers where they are. Layer tests.
#include <gtest/gtest.h>

#include <cstddef>

#include "peers/cublaslt.h"
#include "peers/nvml.h"
#include "support/same_signature.h"

using finegemm::test::kSameSignature;

#if __has_include(<cublasLt.h>)

#include <cublasLt.h>

namespace finegemm::cublaslt {

#define SAME(name) static_assert(kSameSignature<decltype(Api::name), decltype(&cublasLt##name)>)
SAME(GetVersion);
SAME(GetStatusName);
SAME(Create);
SAME(Destroy);
SAME(MatmulDescCreate);
SAME(MatmulDescDestroy);
SAME(MatmulDescSetAttribute);
SAME(MatrixLayoutCreate);
SAME(MatrixLayoutDestroy);
SAME(MatmulPreferenceDestroy);
SAME(MatmulPreferenceSetAttribute);
SAME(MatmulAlgoGetHeuristic);
SAME(Matmul);
#undef SAME
using PreferenceCreate = cublasStatus_t (*)(cublasLtMatmulPreference_t*);  // inline in some versions of the header
static_assert(kSameSignature<decltype(Api::MatmulPreferenceCreate), PreferenceCreate>);

static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(HeuristicResult) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(HeuristicResult, workspace_bytes) == offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(HeuristicResult, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));

TEST(CublasLtHeader, AgreesWithOurConstants) {
    EXPECT_EQ(kE4m3, CUDA_R_8F_E4M3);
    EXPECT_EQ(kBf16, CUDA_R_16BF);
    EXPECT_EQ(kF32, CUDA_R_32F);
    EXPECT_EQ(kCompute32F, CUBLAS_COMPUTE_32F);
    EXPECT_EQ(kTransposed, CUBLAS_OP_T);
    EXPECT_EQ(kNotSupported, CUBLAS_STATUS_NOT_SUPPORTED);
    EXPECT_EQ(kTransA, CUBLASLT_MATMUL_DESC_TRANSA);
    EXPECT_EQ(kScalePointerA, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER);
    EXPECT_EQ(kScalePointerB, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER);
    EXPECT_EQ(kFastAccumulation, CUBLASLT_MATMUL_DESC_FAST_ACCUM);
    EXPECT_EQ(kMaxWorkspaceBytes, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
#if CUBLAS_VERSION >= 120900
    EXPECT_EQ(kScaleModeA, CUBLASLT_MATMUL_DESC_A_SCALE_MODE);
    EXPECT_EQ(kScaleModeB, CUBLASLT_MATMUL_DESC_B_SCALE_MODE);
    EXPECT_EQ(kScaleVec128, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F);
    EXPECT_EQ(kScaleBlock128x128, CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F);
#else
    GTEST_SKIP() << "this cublasLt.h is older than 12.9 and has no block scales to compare with";
#endif
}

}  // namespace finegemm::cublaslt

#else

TEST(CublasLtHeader, AgreesWithOurConstants) {
    GTEST_SKIP() << "no cublasLt.h: the CUDA toolkit is not on this machine's include path";
}

#endif

#if __has_include(<nvml.h>)

#include <nvml.h>

namespace finegemm::nvml {

#define SAME(name, theirs) static_assert(kSameSignature<decltype(Api::name), decltype(&theirs)>)
SAME(Init, nvmlInit_v2);
SAME(Shutdown, nvmlShutdown);
SAME(ErrorString, nvmlErrorString);
SAME(SystemGetDriverVersion, nvmlSystemGetDriverVersion);
SAME(DeviceGetHandleByPciBusId, nvmlDeviceGetHandleByPciBusId_v2);
SAME(DeviceGetPowerUsage, nvmlDeviceGetPowerUsage);
SAME(DeviceGetEnforcedPowerLimit, nvmlDeviceGetEnforcedPowerLimit);
SAME(DeviceGetClockInfo, nvmlDeviceGetClockInfo);
SAME(DeviceGetTemperature, nvmlDeviceGetTemperature);
SAME(DeviceGetCurrentClocksThrottleReasons, nvmlDeviceGetCurrentClocksThrottleReasons);
#undef SAME

TEST(NvmlHeader, AgreesWithOurConstants) {
    EXPECT_EQ(kClockSm, NVML_CLOCK_SM);
    EXPECT_EQ(kClockMemory, NVML_CLOCK_MEM);
    EXPECT_EQ(kTemperatureGpu, NVML_TEMPERATURE_GPU);
    EXPECT_EQ(kIdle, nvmlClocksThrottleReasonGpuIdle);
    EXPECT_EQ(kApplicationClocks, nvmlClocksThrottleReasonApplicationsClocksSetting);
    EXPECT_EQ(kPowerCap, nvmlClocksThrottleReasonSwPowerCap);
    EXPECT_EQ(kHwSlowdown, nvmlClocksThrottleReasonHwSlowdown);
    EXPECT_EQ(kSyncBoost, nvmlClocksThrottleReasonSyncBoost);
    EXPECT_EQ(kSwThermal, nvmlClocksThrottleReasonSwThermalSlowdown);
    EXPECT_EQ(kHwThermal, nvmlClocksThrottleReasonHwThermalSlowdown);
    EXPECT_EQ(kPowerBrake, nvmlClocksThrottleReasonHwPowerBrakeSlowdown);
    EXPECT_EQ(kDisplayClocks, nvmlClocksThrottleReasonDisplayClockSetting);
}

}  // namespace finegemm::nvml

#else

TEST(NvmlHeader, AgreesWithOurConstants) { GTEST_SKIP() << "no nvml.h: it is not on this machine's include path"; }

#endif
