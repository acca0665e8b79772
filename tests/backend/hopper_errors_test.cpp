// What the Hopper backend says and leaves behind when something fails. Layer tests.
#include <cmath>

#include "plan/plan.h"
#include "support/cpu.h"
#include "support/hopper.h"

namespace finegemm::hopper_errors_test {
namespace {

using test::contains;
using test::cpu_options;
using test::error_of;
using test::operands;

class HopperErrors : public test::HopperTest {
protected:
    void TearDown() override {
        EXPECT_EQ(mock.context_depth(), 0u) << "a context was left on the stack";
        for (const mock::Gpu& gpu : mock->gpus) EXPECT_EQ(gpu.retains, 0) << "a primary context was not released";
        EXPECT_EQ(mock->libraries, 0) << "a kernel was not unloaded";
    }
};

TEST_F(HopperErrors, AGpuThatIsNoHopperIsNamedWithItsCapability) {
    mock->gpus[0].name = "NVIDIA A100-SXM4-80GB";
    for (const auto& [major, minor] : {std::pair{8, 0}, {9, 1}, {10, 0}, {12, 0}}) {
        mock->gpus[0].major = major, mock->gpus[0].minor = minor;
        const Error error = error_of([] { backend(); });
        EXPECT_EQ(error.code(), Errc::Unsupported);
        const std::string capability = "capability " + std::to_string(major) + "." + std::to_string(minor);
        for (const char* text : {"GPU 0", "NVIDIA A100-SXM4-80GB", capability.c_str(), "need 9.0", "CPU"})
            EXPECT_TRUE(contains(error, text)) << error.what();
    }
}

TEST_F(HopperErrors, TheCpuRefusesAKernelInTheWordsOfTheGpu) {
    // Types and extents of operands alone decide: no memory is read.
    const auto hopper = backend(), cpu = test::cpu_backend(1);
    const auto expect_same = [](const auto& on_gpu, const auto& on_cpu, const char* why) {
        const Error gpu = error_of(on_gpu), same = error_of(on_cpu);
        EXPECT_EQ(same.code(), Errc::InvalidArgument);
        EXPECT_STREQ(same.what(), gpu.what());
        EXPECT_TRUE(contains(same, why)) << same.what();
    };
    struct Case {
        GemmArgs args;
        const char *config, *why;
    };
    for (const auto& [args, config, why] :
         {Case{operands(256, 256, 512), "m128n128s5w2_1d1d_f32", "takes scales of B for other blocks"},
          Case{operands(256, 256, 512), "m128n128s6w2_grouped", "computes one product for groups"},
          Case{operands(16, 32, 256), "m64n32s6w1_splitK8_x2", "splits K finer than 128"}}) {
        const GemmOptions options{.numerics = Numerics::Hopper, .config = config};
        expect_same([&] { hopper->gemm({args, options}); }, [&] { cpu->gemm({args, options}); }, why);
    }
    const GemmArgs one = operands(256, 256, 512);
    const int32_t offsets[] = {0, 256, 512};
    KGroupedGemmArgs args{one.a, one.sfa, one.b, one.sfb, {one.d, 2, 256 * 256}, offsets, 2, {}};
    args.d.matrix.dtype = DType::F32;
    const GemmOptions options{.numerics = Numerics::Hopper, .config = "m128n128s5w2_1d1d_f32"};
    expect_same([&] { hopper->gemm({args, options}); }, [&] { cpu->gemm({args, options}); },
                "computes one product for groups");
}

TEST_F(HopperErrors, ADriverThatIsMissingIsUnsupported) {
    EXPECT_EQ(error_of([] { make_hopper_backend(cpu_options(), 0); }).code(), Errc::Unsupported);
}

TEST_F(HopperErrors, ADeviceThatDoesNotExistIsNamed) {
    EXPECT_TRUE(contains(error_of([] { backend(3); }), "device 3 does not exist"));
}

TEST_F(HopperErrors, EveryCallThatFailsWhileOpeningIsNamed) {
    for (const char* call : {"cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName",
                             "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain"}) {
        mock->failures.clear();
        mock.fail(call, 1);
        const Error error = error_of([] { backend(); });
        EXPECT_EQ(error.code(), Errc::Driver) << call;
        EXPECT_TRUE(contains(error, std::string(call) + " failed: CUDA_ERROR_INVALID_VALUE (1: ")) << error.what();
    }
}

TEST_F(HopperErrors, EveryCallThatFailsInAGemmIsNamedAndTheNextGemmWorks) {
    const std::string name = plan::name_of(test::candidate({ClusterUse::None}));
    for (const char* call :
         {"cuCtxGetCurrent", "cuCtxPushCurrent", "cuThreadExchangeStreamCaptureMode", "cuLibraryLoadData",
          "cuLibraryGetKernel", "cuKernelGetFunction", "cuFuncSetAttribute",
          "cuOccupancyMaxActiveBlocksPerMultiprocessor", "cuTensorMapEncodeTiled", "cuLaunchKernelEx"}) {
        for (const int after :
             {0, 1, 2}) {  // the tensor map of a, of b, of d; the context's for loading, for launching
            const auto hopper = backend();
            mock.fail(call, 1, after);
            bool failed = false;
            try {
                hopper->gemm({operands(4096, 4096, 4096), {.config = name}});
            } catch (const Error& error) {
                failed = true;
                EXPECT_EQ(error.code(), Errc::Driver);
                EXPECT_TRUE(contains(error, call)) << error.what();
                EXPECT_TRUE(mock->launches.empty()) << call;
            }
            EXPECT_TRUE(failed || after > 0) << call;
            EXPECT_EQ(mock.context_depth(), 0u) << call;
            mock->failures.clear();
            hopper->gemm({operands(4096, 4096, 4096), {.config = name}});
            EXPECT_EQ(mock->launches.size(), failed ? 1u : 2u) << call;
            mock->launches.clear();
        }
    }
}

TEST_F(HopperErrors, AKernelWithClustersAsksForTheirOccupancy) {
    const auto hopper = backend();
    mock.fail("cuOccupancyMaxActiveClusters", 1);
    const std::string name = plan::name_of(test::candidate({ClusterUse::ShareA, ClusterUse::ShareB}));
    const auto call = [&] { hopper->gemm({operands(4096, 4096, 4096), {.config = name}}); };
    EXPECT_TRUE(contains(error_of(call), "cuOccupancyMaxActiveClusters(FineGEMM_e4m3_gemm_" + name + ") failed"));
}

TEST_F(HopperErrors, ZeroingThatFailsIsNamed) {
    const auto hopper = backend();
    mock.fail("cuMemsetD2D8Async", 1);
    EXPECT_TRUE(contains(error_of([&] { hopper->gemm({operands(64, 64, 0), {}}); }), "cuMemsetD2D8Async failed"));
}

TEST_F(HopperErrors, WhatTheCompilerThrowsArrivesAndTheNextCallTriesAgain) {
    bool broken = true;
    const auto hopper = backend(0, [&](const jit::KernelSource& source) {
        if (broken) throw Error(Errc::Compile, "no compiler for " + source.entry);
        return test::fake_kernel(source);
    });
    const auto call = [&] { hopper->gemm({operands(64, 64, 128), {}}); };
    const Error error = error_of(call);
    EXPECT_EQ(error.code(), Errc::Compile);
    EXPECT_TRUE(contains(error, "no compiler for FineGEMM_e4m3_gemm_m64n"));
    broken = false;
    call();
    EXPECT_EQ(mock->launches.size(), 1u);
}

TEST_F(HopperErrors, ACubinThatTheDriverRejectsIsNamed) {
    const auto hopper =
        backend(0, [](const jit::KernelSource& s) { return jit::Binary{.cubin = "torn", .entry = s.entry}; });
    const Error error = error_of([&] { hopper->gemm({operands(64, 64, 128), {}}); });
    EXPECT_EQ(error.code(), Errc::Driver);
    EXPECT_TRUE(contains(error, "cuLibraryLoadData(FineGEMM_e4m3_gemm_m64n")) << error.what();
}

TEST_F(HopperErrors, AFirstCallMayBeCaptured) {
    const auto hopper = backend();
    mock->capturing = true;
    hopper->gemm({operands(64, 64, 128), {}});
    EXPECT_EQ(mock->launches.size(), 1u);
}

/// Scales with room for 6 x 3, all of them good.
struct Scales {
    std::vector<float> a = std::vector<float>(32, 1.0f), b = std::vector<float>(32, 1.0f);
    GemmArgs args = operands(6, 264, 272);

