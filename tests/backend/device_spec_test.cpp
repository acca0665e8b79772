// What the planner knows of a GPU, from its facts.
#include "engine/device_spec.h"

#include <gtest/gtest.h>

namespace finegemm {
namespace {

cuda::DeviceFacts facts_of(const char* name) {
    return {.name = name, .sms = 114, .smem_bytes = 200'000, .memory_bytes_per_us = 2.1e6};
}

TEST(SpecOf, IsTheKnownDeviceInTheNameWithTheSmsAndSharedMemoryOfThisOne) {
    for (const auto& [name, known] : {std::pair{"NVIDIA H200", "h200"},
                                      {"NVIDIA H20-3e", "h20"},
                                      {"NVIDIA H100 PCIe", "h100"},
                                      {"NVIDIA GH200 480GB", "gh200"}}) {
        const plan::DeviceSpec spec = spec_of(facts_of(name)), wanted = *plan::find_device(known);
        EXPECT_EQ(spec.name, known) << name;
        EXPECT_EQ(spec.hbm_bytes_per_us, wanted.hbm_bytes_per_us) << name;
        EXPECT_EQ(spec.l2_adds_per_us, wanted.l2_adds_per_us) << name;
        EXPECT_TRUE(spec.sms == 114 && spec.smem_bytes == 200'000) << name;
    }
}

TEST(SpecOf, AnUnknownDeviceHasItsOwnBandwidthAndItsL2AddsInProportion) {
    const plan::DeviceSpec spec = spec_of(facts_of("NVIDIA H400")), h200 = *plan::find_device("h200");
    EXPECT_EQ(spec.name, "unknown");
    EXPECT_NEAR(spec.hbm_bytes_per_us, 0.88 * 2.1e6, 1);
    EXPECT_NEAR(spec.l2_adds_per_us / h200.l2_adds_per_us, 0.88 * 2.1e6 / h200.hbm_bytes_per_us, 1e-9);
    cuda::DeviceFacts silent = facts_of("NVIDIA H400");
    silent.memory_bytes_per_us = 0;  // an old driver does not say it
    EXPECT_EQ(spec_of(silent).hbm_bytes_per_us, h200.hbm_bytes_per_us);
    EXPECT_EQ(spec_of(silent).l2_adds_per_us, h200.l2_adds_per_us);
}

}  // namespace
}  // namespace finegemm
