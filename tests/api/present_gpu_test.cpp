// What the API makes of the GPUs that the (mock) driver has. Layer tests.
#include <gtest/gtest.h>

#include <cstdlib>

#include <nlohmann/json.hpp>

#include <finegemm/gemm.h>

#include "support/error_of.h"
#include "support/matrix.h"
#include "support/mock_driver.h"

namespace finegemm::test {
namespace {

class PresentGpu : public testing::Test {
protected:
    PresentGpu() { setenv("FINEGEMM_DRIVER", FINEGEMM_MOCK_DRIVER, 1); }
    ~PresentGpu() override { unsetenv("FINEGEMM_DRIVER"); }
    static std::string device_of(const std::string& plan) { return nlohmann::json::parse(plan)["device"]; }

    mock::Driver driver{FINEGEMM_MOCK_DRIVER};
};

TEST_F(PresentGpu, IsWhatPlansAreExplainedForUnlessAnotherIsNamed) {
    driver->gpus[0].name = "NVIDIA H100 80GB HBM3";
    EXPECT_EQ(device_of(explain(64, 2112, 7168)), "h100");
    EXPECT_EQ(device_of(explain(64, 2112, 7168, "h20")), "h20");
}

TEST_F(PresentGpu, DoesNotCountForPlansWhenItIsNoHopper) {
    driver->gpus[0].name = "NVIDIA A100-SXM4-80GB";
    driver->gpus[0].major = 8;
    EXPECT_EQ(device_of(explain(64, 2112, 7168)), "h200");
}

TEST_F(PresentGpu, IsGivenBackAfterExplaining) {
    explain(64, 2112, 7168);
    EXPECT_EQ(driver->gpus[0].retains, 0);
}

TEST_F(PresentGpu, HasPlansForBatchInvariantResultsWhereTheEnvironmentAsksForThem) {
    const GemmShape k_groups{.m = 768, .n = 1024, .k = 512, .k_groups = 2};
    setenv("FINEGEMM_BATCH_INVARIANT", "1", 1);
    const std::string here = explain(64, 2112, 7168), named = explain(64, 2112, 7168, "h200");
    const std::string k_groups_here = explain(k_groups), k_groups_named = explain(k_groups, "h200");
    unsetenv("FINEGEMM_BATCH_INVARIANT");
    EXPECT_EQ(here, explain(64, 2112, 7168, "h200", true));
    EXPECT_EQ(named, explain(64, 2112, 7168, "h200", false));
    EXPECT_NE(here, named);
    EXPECT_NE(k_groups_here.find("results shall be batch-invariant"), std::string::npos) << k_groups_here;
    EXPECT_EQ(k_groups_named, explain(k_groups, "h200"));
}

TEST_F(PresentGpu, HasAnIndexThatTheDriverKnows) {
    Context context;
    Problem p(16, 64, 128, 1);
    GemmArgs args = p.args();
    for (Device* d : {&args.a.device, &args.sfa.device, &args.b.device, &args.sfb.device, &args.d.device})
        *d = {DeviceType::Cuda, 5};
    const Error e = error_of([&] { gemm(context, args); });
    EXPECT_EQ(e.code(), Errc::InvalidArgument);
    EXPECT_STREQ(e.what(), "device 5 does not exist: the driver sees 1 GPU(s), numbered from 0; pass the index of one");
}

}  // namespace
}  // namespace finegemm::test
