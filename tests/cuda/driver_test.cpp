// Opening the driver, and what people are told when there is none that can be used. Layer tests.
#include "cuda/driver.h"

#include <filesystem>

#include "support/error_of.h"
#include "support/mock_driver.h"

namespace finegemm::cuda {
namespace {

using test::contains;
using test::error_of;

class DriverTest : public ::testing::Test {
protected:
    mock::Driver mock{FINEGEMM_MOCK_DRIVER};

    static std::shared_ptr<const Driver> open() { return Driver::open(FINEGEMM_MOCK_DRIVER); }
};

void expect_unsupported(const Error& error, std::initializer_list<const char*> texts) {
    EXPECT_EQ(error.code(), Errc::Unsupported);
    for (const char* text : texts) EXPECT_TRUE(contains(error, text)) << error.what() << "\nlacks: " << text;
}

TEST_F(DriverTest, OpensOneThatHasEverything) {
    mock->gpus.resize(3);
    const auto driver = open();
    EXPECT_EQ(driver->version, 12040);
    EXPECT_EQ(driver->devices, 3);
    EXPECT_EQ(mock->resolved.size(), sizeof(Api) / sizeof(void*)) << "an entry point of Api that nobody resolved";
}

TEST_F(DriverTest, SaysWhichLibraryIsMissingAndWhatToDo) {
    expect_unsupported(error_of([] { Driver::open("/nowhere/libcuda.so.1"); }),
                       {"no CUDA driver", "/nowhere/libcuda.so.1", "install NVIDIA's driver", "CPU"});
}

TEST_F(DriverTest, SaysThatALibraryIsNoDriverOrAnOldOne) {
    expect_unsupported(error_of([] { Driver::open("libm.so.6"); }),
                       {"libm.so.6", "cuGetProcAddress_v2", "12.0", "update"});
}

TEST_F(DriverTest, TellsTheToolkitsStubFromADriver) {
    mock->stub = true;
    expect_unsupported(error_of(open), {FINEGEMM_MOCK_DRIVER, "stub", "LD_LIBRARY_PATH"});
    mock->stub = false;
    mock.fail("cuInit", 34);
    expect_unsupported(error_of(open), {FINEGEMM_MOCK_DRIVER, "stub", "LD_LIBRARY_PATH"});
}

TEST_F(DriverTest, TellsARealStubFromADriver) {
    const char* stub = "/usr/local/cuda/lib64/stubs/libcuda.so";
    if (!std::filesystem::exists(stub)) GTEST_SKIP() << stub << ": no CUDA toolkit here";
    expect_unsupported(error_of([&] { Driver::open(stub); }), {stub, "stub", "LD_LIBRARY_PATH"});
}

TEST_F(DriverTest, SaysThatThereIsNoGpu) {
    mock->gpus.clear();
    expect_unsupported(error_of(open), {"no GPU", "CUDA_VISIBLE_DEVICES"});
}

TEST_F(DriverTest, SaysThatADriverIsTooOld) {
    mock->version = 11080;
    expect_unsupported(error_of(open), {"cuLibraryLoadData", "CUDA 12.0", "525", "update the driver"});
}

TEST_F(DriverTest, NamesAnyEntryPointThatIsMissing) {
    open();
    const std::vector<std::string> all = mock->resolved;
    ASSERT_FALSE(all.empty());
    for (const std::string& name : all) {
        mock->missing = {name};
        expect_unsupported(error_of(open), {(" " + name + " ").c_str(), "update the driver"});
    }
}

TEST_F(DriverTest, NamesTheCallThatFailsAndTheDriversReason) {
    for (const char* call : {"cuInit", "cuDriverGetVersion", "cuDeviceGetCount"}) {
        mock->failures.clear();
        mock.fail(call, 1);
        const Error error = error_of(open);
        EXPECT_EQ(error.code(), Errc::Driver);
        EXPECT_EQ(std::string(error.what()),
                  std::string(call) + " failed: CUDA_ERROR_INVALID_VALUE (1: as the mock says)");
    }
}

}  // namespace
}  // namespace finegemm::cuda