    Scales() {
        args.sfa.data = a.data(), args.sfa.row_stride = 1, args.sfa.col_stride = 8;  // MN-major
        args.sfb.data = b.data(), args.sfb.row_stride = 4;
    }
};

TEST_F(HopperErrors, CheckingScalesSaysWhereTheBadOneIs) {
    const auto hopper = backend();
    Scales s;
    s.a[6] = s.a[7] = s.b[3] = -1;  // between the rows
    hopper->check_values({s.args, {}});
    s.b[2 * 4 + 1] = -2;
    EXPECT_TRUE(contains(error_of([&] { hopper->check_values({s.args, {}}); }), "sfb[2, 1] is -2"));
    s.a[2 * 8 + 5] = NAN;
    const Error error = error_of([&] { hopper->check_values({s.args, {}}); });
    EXPECT_EQ(error.code(), Errc::InvalidArgument);
    EXPECT_TRUE(contains(error, "sfa[5, 2] is nan")) << error.what();
}

TEST_F(HopperErrors, CheckingScalesCannotBeCaptured) {
    const auto hopper = backend();
    Scales s;
    mock->capturing = true;
    const Error error = error_of([&] { hopper->check_values({s.args, {}}); });
    EXPECT_EQ(error.code(), Errc::InvalidArgument);
    EXPECT_TRUE(contains(error, "check_values")) << error.what();
    EXPECT_EQ(mock->count("cuMemcpyDtoHAsync"), 0);
}

TEST_F(HopperErrors, EveryCallThatFailsInCheckingScalesIsNamed) {
    const auto hopper = backend();
    Scales s;
    for (const char* call : {"cuStreamIsCapturing", "cuMemcpyDtoHAsync", "cuStreamSynchronize"}) {
        mock->failures.clear();
        mock.fail(call, 1);
        EXPECT_TRUE(contains(error_of([&] { hopper->check_values({s.args, {}}); }), std::string(call) + " failed"));
        EXPECT_EQ(mock.context_depth(), 0u);
    }
}

/// Three stacks of 6 x 272 with one row, none and all of them.
struct StackedScales {
    std::vector<int32_t> numbers = {1, 0, 6};
    std::vector<float> a = std::vector<float>(3 * 24, 1.0f), b = std::vector<float>(3 * 16, 1.0f);
    GroupedGemmArgs args;

