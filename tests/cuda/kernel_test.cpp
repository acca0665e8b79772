// Devices, kernels and tensor maps, against the mock driver. Layer tests.
#include "cuda/kernel.h"

#include "cuda/tensor_map.h"
#include "support/error_of.h"
#include "support/mock_driver.h"

namespace finegemm::cuda {
namespace {

using test::contains;
using test::error_of;

const std::string kCubin = "\x7f\x45LF and so on";
constexpr LaunchShape kPlain{.block = 256}, kPair{.block = 384, .cluster = 2, .smem_bytes = 200000};

class KernelTest : public ::testing::Test {
protected:
    mock::Driver mock{FINEGEMM_MOCK_DRIVER};
    std::shared_ptr<const Driver> driver = Driver::open(FINEGEMM_MOCK_DRIVER);
};

TEST_F(KernelTest, ADeviceKnowsItsFacts) {
    mock->gpus[0].name = "NVIDIA H20";
    mock->gpus[0].sms = 78;
    const Device device(driver, 0);
    EXPECT_EQ(device.facts().name, "NVIDIA H20");
    EXPECT_EQ(device.facts().major, 9);
    EXPECT_EQ(device.facts().minor, 0);
    EXPECT_EQ(device.facts().sms, 78u);
    EXPECT_EQ(device.facts().smem_bytes, 232448u);
    EXPECT_DOUBLE_EQ(device.facts().clock_ghz, 1.98);
    EXPECT_NEAR(device.facts().memory_bytes_per_us, 4.917e6, 1e3);  // an H200's data sheet says 4.8 TB/s
}

TEST_F(KernelTest, ADeviceThatDoesNotExistIsNamed) {
    for (const int index : {-1, 1, 1000}) {
        const Error error = error_of([&] { Device(driver, index); });
        EXPECT_EQ(error.code(), Errc::InvalidArgument);
        EXPECT_TRUE(contains(error, "device " + std::to_string(index) + " does not exist: the driver sees 1 GPU(s)"))
            << error.what();
    }
}

TEST_F(KernelTest, ADeviceGivesItsContextBack) {
    {
        const Device one(driver, 0), two(driver, 0);
        EXPECT_EQ(mock->gpus[0].retains, 2);
    }
    EXPECT_EQ(mock->gpus[0].retains, 0);
    for (const char* call : {"cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain"}) {
        mock->failures.clear();
        mock.fail(call, 2);
        EXPECT_TRUE(contains(error_of([&] { Device(driver, 0); }), call));
        EXPECT_EQ(mock->gpus[0].retains, 0);
    }
}

TEST_F(KernelTest, AContextIsPushedOnlyWhenItIsNotCurrentAndThenPopped) {
    mock->gpus.resize(2);
    driver = Driver::open(FINEGEMM_MOCK_DRIVER);
    const Device first(driver, 0), second(driver, 1);
    {
        const CurrentDevice outer(first);
        EXPECT_EQ(mock.context_depth(), 1u);
        {
            const CurrentDevice again(first);
            EXPECT_EQ(mock.context_depth(), 1u);
        }
        EXPECT_EQ(mock.context_depth(), 1u);
        {
            const CurrentDevice other(second);
            EXPECT_EQ(mock.context_depth(), 2u);
        }
        ContextHandle current = nullptr;
        driver->api.CtxGetCurrent(&current);
        EXPECT_EQ(current, first.context());
    }
    EXPECT_EQ(mock.context_depth(), 0u);
}

TEST_F(KernelTest, ALaunchHasItsShapeItsStreamAndItsParameters) {
    const Device device(driver, 0);
    const Kernel plain(device, kCubin, "finegemm_plain", kPlain), pair(device, kCubin, "finegemm_pair", kPair);
    EXPECT_EQ(plain.resident_clusters(), 2u * 132);
    EXPECT_EQ(pair.resident_clusters(), 60u);
    SegmentedParams params{};
    params.m = 1234;
    const CurrentDevice current(device);
    plain.launch(7, &params, reinterpret_cast<void*>(0x5e));
    pair.launch(8, &params, nullptr);
    ASSERT_EQ(mock->launches.size(), 2u);
    const mock::Launch &a = mock->launches[0], &b = mock->launches[1];
    EXPECT_EQ(std::tuple(a.entry, a.grid, a.block, a.cluster, a.smem_bytes),
              std::tuple("finegemm_plain", 7u, 256u, 1u, 0u));
    EXPECT_EQ(std::tuple(b.entry, b.grid, b.block, b.cluster, b.smem_bytes),
              std::tuple("finegemm_pair", 8u, 384u, 2u, 200000u));
    EXPECT_EQ(a.stream, reinterpret_cast<void*>(0x5e));
    EXPECT_EQ(a.gemm.m, 1234u);
}

TEST_F(KernelTest, EachDeviceLaunchesInItsOwnContext) {
    mock->gpus.resize(2);
    driver = Driver::open(FINEGEMM_MOCK_DRIVER);
    const Device first(driver, 0), second(driver, 1);
    const Kernel kernel(second, kCubin, "finegemm_x", kPlain);
    const SegmentedParams params{};
    {
        const CurrentDevice current(second);
        kernel.launch(1, &params, nullptr);
    }
    ASSERT_EQ(mock->launches.size(), 1u);
    EXPECT_EQ(mock->launches[0].gpu, 1);
    const CurrentDevice wrong(first);
    EXPECT_TRUE(contains(error_of([&] { kernel.launch(1, &params, nullptr); }), "cuLaunchKernelEx(finegemm_x) failed"));
}

TEST_F(KernelTest, LoadingLeavesNothingBehindWhereverItFails) {
    const Device device(driver, 0);
    for (const char* call :
         {"cuCtxGetCurrent", "cuCtxPushCurrent", "cuThreadExchangeStreamCaptureMode", "cuLibraryLoadData",
          "cuLibraryGetKernel", "cuKernelGetFunction", "cuFuncSetAttribute", "cuOccupancyMaxActiveClusters"}) {
        mock->failures.clear();
        mock.fail(call, 1);
        const Error error = error_of([&] { Kernel(device, kCubin, "entry", kPair); });
        EXPECT_EQ(error.code(), Errc::Driver);
        EXPECT_TRUE(contains(error, call)) << error.what();
        EXPECT_EQ(mock->libraries, 0);
        EXPECT_EQ(mock.context_depth(), 0u);
    }
    mock->failures.clear();
    mock.fail("cuOccupancyMaxActiveBlocksPerMultiprocessor", 1);
    EXPECT_TRUE(contains(error_of([&] { Kernel(device, kCubin, "entry", kPlain); }), "(entry) failed"));
    mock->failures.clear();
    {
        const Kernel loaded(device, kCubin, "entry", kPair);
        EXPECT_EQ(mock->libraries, 1);
    }
    EXPECT_EQ(mock->libraries, 0);
}

TEST_F(KernelTest, LoadsWhileAStreamCaptures) {
    const Device device(driver, 0);
    mock->capturing = true;
    const Kernel kernel(device, kCubin, "entry", kPlain);
    EXPECT_EQ(mock->count("cuThreadExchangeStreamCaptureMode"), 2);
    int mode = 0;
    driver->api.ThreadExchangeStreamCaptureMode(&mode);
    EXPECT_EQ(mode, 0) << "the thread's mode was not put back";
}

TEST_F(KernelTest, BytesThatAreNoCubinAreTheDriversErrorWithTheKernelsName) {
    const Device device(driver, 0);
    const Error error = error_of([&] { Kernel(device, "junk", "finegemm_x", kPlain); });
    EXPECT_EQ(error.code(), Errc::Driver);
    EXPECT_TRUE(contains(error, "cuLibraryLoadData(finegemm_x) failed")) << error.what();
}

TEST_F(KernelTest, AKernelThatDoesNotFitSaysSo) {
    mock->resident_clusters = 0;  // as on a small slice of a GPU
    const Device device(driver, 0);
    const Error error = error_of([&] { Kernel(device, kCubin, "finegemm_x", kPair); });
    EXPECT_EQ(error.code(), Errc::Unsupported);
    for (const char* text : {"NVIDIA H200", "132 SMs", "cluster of 2", "200000 bytes", "finegemm_x", "config"})
        EXPECT_TRUE(contains(error, text)) << error.what();
    EXPECT_EQ(mock->libraries, 0);
}

TEST_F(KernelTest, AFailedLaunchNamesTheKernel) {
    const Device device(driver, 0);
    const Kernel kernel(device, kCubin, "finegemm_x", kPlain);
    const SegmentedParams params{};
    const Error error = error_of([&] { kernel.launch(1, &params, nullptr); });  // no context is current
    EXPECT_EQ(error.code(), Errc::Driver);
    EXPECT_TRUE(contains(error, "cuLaunchKernelEx(finegemm_x) failed: CUDA_ERROR_MOCK (201")) << error.what();
}

TEST_F(KernelTest, ATensorMapDescribesTheMatrixAndTheBox) {
    const void* data = reinterpret_cast<void*>(0x7000);
    const auto described = [&](const GlobalMatrix& x, const TmaBox& box) {
        return mock::description_of(encode(*driver, x, box));
    };
    EXPECT_EQ(described({data, 300, 512, 528}, {.rows = 64, .cols = 128, .element_bytes = 1, .swizzle = Swizzle::B128}),
              (mock::Description{data, 512, 300, 528, 128, 64, 0, 3}));
    EXPECT_EQ(described({data, 7, 48, 96}, {.rows = 64, .cols = 48, .element_bytes = 2, .swizzle = Swizzle::None}),
              (mock::Description{data, 48, 7, 96, 48, 64, 9, 0}));
    EXPECT_EQ(described({data, 7, 48, 192}, {.rows = 16, .cols = 32, .element_bytes = 4, .swizzle = Swizzle::B128}),
              (mock::Description{data, 48, 7, 192, 32, 16, 7, 3}));
    EXPECT_EQ(
        described({data, 7, 48, 96}, {.rows = 64, .cols = 32, .element_bytes = 2, .swizzle = Swizzle::B64}).swizzle, 2);
    EXPECT_EQ(
        described({data, 7, 48, 96}, {.rows = 64, .cols = 16, .element_bytes = 2, .swizzle = Swizzle::B32}).swizzle, 1);
}

TEST_F(KernelTest, ATensorMapThatTheDriverRejectsIsDescribedInTheError) {
    const auto rejected = [&](const GlobalMatrix& x, const TmaBox& box) {
        return error_of([&] { encode(*driver, x, box); });
    };
    const TmaBox box{.rows = 64, .cols = 128, .element_bytes = 1, .swizzle = Swizzle::B128};
    void* data = reinterpret_cast<void*>(0x7000);
    const Error error = rejected({data, 300, 512, 520}, box);
    EXPECT_EQ(error.code(), Errc::Driver);
    EXPECT_TRUE(
        contains(error, "cuTensorMapEncodeTiled(300 x 512 at 0x7000, rows every 520 bytes, box 64 x 128) failed"))
        << error.what();
    EXPECT_TRUE(contains(rejected({reinterpret_cast<void*>(0x7008), 300, 512, 512}, box), "failed"));
    EXPECT_TRUE(contains(rejected({data, 300, 0, 512}, box), "failed"));
    EXPECT_TRUE(contains(rejected({data, 300, 512, 1ull << 40}, box), "failed"));
    EXPECT_TRUE(
        contains(rejected({data, 300, 512, 512}, {.rows = 257, .cols = 128, .swizzle = Swizzle::B128}), "failed"));
    EXPECT_TRUE(
        contains(rejected({data, 300, 512, 512}, {.rows = 64, .cols = 128, .swizzle = Swizzle::B64}), "failed"));
}

}  // namespace
}  // namespace finegemm::cuda
