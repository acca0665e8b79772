// The backend for Hopper GPUs: plan a kernel, get its code, describe the matrices, launch. Layer backend.
#include "backend/hopper.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include <finegemm/core/schedule.h>
#include <finegemm/error.h>

#include "backend/check_scales.h"
#include "backend/hash.h"
#include "cuda/kernel.h"
#include "cuda/tensor_map.h"
#include "jit/kernel_store.h"
#include "jit/quantize_source.h"
#include "plan/plan.h"

namespace finegemm {

namespace {

/// L2 policies as createpolicy.fractional encodes them for a fraction of one. PTX ISA, createpolicy.
constexpr uint64_t kEvictNormal = 0x1000000000000000, kEvictFirst = 0x12f0000000000000, kEvictLast = 0x14f0000000000000;
/// CTAs of a quantisation kernel, which then walks over its tasks.
constexpr uint64_t kMaxGrid = 1u << 20;
/// Up to so many rows the weights are read once: they should not push the activations out of L2.
constexpr uint32_t kStreamingRows = 128;

/// A kernel for a shape, ready to launch.
struct GemmPlan {
    GemmConfig config;
    std::shared_ptr<const cuda::Kernel> kernel;
};

/// What a call's GemmParams depend on: calls that agree share them, tensor maps included.
struct CallKey {
    const void *a, *sfa, *b, *sfb, *d;
    int64_t m, n, k, a_stride, b_stride, d_stride, sfa_row, sfa_col, sfb_row, sfb_col;
    const GemmPlan* plan;
    bool operator==(const CallKey&) const = default;
};
static_assert(std::has_unique_object_representations_v<CallKey>, "hashed as bytes");

struct Call {
    GemmParams params;
    uint32_t grid;
    const cuda::Kernel* kernel;
};

class HopperBackend final : public Backend {
public:
    HopperBackend(const Options& options, int index)
        : store_(options), driver_(cuda::Driver::open(options.driver_path)), device_(driver_, index), spec_(spec_of(device_)) {
        const cuda::DeviceFacts& facts = device_.facts();
        if (facts.major != 9 || facts.minor != 0)
            throw Error(Errc::Unsupported,
                        fmt::format("GPU {} ({}) has compute capability {}.{}; the kernels need 9.0 (H100, H200, H20, GH200). "
                                    "Run on the CPU by passing CPU matrices",
                                    facts.index, facts.name, facts.major, facts.minor));
    }

    void gemm(const GemmArgs& args, const GemmOptions& options) override;
    void quantize(ScaleShape shape, const ConstMatrix& x, const Matrix& q, const Matrix& scales,
                  const QuantizeOptions& options) override;
    void check_scales(const GemmArgs& args, const GemmOptions& options) override;

private:
    static plan::DeviceSpec spec_of(const cuda::Device& device);
    const GemmPlan& plan_for(const plan::Problem& problem, const std::string& config_name);
    std::shared_ptr<const cuda::Kernel> kernel_for(const GemmConfig& config);
    std::shared_ptr<const cuda::Kernel> load(const jit::KernelSource& source, const cuda::LaunchShape& shape);
    Call prepare(const GemmArgs& args, const GemmPlan& plan) const;
    void zero(const Matrix& d, Stream stream) const;
    std::vector<float> to_host(const ConstMatrix& scales, Stream stream) const;

    jit::KernelStore store_;
    std::shared_ptr<const cuda::Driver> driver_;
    cuda::Device device_;   // before the kernels, which refer to it
    plan::DeviceSpec spec_;

