// The backend for Hopper GPUs: choose a kernel, get its code, describe the matrices, launch. Layer engine.
#include "engine/hopper_backend.h"

#include <algorithm>
#include <mutex>
#include <span>

#include <fmt/format.h>

#include <finegemm/core/fp8.h>
#include <finegemm/error.h>
#include <finegemm/gemm/schedule.h>

#include "engine/check_device.h"
#include "engine/device_spec.h"
#include "ops/ep/source.h"
#include "ops/four_bit/planner.h"
#include "ops/four_bit/source.h"
#include "ops/gemm/groups.h"
#include "ops/gemm/source.h"
#include "ops/mqa/source.h"
#include "ops/operation_launch.h"
#include "ops/prenorm/source.h"
#include "ops/quantize/source.h"
#include "ops/reencoded_gemm/call.h"
#include "ops/routing/source.h"
#include "ops/scale_layout/source.h"
#include "ops/swiglu/source.h"
#include "ops/topk/source.h"
#include "ops/topk/steps.h"

namespace finegemm {

HopperBackend::HopperBackend(const Options& options, int index, KernelProvider provider)
    : batch_invariant_(options.batch_invariant),
      provider_(std::move(provider)),
      driver_(cuda::Driver::open(options.driver_path)),
      device_(driver_, index),
      spec_(spec_of(device_.facts())) {
    const cuda::DeviceFacts& facts = device_.facts();
    if (facts.major != 9 || facts.minor != 0)
        throw Error(Errc::Unsupported,
                    fmt::format("GPU {} ({}) has compute capability {}.{}; the kernels need 9.0 (H100, H200, H20, "
                                "GH200); pass CPU matrices to run on the CPU",
                                facts.index, facts.name, facts.major, facts.minor));
    table_ = plan::load_table(options.plan_table, spec_, options.trusted_dir);
}

CallKey HopperBackend::key_of(const Call& call) const {
    const GemmOptions& options = call.options;
    const auto operand = [](const ConstMatrix& x, int64_t stack_stride) {
        return CallKey::Operand{x.data, x.row_stride, stack_stride};
    };
    const auto of_a_or_b = [](const ConstStack& x) {
        const bool mn_major = major_of(x.matrix) == Major::MN;
        return CallKey::Operand{x.matrix.data, mn_major ? x.matrix.col_stride : x.matrix.row_stride, x.stride};
    };
    const auto choices_of = [](const Call& c) {
        if (!c.choices) return CallKey::Choices{nullptr, 0, 0, 0, 0, c.stored};
        const CountedChoices& x = *c.choices;
        return CallKey::Choices{x.ids, x.row_stride, x.first, x.count, x.by_k.divisor << 1 | x.wide, nullptr};
    };
    const bool batch_invariant = options.batch_invariant.value_or(batch_invariant_);
    return {.a = of_a_or_b(call.a),
            .b = of_a_or_b(call.b),
            .d = operand(call.d.matrix, call.d.stride),
            .sfa = {operand(call.sfa.matrix, call.sfa.stride), call.sfa.matrix.col_stride},
            .sfb = {operand(call.sfb.matrix, call.sfb.stride), call.sfb.matrix.col_stride},
            .m = call.a.matrix.rows,
            .n = call.d.matrix.cols,
            .k = call.a.matrix.cols,
            .numbers = call.has_host_offsets() ? nullptr : call.groups.data,
            .group_count = call.group_count,
            .alignment = call.groups.alignment,
            .expected_m = call.groups.expected_m,
            .num_sms = options.num_sms,
            .grouping = static_cast<uint8_t>(static_cast<uint32_t>(call.grouping) | is_mx(call.sfa.matrix) << 4 |
                                             is_mx(call.sfb.matrix) << 5),
            .form = static_cast<uint8_t>(call.of_k() ? static_cast<int32_t>(call.layout)
                                                     : static_cast<int32_t>(call.groups.form)),
            .dtypes = static_cast<uint8_t>(static_cast<int32_t>(call.a.matrix.dtype) |
                                           static_cast<int32_t>(call.d.matrix.dtype) << 4),
            .flags = static_cast<uint8_t>(call.row_b_scales() | batch_invariant << 1 | options.accumulate << 2 |
                                          options.prefetch_weights << 3 | (major_of(call.a.matrix) == Major::MN) << 4 |
                                          (major_of(call.b.matrix) == Major::MN) << 5 |
                                          (call.a.matrix.dtype != call.b.matrix.dtype) << 6 | call.stores_sums << 7),
            .named = nullptr,
            .choices = choices_of(call),
            .epilogue = finegemm::key_of(call.epilogue()),
            .d_height = call.d.matrix.rows};
}

/// The launch of a call that was made before. Sets the kernel in the key, if it is named and has been loaded.
std::shared_ptr<Launch> HopperBackend::find_launch(CallKey& key, const std::string& config) const {
    const std::shared_lock lock(mutex_);
    if (!config.empty()) {
        const auto kernel = kernels_.find(config);
        if (kernel == kernels_.end()) return nullptr;
        key.named = kernel->second.get();
    }
    const auto found = launches_.find(key);
    return found == launches_.end() ? nullptr : found->second;
}

std::shared_ptr<Launch> HopperBackend::make_launch(CallKey& key, const Call& call) {
    const std::string& config = call.options.config;
    const plan::Problem problem = problem_of(call, batch_invariant_);
    const GemmKernel& kernel =
        config.empty() ? chosen(problem, call.options.poll) : named(problem, config, call.options.poll);
    if (!config.empty()) key.named = &kernel;
    const GemmConfig variant = variant_for(call, kernel.config);
    const GemmKernel& fastest = variant == kernel.config ? kernel : loaded(variant, call.options.poll);
    const GemmConfig& c = fastest.config;
    const uint32_t clusters = clusters_for(fastest, problem);
    auto launch = std::make_shared<Launch>(Launch{.kernel = &fastest,
                                                  .grid = grid_of(call, problem, c, clusters),
                                                  .params = params_of(*driver_, call, problem, c, clusters)});
    const std::unique_lock lock(mutex_);
    if (launches_.size() >= kMaxKept) launches_.clear();
    return launches_.try_emplace(key, std::move(launch)).first->second;
}

const Computing& HopperBackend::gemm(const Call& call) {
    driver_->check_process();
    const GemmOptions& options = call.options;
    if (call.a.matrix.cols == 0) return zero(call);
    if (takes_reencoded(call)) {
        const cuda::CurrentDevice current(device_);
        const ReencodedCall reencoded(call);
        const cuda::StreamMemory operands(memory(), reencoded.bytes(), options.stream);
        return reencoded.run(
            operands.data(), [&](const ReencodeCall& operand) { start(operand); },
            [&](const Call& product) -> const Computing& { return gemm(product); });
    }
    CallKey key = key_of(call);
    std::shared_ptr<Launch> launch = find_launch(key, options.config);
    const cuda::CurrentDevice current(device_);
    const bool again = launch != nullptr;
    if (!again) launch = make_launch(key, call);
    const cuda::Kernel& kernel = launch->kernel->kernel;
    if (call.summed()) {
        sum(*launch, call, again);
    } else if (call.has_host_offsets()) {
        launch_of_host(*launch, call);
    } else {
        kernel.launch(launch->grid, launch->params.data(), options.stream, options.pdl);
    }
    return launch->kernel->computing;
}

/// Memory that calls take while their kernels run.
cuda::MemoryPool& HopperBackend::memory() {
    {
        const std::shared_lock lock(mutex_);
        if (memory_) return *memory_;
    }
    auto pool = std::make_unique<cuda::MemoryPool>(device_);
    const std::unique_lock lock(mutex_);
    if (!memory_) memory_ = std::move(pool);
    return *memory_;
}

/// The sum of no products: nothing is added to D, or it becomes zero.
const Computing& HopperBackend::zero(const Call& call) const {
    static const Computing kNoKernel{};
    if (call.options.accumulate) return kNoKernel;
    const cuda::CurrentDevice current(device_);
    const Matrix& d = call.d.matrix;
    const int64_t bytes = size_of(d.dtype);
    const auto width = static_cast<size_t>(d.cols * bytes);
    const size_t pitch = d.rows > 1 ? static_cast<size_t>(d.row_stride * bytes) : width;
    for (int64_t i = 0; i < call.d.count; ++i) {
        auto* data = static_cast<uint8_t*>(d.data) + i * call.d.stride * bytes;
        driver_->check(driver_->api.MemsetD2D8Async(reinterpret_cast<cuda::DevicePtr>(data), pitch, 0, width,
                                                    static_cast<size_t>(d.rows), call.options.stream),
                       "cuMemsetD2D8Async");
    }
    return kNoKernel;
}

const GemmKernel& HopperBackend::chosen(const plan::Problem& problem, const Poll& poll) {
    {
        const std::shared_lock lock(mutex_);
        if (const auto found = choices_.find(problem); found != choices_.end()) return *found->second;
    }
    const GemmKernel& kernel = loaded(plan::choose(problem, spec_, &table_).config, poll);
    const std::unique_lock lock(mutex_);
    if (choices_.size() >= kMaxKept) choices_.clear();
    choices_.try_emplace(problem, &kernel);
    return kernel;
}

/// Likewise. Numbers are looked at as those of the whole call.
template <typename LogitsTopkCall>
void HopperBackend::run_topk(const LogitsTopkCall& call) {
    const MqaOptions options = for_logits(call.options);
    if (call.check_values) check_device_numbers(*driver_, logits_call(call, options));
    const auto bytes = static_cast<size_t>(memory_of(call));
    if (bytes == 0) return run_steps(*this, call, nullptr);
    const cuda::StreamMemory logits(memory(), bytes, options.stream);
    run_steps(*this, call, logits.data());
}

std::vector<plan::Problem> HopperBackend::problems() const {
    const std::shared_lock lock(mutex_);
    std::vector<plan::Problem> problems;
    for (const auto& [problem, kernel] : choices_) problems.push_back(problem);
    return problems;
}

const GemmKernel& HopperBackend::named(const plan::Problem& problem, const std::string& name, const Poll& poll) {
    const GemmConfig config = plan::config_named(name);  // not every loaded kernel can be named
    if (const auto why_not = plan::rejected(problem, spec_, config); !why_not.empty())
        throw plan::cannot_take(name, problem, why_not);
    return loaded(config, poll);
}

/// Kernels are made outside of the lock, as compiling may take long: of two threads that load the same one the first
/// wins.
const GemmKernel& HopperBackend::loaded(const GemmConfig& config, const Poll& poll) {
    const std::string name = plan::name_of(config);
    {
        const std::shared_lock lock(mutex_);
        if (const auto found = kernels_.find(name); found != kernels_.end()) return *found->second;
    }
    const jit::Binary binary = provider_.get(jit::gemm_source(config, name), poll);
    const cuda::LaunchShape shape{
        .block = config.threads(), .cluster = config.cluster, .smem_bytes = kernel_plan(config).smem.total};
    std::unique_ptr<const GemmKernel> kernel(
        new GemmKernel{config,
                       cuda::Kernel(device_, binary.cubin, binary.entry, shape),
                       {plan::name_of(plan::without_variant(config)), name_of(binary.origin)}});
    const std::unique_lock lock(mutex_);
    return *kernels_.try_emplace(name, std::move(kernel)).first->second;
}

uint32_t HopperBackend::clusters_for(const GemmKernel& kernel, const plan::Problem& problem) const {
    const uint32_t clusters = kernel.kernel.resident_clusters();
    if (!plan::has_sm_budget(problem, spec_)) return clusters;
    return std::min(clusters, plan::ctas_at_once(problem, spec_, kernel.config) / kernel.config.cluster);
}

template <typename Config>
const cuda::Kernel& HopperBackend::kernel_of(const Config& config, const Poll& poll) {
    auto& slot = std::get<KernelsOf<Config>>(operations_).slots[config.index()];
    {
        const std::shared_lock lock(mutex_);
        if (slot) return *slot;
    }
    const jit::Binary binary = provider_.get(jit::source_of(config), poll);
    const cuda::LaunchShape shape{.block = config.threads(),
                                  .cluster = cluster_of(config),
                                  .smem_bytes = smem_bytes_of(config),
                                  .most_smem_bytes = most_smem_bytes_of(config)};
    auto kernel = std::make_unique<const cuda::Kernel>(device_, binary.cubin, binary.entry, shape);
    const std::unique_lock lock(mutex_);
    if (!slot) slot = std::move(kernel);
    return *slot;
}

template const cuda::Kernel& HopperBackend::kernel_of(const AddPiecesConfig&, const Poll&);
template const cuda::Kernel& HopperBackend::kernel_of(const GroupListConfig&, const Poll&);

/// That of a call that was made before, or made now: encoding tensor maps takes longer than a launch.
auto HopperBackend::kept_launch(const auto& call) {
    const auto key = call_key(call);
    using OperationLaunch = decltype(launch_on(call, *driver_, spec_));
    auto& kept = std::get<KeptLaunches<std::remove_const_t<decltype(key)>, OperationLaunch>>(kept_);
    {
        const std::shared_lock lock(mutex_);
        if (const auto found = kept.find(key); found != kept.end()) return found->second;
    }
    const OperationLaunch launch = launch_on(call, *driver_, spec_);
    auto made =
        std::make_shared<const KeptLaunch<OperationLaunch>>(&kernel_of(launch.config, call.options.poll), launch);
    const std::unique_lock lock(mutex_);
    if (kept.size() >= kMaxKept) kept.clear();
    return kept.try_emplace(key, std::move(made)).first->second;
}

template <typename OperationCall>
void HopperBackend::start(const OperationCall& call) {
    if constexpr (requires { call.check_values; })
        if (call.check_values) check_device_numbers(*driver_, call);
    bool overlap = false;
    if constexpr (requires { call.options.pdl; }) overlap = call.options.pdl;
    const auto start = [&](const cuda::Kernel& kernel, const auto& launch) {
        uint32_t smem_bytes = 0;
        if constexpr (requires { launch.overlaps; }) overlap = launch.overlaps;
        if constexpr (requires { launch.smem_bytes; }) smem_bytes = launch.smem_bytes;
        kernel.launch(launch.grid, &launch.params, call.options.stream, overlap, smem_bytes);
    };
    if constexpr (requires { call_key(call); }) {
        const auto kept = kept_launch(call);
        start(*kept->kernel, kept->launch);
    } else {
        const auto launch = launch_on(call, *driver_, spec_);
        start(kernel_of(launch.config, call.options.poll), launch);
    }
}

void HopperBackend::run(const Operation& operation) {
    driver_->check_process();
    std::visit(
        [&](const auto& call) {
            const cuda::CurrentDevice current(device_);
            if constexpr (std::is_same_v<decltype(call), const MoeCall&>) run_moe(call);
            else if constexpr (std::is_same_v<decltype(call), const EpMoeCall&>) run_ep_moe(call);
            else if constexpr (std::is_same_v<decltype(call), const FourBitCall&>) run_four_bit(call);
            else if constexpr (requires { memory_of(call); }) run_topk(call);
            else start(call);
        },
        operation);
}

bool HopperBackend::is_fp8_faster(const FourBitShape& shape) {
    const plan::Problem problem = plan::problem_of(fp8_shape(shape));
    return answer_of(fp8_, problem, [&] { return finegemm::is_fp8_faster(problem, spec_, &table_); });
}

bool HopperBackend::takes_reencoded(const Call& call) {
    const GemmOptions& options = call.options;
    const bool may =
        is_mx(call.sfb.matrix) && options.config.empty() && !options.batch_invariant.value_or(batch_invariant_);
    if (!may) return false;
    const plan::Problem problem = problem_of(call, batch_invariant_);
    return answer_of(reencoded_, problem, [&] { return plan::is_reencoded_faster(problem, spec_, &table_); });
}

void HopperBackend::run_four_bit(const FourBitCall& call) {
    if (!call.has_fp8() || !is_fp8_faster(call.shape())) return start(call);
    const GemmOptions options = fp8_options(call.options);
    gemm(fp8_call(call, options));
}

void HopperBackend::check_values(const Call& call) {
    driver_->check_process();
    const cuda::CurrentDevice current(device_);
    check_device_values(*driver_, call);
}

std::unique_ptr<Backend> make_hopper_backend(const Options& options, int device_index) {
    const int newest_cuda = cuda::Driver::open(options.driver_path)->version / 1000;
    const auto store = std::make_shared<const jit::KernelStore>(options, newest_cuda);
    return make_hopper_backend(options, device_index, [store](const jit::KernelSource& s) { return store->get(s); });
}

std::unique_ptr<Backend> make_hopper_backend(const Options& options, int device_index, KernelProvider kernels) {
    return std::make_unique<HopperBackend>(options, device_index, std::move(kernels));
}

}  // namespace finegemm