    StackedScales() {
        const GemmArgs one = operands(6, 264, 272);
        args = {.a = {one.a, 3, 6 * 272},
                .sfa = {one.sfa, 3, 24},
                .b = {one.b, 3, 264 * 272},
                .sfb = {one.sfb, 3, 16},
                .d = {one.d, 3, 6 * 264},
                .groups = {.form = GroupForm::Masked, .data = numbers.data(), .size = 3}};
        args.sfa.matrix.data = a.data(), args.sfa.matrix.row_stride = 1, args.sfa.matrix.col_stride = 8;
        args.sfb.matrix.data = b.data(), args.sfb.matrix.row_stride = 4;
        args.groups.device = one.d.device;
    }
};

TEST_F(HopperErrors, CheckingGroupsLooksAtNumbersAndThenAtTheScalesOfTheirRows) {
    const auto hopper = backend();
    StackedScales s;
    s.a[1] = s.a[24] = NAN;  // of rows without a group
    hopper->check_values({s.args, {}});
    s.b[2 * 16 + 4] = -2;
    EXPECT_TRUE(contains(error_of([&] { hopper->check_values({s.args, {}}); }), "sfb[2, 1, 0] is -2"));
    s.a[2 * 24 + 2 * 8 + 5] = NAN;
    EXPECT_TRUE(contains(error_of([&] { hopper->check_values({s.args, {}}); }), "sfa[2, 5, 2] is nan"));
    s.numbers[1] = 7;
    const Error error = error_of([&] { hopper->check_values({s.args, {}}); });
    EXPECT_EQ(error.code(), Errc::InvalidArgument);
    EXPECT_TRUE(contains(error, "groups: masks[1] is 7")) << error.what();
    EXPECT_EQ(mock.context_depth(), 0u);
}

TEST_F(HopperErrors, CheckingGroupsCannotBeCaptured) {
    const auto hopper = backend();
    StackedScales s;
    mock->capturing = true;
    const Error error = error_of([&] { hopper->check_values({s.args, {}}); });
    EXPECT_TRUE(contains(error, "check_values: copies groups")) << error.what();
    EXPECT_EQ(mock->count("cuMemcpyDtoHAsync"), 0);
}

}  // namespace
}  // namespace finegemm::hopper_errors_test