    // Plans and kernels stay; calls are dropped all at once when there are too many (pointers change without end in some programs).
    static constexpr size_t kMaxCalls = 4096;
    std::shared_mutex mutex_;
    std::unordered_map<std::string, std::shared_ptr<const cuda::Kernel>> kernels_;         // by entry name
    std::unordered_map<std::array<uint32_t, 3>, std::unique_ptr<GemmPlan>, BytesHash> plans_;
    std::unordered_map<std::string, std::unique_ptr<GemmPlan>> named_plans_;
    std::unordered_map<CallKey, std::shared_ptr<const Call>, BytesHash> calls_;
};

plan::DeviceSpec HopperBackend::spec_of(const cuda::Device& device) {
    const cuda::DeviceFacts& facts = device.facts();
    plan::DeviceSpec spec{.name = ""};
    for (const char* name : {"h200", "h100", "h20", "gh200"}) {
        std::string upper(name);
        for (char& c : upper) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
        const plan::DeviceSpec* known = plan::find_device(name);
        if (known && facts.name.find(" " + upper) != std::string::npos) spec = *known;
    }
    if (spec.name.empty()) {   // a device that nobody measured: its own facts, with what is usually reached of the nominal rates
        spec.name = "unknown";
        spec.hbm_bytes_per_us = facts.memory_bytes_per_us * 0.88;
    }
    spec.sms = facts.sms;
    spec.smem_bytes = facts.smem_bytes;
    return spec;
}

std::shared_ptr<const cuda::Kernel> HopperBackend::load(const jit::KernelSource& source, const cuda::LaunchShape& shape) {
    {
        const std::shared_lock lock(mutex_);
        if (const auto found = kernels_.find(source.entry); found != kernels_.end()) return found->second;
    }
    // Outside of the lock: compiling may take long. Of two threads that load the same kernel the first one wins.
    const jit::Binary binary = store_.get(source);
    auto kernel = std::make_shared<cuda::Kernel>(device_, binary.cubin, binary.entry, shape);
    const std::unique_lock lock(mutex_);
    return kernels_.try_emplace(source.entry, std::move(kernel)).first->second;
}

std::shared_ptr<const cuda::Kernel> HopperBackend::kernel_for(const GemmConfig& config) {
    return load(jit::gemm_source(config, plan::name_of(config)),
                {.block = config.threads(), .cluster = config.cluster, .smem_bytes = smem_plan(config).total});
}

const GemmPlan& HopperBackend::plan_for(const plan::Problem& problem, const std::string& config_name) {
    const std::array<uint32_t, 3> key{problem.m, problem.n, problem.k};
    const GemmPlan* found = nullptr;
    {
        const std::shared_lock lock(mutex_);
        if (config_name.empty()) {
            if (const auto it = plans_.find(key); it != plans_.end()) return *it->second;
        } else if (const auto it = named_plans_.find(config_name); it != named_plans_.end()) {
            found = it->second.get();
        }
    }
    const GemmConfig config = found                 ? found->config
                              : config_name.empty() ? plan::choose(problem, spec_)
                                                    : plan::config_named(config_name);
    if (const auto why_not = plan::rejected(problem, spec_, config); !why_not.empty())
        throw Error(Errc::InvalidArgument, fmt::format("config '{}' cannot take a GEMM of {} x {} x {}: {}; `finegemm explain {} {} {}` "
                                                       "lists those that can",
                                                       config_name, problem.m, problem.n, problem.k, why_not, problem.m, problem.n,
                                                       problem.k));
    if (found) return *found;
    auto plan = std::make_unique<GemmPlan>(GemmPlan{config, kernel_for(config)});
    const std::unique_lock lock(mutex_);
    return config_name.empty() ? *plans_.try_emplace(key, std::move(plan)).first->second
                               : *named_plans_.try_emplace(config_name, std::move(plan)).first->second;
}

Call HopperBackend::prepare(const GemmArgs& args, const GemmPlan& plan) const {
    const GemmConfig& c = plan.config;
    const auto m = static_cast<uint32_t>(args.d.rows), n = static_cast<uint32_t>(args.d.cols);
    const auto k = static_cast<uint32_t>(args.a.cols);
    const auto global = [](const ConstMatrix& x) {
        // The stride of a single row is never used, but must be legal: take that of a tight row.
        const int64_t bytes = (x.rows > 1 ? x.row_stride : (x.cols + 15) / 16 * 16) * size_of(x.dtype);
        return cuda::GlobalMatrix{x.data, static_cast<uint64_t>(x.rows), static_cast<uint64_t>(x.cols), static_cast<uint64_t>(bytes)};
    };
    const auto scales = [](const ConstMatrix& s) {
        return ScaleView{static_cast<const float*>(s.data), s.row_stride, s.col_stride};
    };
    const bool streaming = m <= kStreamingRows;
    Call call{};
    call.params = {.a = cuda::encode(*driver_, global(args.a), a_box(c, m)),
                   .b = cuda::encode(*driver_, global(args.b), b_box(c)),
                   .d = cuda::encode(*driver_, global(args.d), d_box(c)),
                   .sfa = scales(args.sfa),
                   .sfb = scales(args.sfb),
                   .d_data = args.d.data,
                   .d_row_stride = args.d.row_stride,
                   .m = m,
                   .n = n,
                   .k_blocks = ceil_div(k, kScaleBlock),
                   .a_box_rows = a_box_rows(c, m),
                   .raster_band = raster_band(c, m),
                   .a_policy = streaming ? kEvictLast : kEvictNormal,
                   .b_policy = streaming ? kEvictFirst : kEvictNormal};
    call.grid = grid_size(c, raster(c, m, n, call.params.raster_band).size(), plan.kernel->resident_clusters());
    call.kernel = plan.kernel.get();
    return call;
}

void HopperBackend::gemm(const GemmArgs& args, const GemmOptions& options) {
    if (args.a.cols == 0) return zero(args.d, options.stream);
    const plan::Problem problem{static_cast<uint32_t>(args.d.rows), static_cast<uint32_t>(args.d.cols),
                                static_cast<uint32_t>(args.a.cols)};
    const GemmPlan& plan = plan_for(problem, options.config);
    const CallKey key{args.a.data, args.sfa.data, args.b.data, args.sfb.data, args.d.data, args.d.rows, args.d.cols, args.a.cols,
                      args.a.row_stride, args.b.row_stride, args.d.row_stride, args.sfa.row_stride, args.sfa.col_stride,
                      args.sfb.row_stride, args.sfb.col_stride, &plan};
    std::shared_ptr<const Call> call;
    {
        const std::shared_lock lock(mutex_);
        if (const auto found = calls_.find(key); found != calls_.end()) call = found->second;
    }
    const cuda::CurrentDevice current(device_);
    if (!call) {
        call = std::make_shared<const Call>(prepare(args, plan));
        const std::unique_lock lock(mutex_);
        if (calls_.size() >= kMaxCalls) calls_.clear();
        calls_.try_emplace(key, call);
    }
    call->kernel->launch(call->grid, &call->params, options.stream);
}

void HopperBackend::zero(const Matrix& d, Stream stream) const {
    const cuda::CurrentDevice current(device_);
    const auto base = reinterpret_cast<cuda::DevicePtr>(d.data);
    const size_t element = static_cast<size_t>(size_of(d.dtype));
    driver_->check(driver_->api.MemsetD2D8Async(base, static_cast<size_t>(d.row_stride) * element, 0,
                                                static_cast<size_t>(d.cols) * element, static_cast<size_t>(d.rows), stream),
                   "cuMemsetD2D8Async");
}

void HopperBackend::quantize(ScaleShape shape, const ConstMatrix& x, const Matrix& q, const Matrix& scales,
                             const QuantizeOptions& options) {
    const QuantizeConfig config{.input = x.dtype == DType::BF16  ? QuantizeInput::BF16
                                         : x.dtype == DType::F16 ? QuantizeInput::F16
                                                                 : QuantizeInput::F32,
                                .square_blocks = shape == ScaleShape::Blocks};
    const QuantizeParams params{.x = x.data,
                                .q = static_cast<uint8_t*>(q.data),
                                .scales = static_cast<float*>(scales.data),
                                .x_row_stride = x.row_stride,
                                .q_row_stride = q.row_stride,
                                .scale_row_stride = scales.row_stride,
                                .scale_col_stride = scales.col_stride,
                                .rows = static_cast<uint32_t>(x.rows),
                                .cols = static_cast<uint32_t>(x.cols),
                                .power_of_two = options.power_of_two_scales};
    const auto kernel = load(jit::quantize_source(config), {.block = QuantizeConfig::kThreads});
    const uint64_t tasks = quantize_tasks(config, params.rows, params.cols);
    const uint64_t ctas = config.square_blocks ? tasks : (tasks + QuantizeConfig::kWarps - 1) / QuantizeConfig::kWarps;
    const cuda::CurrentDevice current(device_);
    kernel->launch(static_cast<uint32_t>(std::min<uint64_t>(ctas, kMaxGrid)), &params, options.stream);
}

std::vector<float> HopperBackend::to_host(const ConstMatrix& s, Stream stream) const {
    const auto span = static_cast<size_t>((s.rows - 1) * s.row_stride + (s.cols - 1) * s.col_stride + 1);
    std::vector<float> host(span);
    driver_->check(driver_->api.MemcpyDtoHAsync(host.data(), reinterpret_cast<cuda::DevicePtr>(s.data), span * sizeof(float), stream),
                   "cuMemcpyDtoHAsync");
    driver_->check(driver_->api.StreamSynchronize(stream), "cuStreamSynchronize");
    return host;
}

void HopperBackend::check_scales(const GemmArgs& args, const GemmOptions& options) {
    const cuda::CurrentDevice current(device_);
    int capturing = 0;
    driver_->check(driver_->api.StreamIsCapturing(options.stream, &capturing), "cuStreamIsCapturing");
    if (capturing)
        throw Error(Errc::InvalidArgument, "check_values copies scales to the host, which a capturing stream cannot do; turn it off "
                                           "for calls that are captured into a CUDA graph");
    for (const auto& [name, s] : {std::pair{"sfa", args.sfa}, std::pair{"sfb", args.sfb}}) {
        if (s.rows == 0 || s.cols == 0) continue;
        check_scales_host(name, to_host(s, options.stream).data(), s.rows, s.cols, s.row_stride, s.col_stride);
    }
}

}  // namespace

std::unique_ptr<Backend> make_hopper_backend(const Options& options, int device_index) {
    return std::make_unique<HopperBackend>(options, device_index);
}

}  // namespace finegemm
