// What a log and a profiler are told of calls. Layer tests.
#include <gtest/gtest.h>

#include <dlfcn.h>

#include <string>
#include <vector>

#include <finegemm/error.h>
#include <finegemm/quantize.h>

#include "api/calls.h"
#include "plan/plan.h"
#include "plan/problem.h"
#include "support/cpu.h"
#include "support/mock_driver.h"

namespace finegemm::test {
namespace {

struct Logged {
    std::vector<LoggedCall> calls;
    Options options(Options o = cpu_options()) {
        o.log = [this](const LoggedCall& call) { calls.push_back(call); };
        return o;
    }
};

constexpr const char* kLine = "gemm 16x256x384 e4m3:row128 e4m3:block128 bf16";

TEST(Log, HasTheLineOfAProductThatTheToolTakes) {
    Logged log;
    Context context(log.options());
    Problem p(16, 256, 384, 7);
    gemm(context, p.args(), {.stream = nullptr, .numerics = Numerics::Exact, .check_values = {}, .config = {}});
    ASSERT_EQ(log.calls.size(), 1u);
    const LoggedCall& call = log.calls[0];
    EXPECT_EQ(call.line, kLine);
    EXPECT_EQ(call.kernel, "exact");
    EXPECT_EQ(call.origin, "");
    EXPECT_EQ(call.device.type, DeviceType::Cpu);
    EXPECT_GT(call.host_us, 0.1);
}

TEST(Log, SaysOfGroupsAndOptionsWhatChoosesTheirKernel) {
    Logged log;
    Options options = log.options();
    options.batch_invariant = true;
    Context context(options);
    GroupedProblem groups({GroupForm::Indices, 2, 128, 64, std::vector<int32_t>(128, 1)}, 256, 384, 7);
    grouped_gemm(context, groups.args(), {});
    Problem p(16, 256, 384, 7);
    gemm(context, p.args(), {});
    ASSERT_EQ(log.calls.size(), 2u);
    EXPECT_EQ(log.calls[0].line, "gemm 128x256x384 e4m3:row128 e4m3:block128 bf16 groups=2 alignment=64");
    EXPECT_EQ(log.calls[1].line, std::string(kLine) + " batch_invariant");
    EXPECT_EQ(plan::text_of(plan::problem_of(plan::parse_shape(log.calls[0].line))), log.calls[0].line);
}

TEST(Log, HasOtherOperationsByNameAndExtents) {
    Logged log;
    Context context(log.options());
    Buffer<float> x(DType::F32, 256, 384), scales(DType::F32, 256, 3);
    Buffer<uint8_t> q(DType::E4M3, 256, 384);
    quantize_rows(context, x.view(), q.view(), scales.view(), {});
    ASSERT_EQ(log.calls.size(), 1u);
    EXPECT_EQ(log.calls[0].line, "quantize_rows 256x384 f32");
    EXPECT_EQ(log.calls[0].kernel, "");
}

TEST(Log, HearsNothingOfCallsThatFailOrHaveNothingToDo) {
    Logged log;
    Context context(log.options());
    Problem p(16, 256, 384, 7);
    GemmArgs args = p.args();
    args.a.rows = 15;
    EXPECT_THROW(gemm(context, args, {}), Error);
    GemmArgs none = p.args();
    none.a.rows = none.sfa.rows = none.d.rows = 0;
    gemm(context, none, {});
    EXPECT_TRUE(log.calls.empty());
}

TEST(Log, NamesKernelAndOriginOnAGpu) {
    const mock::Driver mock(FINEGEMM_MOCK_DRIVER);
    Logged log;
    Options options = log.options();
    options.driver_path = FINEGEMM_MOCK_DRIVER;
    Context context(options);
    const Device gpu{DeviceType::Cuda, 0};
    const auto at = [](uintptr_t where) { return reinterpret_cast<void*>(0x100000000 + where); };
    GemmArgs args{.a = {at(0), DType::E4M3, 4096, 2048, 2048, 1, gpu},
                  .sfa = {at(1 << 24), DType::F32, 4096, 16, 16, 1, gpu},
                  .b = {at(1 << 25), DType::E4M3, 7168, 2048, 2048, 1, gpu},
                  .sfb = {at(1 << 26), DType::F32, 56, 16, 16, 1, gpu},
                  .d = {at(1 << 27), DType::BF16, 4096, 7168, 7168, 1, gpu}};
    try {
        gemm(context, args, {});
    } catch (const Error& e) {
        if (e.code() == Errc::Compile) GTEST_SKIP() << "no kernels: a build without a pack, and no compiler";
        throw;
    }
    alignas(16) uint16_t zeros[64];  // the mock's memory is the host's
    args.a.cols = args.b.cols = args.sfa.cols = args.sfb.cols = 0;
    args.a.rows = args.sfa.rows = args.b.rows = 8, args.sfb.rows = 1;
    args.d = {zeros, DType::BF16, 8, 8, 8, 1, gpu};
    gemm(context, args, {});
    ASSERT_EQ(log.calls.size(), 2u);
    EXPECT_EQ(log.calls[0].kernel, plan::name_of(plan::choose({4096, 7168, 2048}, *plan::find_device("h200")).config))
        << "by the name that a call can ask for, though row-major scales have a variant";
    EXPECT_TRUE(log.calls[0].origin == "pack" || log.calls[0].origin == "compiled") << log.calls[0].origin;
    EXPECT_EQ(log.calls[0].device.type, DeviceType::Cuda);
    EXPECT_EQ(log.calls[1].kernel, "") << "without K nothing is multiplied";
}

struct CLog {
    std::vector<std::string> lines;
    uint32_t struct_size = 0;
    static void add(void* data, const finegemm_logged_call* call) {
        auto& log = *static_cast<CLog*>(data);
        log.lines.push_back(std::string(call->line) + "|" + call->kernel + "|" + call->origin);
        log.struct_size = call->struct_size;
        EXPECT_EQ(call->device_type, FINEGEMM_CPU);
        EXPECT_GT(call->host_us, 0);
    }
};

TEST(Log, IsAFunctionWithItsDataInC) {
    CLog log;
    finegemm_options options = c_options();
    options.log = &CLog::add;
    options.log_data = &log;
    const CContext context(options);
    GemmCall call;
    ASSERT_EQ(call.run(context.get()), FINEGEMM_OK) << call.error.message;
    EXPECT_EQ(log.lines, std::vector{std::string(kLine) + "|fast|"});
    EXPECT_EQ(log.struct_size, sizeof(finegemm_logged_call));
}

TEST(Nvtx, HasARangeAroundEachCallWhereAProfilerIs) {
    Options options = cpu_options();
    options.nvtx_path = FINEGEMM_MOCK_NVTX;
    Context context(options);
    void* mock = dlopen(FINEGEMM_MOCK_NVTX, RTLD_NOW | RTLD_NOLOAD);
    ASSERT_TRUE(mock) << "the profiler's library was not loaded";
    const auto texts = reinterpret_cast<const std::vector<std::string>* (*)()>(dlsym(mock, "mock_nvtx_texts"));
    const auto open = reinterpret_cast<int (*)()>(dlsym(mock, "mock_nvtx_open_ranges"));
    Problem p(16, 256, 384, 7);
    gemm(context, p.args(), {});
    EXPECT_EQ(*texts(), std::vector<std::string>{kLine});
    GemmOptions throwing;
    throwing.check_values = true;
    p.sfa.at(0, 0) = kNan;
    EXPECT_THROW(gemm(context, p.args(), throwing), Error);
    EXPECT_EQ(texts()->size(), 2u);
    EXPECT_EQ(open(), 0) << "a range ends with its call, even one that fails";

    Options other = cpu_options();
    other.nvtx_path = "/nowhere/libprofiler.so";
    Context with_the_same(other);
    gemm(with_the_same, Problem(16, 256, 384, 7).args(), {});
    EXPECT_EQ(texts()->size(), 3u) << "a process has one profiler";
}

}  // namespace
}  // namespace finegemm::test
