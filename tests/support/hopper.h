// The Hopper backend on the mock driver: kernels without a compiler, operands without memory. Layer tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/hopper.h"
#include "ops/gemm/source.h"
#include "plan/plan.h"
#include "support/error_of.h"
#include "support/mock_driver.h"

namespace finegemm::test {

/// What the mock takes for a cubin.
inline jit::Binary fake_kernel(const jit::KernelSource& source) {
    return {.cubin = "\x7f\x45LF", .entry = source.entry};
}

inline void* address(uintptr_t at) { return reinterpret_cast<void*>(at); }

/// Operands with tight rows at addresses that nobody reads: a, sfa, b, sfb and d follow one another from `base` on.
inline GemmArgs operands(int64_t m, int64_t n, int64_t k, uintptr_t base = 0x100000000, int device = 0) {
    const int64_t k_blocks = (k + 127) / 128, n_blocks = (n + 127) / 128;
    const Device where{DeviceType::Cuda, device};
    return {.a = {address(base), DType::E4M3, m, k, k, 1, where},
            .sfa = {address(base + 0x10), DType::F32, m, k_blocks, k_blocks, 1, where},
            .b = {address(base + 0x20), DType::E4M3, n, k, k, 1, where},
            .sfb = {address(base + 0x30), DType::F32, n_blocks, k_blocks, k_blocks, 1, where},
            .d = {address(base + 0x40), DType::BF16, m, n, n, 1, where}};
}

/// The candidate that uses its cluster so with the most CTAs; of all that do, the first.
inline GemmConfig candidate(std::initializer_list<ClusterUse> uses) {
    const GemmConfig* best = nullptr;
    for (const GemmConfig& c : plan::candidates())
        if (std::ranges::find(uses, c.cluster_use) != uses.end() && (!best || c.cluster > best->cluster)) best = &c;
    EXPECT_TRUE(best) << "no such candidate";
    return best ? *best : plan::candidates()[0];
}

class HopperTest : public ::testing::Test {
protected:
    mock::Driver mock{FINEGEMM_MOCK_DRIVER};

    static Options backend_options() {
        Options options;
        options.driver_path = FINEGEMM_MOCK_DRIVER;
        return options;
    }
    static std::unique_ptr<Backend> backend(int device = 0, KernelProvider kernels = fake_kernel) {
        return make_hopper_backend(backend_options(), device, std::move(kernels));
    }
    static std::string entry_of(const GemmConfig& c) { return jit::gemm_entry(c, plan::name_of(c)); }
    const mock::Launch& last_launch() const { return mock->launches.at(mock->launches.size() - 1); }
    long encodings() const { return mock->count("cuTensorMapEncodeTiled"); }
};

}  // namespace finegemm::test
