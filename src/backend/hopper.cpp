// The backend for Hopper GPUs: choose a kernel, get its code, describe the matrices, launch. Layer backend.
#include "backend/hopper_backend.h"

#include <algorithm>
#include <mutex>

#include <fmt/format.h>

#include <finegemm/core/schedule.h>
#include <finegemm/error.h>

#include "backend/check_device.h"
#include "backend/device_spec.h"
#include "cuda/tensor_map.h"

namespace finegemm {

namespace {

/// CTAs of a quantisation kernel, which then walks over its tasks.
constexpr uint64_t kMaxGrid = 1u << 20;
/// Strides of tensor maps, in bytes, are below this. CUDA driver API, cuTensorMapEncodeTiled.
constexpr int64_t kMaxTensorMapStride = 1ll << 40;

uint64_t checked_stride(const char* name, const char* of, int64_t stride, DType dtype) {
    if (stride >= kMaxTensorMapStride / size_of(dtype))
        throw Error(Errc::Unsupported,
                    fmt::format("{}: has {} stride {}, must be below {} for the GPU's copy engine; copy it to memory "
                                "with a smaller one",
                                name, of, stride, kMaxTensorMapStride / size_of(dtype)));
    return static_cast<uint64_t>(stride * size_of(dtype));
}

cuda::GlobalMatrix global_matrix(const char* name, const ConstMatrix& x) {
    // The stride of a single row is never used, but must be legal: take that of a tight row.
    const int64_t stride = x.rows > 1 ? x.row_stride : (x.cols + 15) / 16 * 16;
    return {x.data, static_cast<uint64_t>(x.rows), static_cast<uint64_t>(x.cols),
            checked_stride(name, "row", stride, x.dtype)};
}

}  // namespace

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

const GemmKernel* HopperBackend::find(const std::string& name) const {
    const std::shared_lock lock(mutex_);
    const auto found = kernels_.find(name);
    return found == kernels_.end() ? nullptr : found->second.get();
}

/// Outside of the lock, as compiling may take long: of two threads that load the same kernel the first one wins.
const GemmKernel& HopperBackend::load(const GemmConfig& config) {
    const std::string name = plan::name_of(config);
    const jit::Binary binary = provider_(jit::gemm_source(config, name));
    const cuda::LaunchShape shape{
        .block = config.threads(), .cluster = config.cluster, .smem_bytes = smem_plan(config).total};
    std::unique_ptr<const GemmKernel> kernel(
        new GemmKernel{config, cuda::Kernel(device_, binary.cubin, binary.entry, shape)});
    const std::unique_lock lock(mutex_);
    return *kernels_.try_emplace(name, std::move(kernel)).first->second;
}

const GemmKernel& HopperBackend::chosen(const plan::Problem& problem) {
    const Shape shape{problem.m,
                      problem.n,
                      problem.k,
                      problem.batch_invariant,
                      problem.num_sms,
                      problem.groups,
                      problem.expected_m,
                      problem.alignment,
                      static_cast<uint32_t>(problem.b_scales),
                      static_cast<uint32_t>(problem.output),
                      problem.accumulate,
                      problem.k_groups};
    {
        const std::shared_lock lock(mutex_);
        if (const auto found = choices_.find(shape); found != choices_.end()) return *found->second;
    }
    const GemmConfig config = plan::choose(problem, spec_, &table_).config;
    const GemmKernel* loaded = find(plan::name_of(config));
    const GemmKernel& kernel = loaded ? *loaded : load(config);
    const std::unique_lock lock(mutex_);
    if (choices_.size() >= kMaxKept) choices_.clear();
    choices_.try_emplace(shape, &kernel);
    return kernel;
}

const GemmKernel& HopperBackend::named(const plan::Problem& problem, const std::string& name) {
    const GemmConfig config = plan::config_named(name);  // not every loaded kernel can be named
    if (const auto why_not = plan::rejected(problem, spec_, config); !why_not.empty())
        throw plan::cannot_take(name, problem, why_not);
    const GemmKernel* loaded = find(name);
    return loaded ? *loaded : load(config);
}

/// The variant of a kernel that is fastest for a call's scales.
const GemmKernel& HopperBackend::variant_of(const GemmKernel& kernel, bool vectors) {
    const GemmConfig config = vectors ? plan::for_row_scales(kernel.config) : kernel.config;
    if (config == kernel.config) return kernel;
    const GemmKernel* loaded = find(plan::name_of(config));
    return loaded ? *loaded : load(config);
}

TensorMap HopperBackend::map_of(const char* name, const ConstMatrix& x, const TmaBox& box) const {
    return cuda::encode(*driver_, global_matrix(name, x), box);
}

TensorMap HopperBackend::map_of(const char* name, const ConstStack& x, const TmaBox& box) const {
    cuda::GlobalMatrix matrix = global_matrix(name, x.matrix);
    matrix.count = static_cast<uint64_t>(x.count);
    matrix.stride_bytes =
        x.count > 1 ? checked_stride(name, "stack", x.stride, x.matrix.dtype) : matrix.row_stride_bytes;
    return cuda::encode(*driver_, matrix, box);
}

uint32_t HopperBackend::clusters_for(const GemmKernel& kernel, const plan::Problem& problem) const {
    const uint32_t clusters = kernel.kernel.resident_clusters();
    if (!plan::has_sm_budget(problem, spec_)) return clusters;
    return std::min(clusters, plan::ctas_at_once(problem, spec_, kernel.config) / kernel.config.cluster);
}

Call HopperBackend::prepare(const GemmArgs& args, const GemmKernel& kernel, const plan::Problem& problem,
                            const CallKey& key) const {
    const GemmConfig& c = kernel.config;
    const auto m = static_cast<uint32_t>(args.d.rows), n = static_cast<uint32_t>(args.d.cols);
    const auto k = static_cast<uint32_t>(args.a.cols);
    const auto loads = [&](const char* name, const ConstMatrix& x, const LoadBoxes& boxes) {
        const TensorMap last = map_of(name, x, boxes.last);
        const bool one_map = boxes.whole == boxes.last || x.rows < boxes.whole.rows;  // no tile is whole, or all are
        return TileLoads{one_map ? last : map_of(name, x, boxes.whole), last};
    };
    const bool streaming = m <= kStreamingRows;
    Call call{.params = {{.raster = raster(c, m, n),
                          .m = m,
                          .n = n,
                          .k_blocks = ceil_div(k, kScaleBlock),
                          .a_rows_of_last = rows_of_last_tile(m, c.tile_m, c.a_sharers()),
                          .b_rows_of_last = b_rows_of_last(c, n),
                          .a_policy = streaming ? kEvictLast : kEvictNormal,
                          .b_policy = streaming ? kEvictFirst : kEvictNormal,
                          .sfa = view_of(args.sfa),
                          .sfb = view_of(args.sfb),
                          .d_data = args.d.data,
                          .d_row_stride = args.d.row_stride,
                          .accumulate = key.accumulate != 0,
                          .prefetch_weights = key.prefetch_weights != 0,
                          .a = loads("a", args.a, a_boxes(c, m)),
                          .b = loads("b", args.b, b_boxes(c, n))},
                         {},
                         {}},
              .grid = 0,
              .kernel = &kernel.kernel};
    for (uint32_t segment = 1; segment < n_segments(c); ++segment)
        call.params.b_segments[segment - 1] = map_of("b", args.b, b_segment_box(c, segment));
    if (loads_source(c)) call.params.d[0] = map_of("d", args.d, kF32DBox);
    else set_d_maps(call.params, c, args.d);
    call.grid = grid_size(c, call.params.raster.size(), clusters_for(kernel, problem));
    return call;
}

std::shared_ptr<const Call> HopperBackend::make_call(CallKey& key, const std::string& config, const GemmArgs& args) {
    const plan::Problem problem{
        .m = static_cast<uint32_t>(key.m),
        .n = static_cast<uint32_t>(key.n),
        .k = static_cast<uint32_t>(key.k),
        .batch_invariant = key.batch_invariant != 0,
        .num_sms = static_cast<uint32_t>(key.num_sms),
        .b_scales = key.row_b_scales ? ScaleBlocks::Rows : ScaleBlocks::Blocks,
        .output = key.out_dtype == static_cast<int64_t>(DType::F32) ? Output::F32 : Output::BF16,
        .accumulate = key.accumulate != 0};
    const GemmKernel& kernel = config.empty() ? chosen(problem) : named(problem, config);
    if (!config.empty()) key.named = &kernel;
    const bool vectors = has_scale_vectors(args, problem.k_blocks(), kernel.config);
    const GemmKernel& variant = variant_of(kernel, vectors);
    auto call = std::make_shared<const Call>(prepare(args, variant, problem, key));
    const std::unique_lock lock(mutex_);
    if (calls_.size() >= kMaxKept) calls_.clear();
    return calls_.try_emplace(key, std::move(call)).first->second;
}

void HopperBackend::gemm(const GemmArgs& args, const GemmOptions& options) {
    if (args.a.cols == 0 && options.accumulate) return;
    if (args.a.cols == 0) return zero(args.d, options.stream);
    const bool batch_invariant = options.batch_invariant.value_or(batch_invariant_);
    CallKey key = call_key(args, has_row_b_scales(args), batch_invariant, options);
    std::shared_ptr<const Call> call = find_call(calls_, key, key, options.config);
    const cuda::CurrentDevice current(device_);
    if (!call) call = make_call(key, options.config, args);
    call->kernel->launch(call->grid, &call->params, options.stream, options.pdl);
}

void HopperBackend::zero(const Matrix& d, Stream stream) const {
    const cuda::CurrentDevice current(device_);
    const size_t width = static_cast<size_t>(d.cols * size_of(d.dtype));
    const size_t pitch = d.rows > 1 ? static_cast<size_t>(d.row_stride * size_of(d.dtype)) : width;
    driver_->check(driver_->api.MemsetD2D8Async(reinterpret_cast<cuda::DevicePtr>(d.data), pitch, 0, width,
                                                static_cast<size_t>(d.rows), stream),
                   "cuMemsetD2D8Async");
}

const cuda::Kernel& HopperBackend::quantize_kernel(const QuantizeConfig& config) {
    auto& slot = quantize_kernels_[static_cast<size_t>(config.input) * 2 + config.square_blocks];
    {
        const std::shared_lock lock(mutex_);
        if (slot) return *slot;
    }
    const jit::Binary binary = provider_(jit::quantize_source(config));
    const cuda::LaunchShape shape{.block = config.threads()};
    auto kernel = std::make_unique<const cuda::Kernel>(device_, binary.cubin, binary.entry, shape);
    const std::unique_lock lock(mutex_);
    if (!slot) slot = std::move(kernel);
    return *slot;
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
    const cuda::Kernel& kernel = quantize_kernel(config);
    const uint64_t tasks = quantize_tasks(config, params.rows, params.cols);
    const uint64_t tasks_at_once = config.square_blocks ? 1 : config.warps();  // of a CTA
    const uint64_t ctas = (tasks + tasks_at_once - 1) / tasks_at_once;
    const cuda::CurrentDevice current(device_);
    kernel.launch(static_cast<uint32_t>(std::min(ctas, kMaxGrid)), &params, options.stream);
}

void HopperBackend::check_scales(const GemmArgs& args, const GemmOptions& options) {
    const cuda::CurrentDevice current(device_);
    check_device_scales(*driver_, args, options.stream);
}

void HopperBackend::check_groups(const GroupedGemmArgs& args, const GemmOptions& options) {
    const cuda::CurrentDevice current(device_);
    check_device_groups(*driver_, args, options.stream);
}

void HopperBackend::check_k_groups(const KGroupedGemmArgs& args, const GemmOptions& options) {
    const cuda::CurrentDevice current(device_);
    check_device_k_groups(*driver_, args, options.stream);
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
