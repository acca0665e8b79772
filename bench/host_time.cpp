// What a GEMM call costs the host on a GPU, the driver's launch included, beside the launch of an empty kernel alike.
// Layer bench.
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <finegemm/error.h>
#include <finegemm/gemm.h>
#include <finegemm/gemm/kernel_plan.h>

#include "cuda/kernel.h"
#include "engine/device_spec.h"
#include "host_clock.h"
#include "jit/kernel_store.h"
#include "plan/plan.h"
#include "workbench/gpu.h"

namespace finegemm {
namespace {

constexpr int kSkipped = 3;  // exit status: there is no Hopper GPU

struct Method {
    int calls = 200;  // of a batch: far fewer than the driver queues (1024), so that no launch waits for room
    int batches = 201;
};

struct Shape {
    int64_t m, n, k;
};
constexpr Shape kShapes[] = {{1, 2112, 7168}, {16, 7168, 2048}, {64, 4096, 7168}, {128, 7168, 2048}};

struct Times {
    std::vector<double> us;  // of each batch
    double at(double share) const { return std::round(quantile(us, share) * 1e3) / 1e3; }
    nlohmann::ordered_json json() const { return {{"median", at(0.5)}, {"p10", at(0.1)}, {"p90", at(0.9)}}; }
};

/// The launch that a shape's kernel gets, with nothing to run.
class EmptyLaunch {
public:
    EmptyLaunch(const jit::KernelStore& store, const cuda::Device& device, const GemmConfig& config)
        : grid_(device.facts().sms / config.cluster * config.cluster),
          kernel_(
              device, store.get(source()).cubin, "finegemm_empty",
              {.block = config.threads(), .cluster = config.cluster, .smem_bytes = kernel_plan(config).smem.total}) {}
    void operator()() const { kernel_.launch(grid_, &parameters_, nullptr); }

private:
    static jit::KernelSource source() {
        return {
            "finegemm_empty",
            "#include <finegemm/gemm/params.h>\n"
            "extern \"C\" __global__ void finegemm_empty(const __grid_constant__ finegemm::GemmParams params) {}\n"};
    }

    uint32_t grid_;
    cuda::Kernel kernel_;
    GemmParams parameters_{};
};

class Bench {
public:
    explicit Bench(const Method& method)
        : method_(method),
          options_(Options::from_environment()),
          gpu_(Gpu::open(options_, 0)),
          device_(cuda::Driver::open(options_.driver_path), 0),
          current_(device_),  // as it is in a program that uses CUDA
          store_(options_),
          context_(options_),
          flag_(gpu_->allocate(1)) {}

    std::string gpu() const { return gpu_->name(); }

    nlohmann::ordered_json measure(const Shape& s) {
        const plan::Problem problem{static_cast<uint32_t>(s.m), static_cast<uint32_t>(s.n), static_cast<uint32_t>(s.k)};
        const GemmConfig config = plan::choose(problem, spec_of(device_.facts())).config;
        const GemmArgs args = operands(s);
        const EmptyLaunch empty(store_, device_, config);
        const std::function<void(int)> calls[] = {[&](int) { gemm(context_, args); },
                                                  [&](int) { gemm(context_, args, {.pdl = true}); },
                                                  [&](int) { empty(); }};
        Times times[3];
        for (int batch = -1; batch < method_.batches; ++batch)  // the one before the first loads kernels
            for (int i = 0; i < 3; ++i) {
                wait();
                const double us = time_batch(method_.calls, calls[i]) / 1e3;
                if (batch >= 0) times[i].us.push_back(us);
            }
        wait();
        return {{"shape", {s.m, s.n, s.k}},
                {"kernel", plan::name_of(config)},
                {"gemm_us", times[0].json()},
                {"gemm_pdl_us", times[1].json()},
                {"empty_launch_us", times[2].json()}};
    }

private:
    /// Values do not matter: nothing here depends on them.
    GemmArgs operands(const Shape& s) {
        const int64_t blocks_k = (s.k + 127) / 128, blocks_n = (s.n + 127) / 128;
        const auto bytes = [this](int64_t count) { return gpu_->allocate(static_cast<size_t>(count)); };
        const Device on = gpu_->device();
        return {.a = {bytes(s.m * s.k), DType::E4M3, s.m, s.k, s.k, 1, on},
                .sfa = {bytes(s.m * blocks_k * 4), DType::F32, s.m, blocks_k, 1, s.m, on},
                .b = {bytes(s.n * s.k), DType::E4M3, s.n, s.k, s.k, 1, on},
                .sfb = {bytes(blocks_n * blocks_k * 4), DType::F32, blocks_n, blocks_k, blocks_k, 1, on},
                .d = {bytes(s.m * s.n * 2), DType::BF16, s.m, s.n, s.n, 1, on}};
    }
    void wait() {
        char byte = 0;
        gpu_->download(&byte, flag_, 1);
    }

    Method method_;
    Options options_;
    std::unique_ptr<Gpu> gpu_;
    cuda::Device device_;
    cuda::CurrentDevice current_;
    jit::KernelStore store_;
    Context context_;
    void* flag_;
};

int run(int argc, char** argv) {
    CLI::App app("Measures what a GEMM call costs the host on a GPU, the driver's launch included");
    Method method;
    bool as_json = false;
    app.add_option("--calls", method.calls, "Calls of a batch")->check(CLI::Range(1, 1000))->capture_default_str();
    app.add_option("--batches", method.batches, "Batches, of which median, p10 and p90 are printed")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_flag("--json", as_json, "Print JSON");
    CLI11_PARSE(app, argc, argv);
    Bench bench(method);
    nlohmann::ordered_json out = {
        {"bench", "host_time"}, {"gpu", bench.gpu()}, {"calls", method.calls}, {"batches", method.batches}};
    for (const Shape& shape : kShapes) out["rows"].push_back(bench.measure(shape));
    if (as_json) {
        fmt::print("{}\n", out.dump(2));
        return 0;
    }
    fmt::print("{:<18} {:<28} {:>10} {:>12} {:>16}   (us, median of batches)\n", "shape", "kernel", "gemm", "with pdl",
               "empty launch");
    for (const auto& row : out["rows"])
        fmt::print("{:<18} {:<28} {:>10.2f} {:>12.2f} {:>16.2f}\n", row["shape"].dump(),
                   row["kernel"].get<std::string>(), row["gemm_us"]["median"].get<double>(),
                   row["gemm_pdl_us"]["median"].get<double>(), row["empty_launch_us"]["median"].get<double>());
    return 0;
}

}  // namespace
}  // namespace finegemm

/// 0, or 2 for an error, 3 when there is no Hopper GPU.
int main(int argc, char** argv) {
    try {
        return finegemm::run(argc, argv);
    } catch (const finegemm::Error& e) {
        const bool absent = e.code() == finegemm::Errc::Unsupported;
        fmt::print(stderr, "host_time: {}{}\n", absent ? "skipped: " : "", e.what());
        return absent ? finegemm::kSkipped : 2;
    }
}
