// The host's machine for kernels shows what it is there to show: waits, fences and arrivals that are missing.
// Layer tests.
#include <gtest/gtest.h>

#include <finegemm/device/pipeline/wait.cuh>
#include <finegemm/device/ptx/convert.cuh>
#include <finegemm/device/ptx/dynamic_shared.cuh>
#include <finegemm/device/ptx/tma.cuh>
#include <finegemm/device/ptx/wgmma.cuh>

#include "cuda/tensor_map.h"
#include "support/mock_driver.h"

namespace finegemm {
namespace {

constexpr uint32_t kBarrier = 8192, kOther = 8200;

template <typename Kernel>
std::string error_of_kernel(uint32_t threads, const Kernel& kernel, uint32_t seed = 1, uint32_t cluster = 1) {
    try {
        host_kernel::launch(cluster, threads, kernel, seed, cluster);
    } catch (const std::runtime_error& error) {
        return error.what();
    }
    return "";
}

TEST(HostMachine, NamesTheBarrierThatNobodyCompletes) {
    const std::string error = error_of_kernel(64, [] {
        if (threadIdx.x == 0) ptx::mbarrier_init({kBarrier}, 3);
        __syncthreads();
        if (threadIdx.x < 2) ptx::mbarrier_arrive({kBarrier});
        device::wait({kBarrier}, 0);
    });
    EXPECT_NE(error.find("thread 32 waits for an mbarrier at 8192, which lacks 1 arrivals"), std::string::npos)
        << error;
}

TEST(HostMachine, ReportsAnArrivalTooMany) {
    const std::string error = error_of_kernel(32, [] {
        if (threadIdx.x != 0) return;
        ptx::mbarrier_init({kBarrier}, 1);
        ptx::mbarrier_arrive_expect_tx({kBarrier}, 16);
        ptx::mbarrier_arrive({kBarrier});
    });
    EXPECT_NE(error.find("once too often"), std::string::npos) << error;
}

TEST(HostMachine, ReportsBytesThatDoNotCome) {
    const std::string error = error_of_kernel(32, [] {
        if (threadIdx.x != 0) return;
        ptx::mbarrier_init({kBarrier}, 1);
        ptx::mbarrier_arrive_expect_tx({kBarrier}, 16);
    });
    EXPECT_NE(error.find("have not come"), std::string::npos) << error;
}

TEST(HostMachine, LeavesOtherBytesWhereACopyHasNotLanded) {
    alignas(16) static const uint32_t from[4] = {1, 2, 3, 4};
    for (const bool waits : {true, false}) {
        uint32_t seen = 0;
        for (uint32_t seed = 1; seed <= 8; ++seed)
            host_kernel::launch(
                1, 32,
                [&] {
                    if (threadIdx.x != 0) return;
                    ptx::mbarrier_init({kBarrier}, 1);
                    ptx::mbarrier_arrive_expect_tx({kBarrier}, 16);
                    ptx::bulk_load({0}, from, 16, {kBarrier});
                    if (waits) device::wait({kBarrier}, 0);
                    seen += ptx::load_shared_words_x4({0}).w[3] == 4 ? 1 : 0;
                },
                seed);
        EXPECT_EQ(seen == 8, waits);
    }
}

TEST(HostMachine, ReportsMemoryThatIsTakenBeforeTheKernelsBeforeHaveEnded) {
    alignas(16) static uint32_t memory[4] = {};
    const std::function<void()> ways[] = {[] { ptx::load_global_if(true, memory + 3); },
                                          [] { ptx::store_global(memory, 1u); },
                                          [] {
                                              ptx::mbarrier_init({kBarrier}, 1);
                                              ptx::mbarrier_arrive_expect_tx({kBarrier}, 16);
                                              ptx::bulk_load({0}, memory, 16, {kBarrier});
                                          }};
    host_kernel::earlier = {{memory, sizeof memory}};
    for (const bool waits : {true, false})
        for (const auto& take : ways) {
            const std::string error = error_of_kernel(32, [&] {
                if (threadIdx.x != 0) return;
                if (waits) ptx::grid_dependency_wait();
                take();
            });
            EXPECT_EQ(error.find("may still use") == std::string::npos, waits) << error;
            EXPECT_EQ(error.empty(), waits) << error;
        }
    host_kernel::earlier.clear();
}

TEST(HostMachine, ReportsStoresThatTheTensorCoresMayNotSee) {
    for (const bool fences : {true, false}) {
        const std::string error = error_of_kernel(128, [&] {
            for (uint32_t at = threadIdx.x * 16; at < 64 * 32 + 128 * 32; at += 128 * 16)
                ptx::store_shared_words_x4({at}, {0, 0, 0, 0});
            if (fences) ptx::fence_proxy_async_shared();
            __syncthreads();
            float sums[64];
            ptx::wgmma_fence();
            ptx::wgmma_k32_fp8(sums, wgmma_descriptor_of_rows(0, 32), wgmma_descriptor_of_rows(64 * 32, 32));
            ptx::wgmma_commit_group();
            ptx::wgmma_wait_group<0>();
            if (sums[0] != 0) ptx::machine->fail("the product of zeros is not zero");
        });
        EXPECT_EQ(error.find("without a fence") == std::string::npos, fences) << error;
        EXPECT_EQ(error.empty(), fences) << error;
    }
}

/// Rank 0 counts what the others send, which ends after them or, if it does not wait, now and then before.
TEST(HostMachine, ReportsStoresToACtaThatHasEnded) {
    for (const bool waits : {true, false}) {
        std::string errors;
        for (uint32_t seed = 1; seed <= 8; ++seed)
            errors += error_of_kernel(
                32,
                [&] {
                    const uint32_t rank = ptx::cluster_rank();
                    if (threadIdx.x == 0 && rank == 0) ptx::mbarrier_init({kBarrier}, 1);
                    __syncwarp();
                    ptx::cluster_arrive_relaxed();
                    ptx::cluster_wait();
                    if (threadIdx.x != 0) return;
                    const auto of_first = [](uint32_t at) { return ptx::map_to_rank({at}, 0); };
                    if (rank > 0) return ptx::st_async_x2(of_first(rank * 8), 1, 2, of_first(kBarrier));
                    ptx::mbarrier_arrive_expect_tx({kBarrier}, 3 * 8);
                    if (waits) device::wait({kBarrier}, 0);
                    if (waits && ptx::load_shared({3 * 8 + 4}) != 2) ptx::machine->fail("it has not come");
                },
                seed, 4);
        EXPECT_EQ(errors.empty(), waits) << errors;
        EXPECT_EQ(errors.find("has ended") != std::string::npos, !waits) << errors;
    }
}

/// Each CTA waits for what both get, but for one that does not and has ended now and then.
TEST(HostMachine, ReportsLoadsForACtaThatHasEnded) {
    alignas(16) static uint8_t numbers[64 * 128] = {};
    mock::Driver mock{FINEGEMM_MOCK_DRIVER};
    const std::shared_ptr<const cuda::Driver> driver = cuda::Driver::open(FINEGEMM_MOCK_DRIVER);
    const TensorMap map = cuda::encode(*driver, {.data = numbers, .rows = 64, .cols = 128, .row_stride_bytes = 128},
                                       {.rows = 64, .cols = 128, .swizzle = Swizzle::B128});
    for (const bool waits : {true, false}) {
        std::string errors;
        for (uint32_t seed = 1; seed <= 8; ++seed)
            errors += error_of_kernel(
                32,
                [&] {
                    const uint32_t rank = ptx::cluster_rank();
                    if (threadIdx.x == 0) ptx::mbarrier_init({kBarrier}, 1);
                    if (threadIdx.x == 0) ptx::mbarrier_arrive_expect_tx({kBarrier}, sizeof numbers);
                    __syncwarp();
                    ptx::cluster_arrive_relaxed();
                    ptx::cluster_wait();
                    if (threadIdx.x != 0) return;
                    if (rank == 0) ptx::tma_load_multicast({0}, &map, {kBarrier}, 0, 0, uint16_t{3}, uint64_t{});
                    if (rank == 0 || waits) device::wait({kBarrier}, 0);
                },
                seed, 2);
        EXPECT_EQ(errors.empty(), waits) << errors;
        EXPECT_EQ(errors.find("has ended") != std::string::npos, !waits) << errors;
    }
}

/// A stage that is given back before its product has been waited for is overwritten in some order.
TEST(HostMachine, ReadsOperandsLate) {
    alignas(16) static const uint8_t zeros[64 * 32] = {};
    uint32_t wrong = 0;
    for (uint32_t seed = 1; seed <= 8; ++seed)
        host_kernel::launch(
            1, 160,
            [&] {
                if (threadIdx.x == 0) {
                    ptx::mbarrier_init({kBarrier}, 1);
                    ptx::mbarrier_init({kOther}, 128);
                    for (uint32_t at = 0; at < 64 * 32 + 128 * 32; at += 4) ptx::store_shared({at}, 0.0f);
                    ptx::fence_proxy_async_shared();
                }
                __syncthreads();
                if (threadIdx.x >= 128) {
                    device::wait({kOther}, 0);
                    if (threadIdx.x != 128) return;
                    ptx::mbarrier_arrive_expect_tx({kBarrier}, sizeof zeros);
                    ptx::bulk_load({0}, zeros, sizeof zeros, {kBarrier});
                    return;
                }
                float sums[64];
                ptx::wgmma_k32_fp8(sums, wgmma_descriptor_of_rows(0, 32), wgmma_descriptor_of_rows(64 * 32, 32));
                ptx::mbarrier_arrive({kOther});  // too early
                ptx::wgmma_wait_group<0>();
                if (is_nan(sums[0])) ++wrong;
            },
            seed);
    EXPECT_GT(wrong, 0u);
}

}  // namespace
}  // namespace finegemm
