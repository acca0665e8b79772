// HopperBackend: the state that calls on a GPU share. Layer backend; its functions are in hopper.cpp,
// hopper_grouped.cpp and hopper_k_grouped.cpp.
#pragma once

#include <array>
#include <memory>
#include <shared_mutex>
#include <string>
#include <unordered_map>

#include <finegemm/gemm/boxes.h>
#include <finegemm/gemm/params.h>
#include <finegemm/grouped.h>
#include <finegemm/k_grouped.h>

#include "backend/hash.h"
#include "backend/hopper.h"
#include "cuda/kernel.h"
#include "jit/quantize_source.h"
#include "plan/table.h"

namespace finegemm {

/// L2 policies as createpolicy.fractional encodes them for a fraction of one. PTX ISA, createpolicy.
inline constexpr uint64_t kEvictNormal = 0x1000000000000000, kEvictFirst = 0x12f0000000000000,
                          kEvictLast = 0x14f0000000000000;
/// Up to so many rows of a product, or of a group, the weights are read about once: they should not push the
/// activations out of L2.
inline constexpr uint32_t kStreamingRows = 384, kStreamingGroupRows = 128;

/// A GEMM kernel on the device.
struct GemmKernel {
    GemmConfig config;
    cuda::Kernel kernel;
};

/// A planner's problem as a key.
using Shape = std::array<uint32_t, 12>;

/// Key of a call, with all that its launch depends on: calls that agree share its parameters, tensor maps included.
struct CallKey {
    const void *a, *sfa, *b, *sfb, *d;
    int64_t m, n, k, batch_invariant, num_sms, a_stride, b_stride, d_stride, sfa_row, sfa_col, sfb_row, sfb_col;
    int64_t row_b_scales, out_dtype, accumulate, prefetch_weights;
    const GemmKernel* named;  // null: the planner's choice
    bool operator==(const CallKey&) const = default;
};

/// Key of one product, or of what the products of groups have in common.
inline CallKey call_key(const GemmArgs& x, bool row_b_scales, bool batch_invariant, const GemmOptions& options) {
    return {.a = x.a.data,
            .sfa = x.sfa.data,
            .b = x.b.data,
            .sfb = x.sfb.data,
            .d = x.d.data,
            .m = x.d.rows,
            .n = x.d.cols,
            .k = x.a.cols,
            .batch_invariant = batch_invariant,
            .num_sms = options.num_sms,
            .a_stride = x.a.row_stride,
            .b_stride = x.b.row_stride,
            .d_stride = x.d.row_stride,
            .sfa_row = x.sfa.row_stride,
            .sfa_col = x.sfa.col_stride,
            .sfb_row = x.sfb.row_stride,
            .sfb_col = x.sfb.col_stride,
            .row_b_scales = row_b_scales,
            .out_dtype = static_cast<int64_t>(x.d.dtype),
            .accumulate = options.accumulate,
            .prefetch_weights = options.prefetch_weights,
            .named = nullptr};
}

/// Key of grouped calls.
struct GroupedKey {
    CallKey call;
    const int32_t* groups;
    int64_t form, group_count, alignment, expected_m, a_stack, b_stack, d_stack, sfa_stack, sfb_stack;
    bool operator==(const GroupedKey&) const = default;
};

/// Key of K-grouped calls. Sizes on the host are not part of it, nor is what depends on them kept.
struct KGroupedKey {
    CallKey call;
    const int32_t* offsets;  // null: on the host
    int64_t groups, d_stack;
    bool operator==(const KGroupedKey&) const = default;
};

/// Grid and parameters of a call.
template <typename Params>
struct Launch {
    Params params;
    uint32_t grid;
    const cuda::Kernel* kernel;
};
using Call = Launch<SegmentedParams>;
using GroupedCall = Launch<GroupedParams>;
struct KGroupedCall : Launch<KGroupedParams> {
    GemmConfig config;
};

inline ScaleView view_of(const ConstMatrix& scales) {
    return {static_cast<const float*>(scales.data), scales.row_stride, scales.col_stride};
}

/// Can a kernel's variant for row-major scales, if it has one, read these?
inline bool has_scale_vectors(const GemmArgs& args, uint32_t k_blocks, const GemmConfig& c) {
    return has_scale_vectors(view_of(args.sfa), k_blocks, c.k_splits()) &&
           (!c.row_b_scales() || has_scale_vectors(view_of(args.sfb), k_blocks, c.k_splits()));
}

class HopperBackend final : public Backend {
public:
    HopperBackend(const Options& options, int index, KernelProvider provider);

    void gemm(const GemmArgs& args, const GemmOptions& options) override;
    void grouped_gemm(const GroupedGemmArgs& args, const GemmOptions& options) override;
    void k_grouped_gemm(const KGroupedGemmArgs& args, const GemmOptions& options) override;
    void quantize(ScaleShape shape, const ConstMatrix& x, const Matrix& q, const Matrix& scales,
                  const QuantizeOptions& options) override;
    void check_scales(const GemmArgs& args, const GemmOptions& options) override;
    void check_groups(const GroupedGemmArgs& args, const GemmOptions& options) override;
    void check_k_groups(const KGroupedGemmArgs& args, const GemmOptions& options) override;

private:
    const GemmKernel& chosen(const plan::Problem& problem);
    const GemmKernel& named(const plan::Problem& problem, const std::string& name);
    const GemmKernel* find(const std::string& name) const;
    const GemmKernel& load(const GemmConfig& config);
    const GemmKernel& variant_of(const GemmKernel& kernel, bool vectors);
    const cuda::Kernel& quantize_kernel(const QuantizeConfig& config);
    template <typename Calls, typename Key>
    typename Calls::mapped_type find_call(const Calls& calls, Key& key, CallKey& call, const std::string& config) const;
    std::shared_ptr<const Call> make_call(CallKey& key, const std::string& config, const GemmArgs& args);
    TensorMap map_of(const char* name, const ConstMatrix& x, const TmaBox& box) const;
    TensorMap map_of(const char* name, const ConstStack& x, const TmaBox& box) const;
    template <typename D>
    void set_d_maps(SegmentedParams& p, const GemmConfig& c, const D& d) const;
    uint32_t clusters_for(const GemmKernel& kernel, const plan::Problem& problem) const;
    Call prepare(const GemmArgs& args, const GemmKernel& kernel, const plan::Problem& problem,
                 const CallKey& key) const;
    std::shared_ptr<const GroupedCall> make_grouped_call(GroupedKey& key, const std::string& config,
                                                         const GroupedGemmArgs& args, const plan::Problem& problem);
    GroupedCall prepare(const GroupedGemmArgs& args, const GemmKernel& kernel, const plan::Problem& problem) const;
    std::shared_ptr<const KGroupedCall> make_k_grouped_call(KGroupedKey& key, const KGroupedGemmArgs& args,
                                                            const GemmOptions& options);
    KGroupedParams params_of(const KGroupedCall& call, const KGroupedGemmArgs& args, uint32_t first,
                             uint32_t count) const;
    void launch_host_groups(const KGroupedCall& call, const KGroupedGemmArgs& args, const GemmOptions& options) const;
    void zero(const Matrix& d, Stream stream) const;

    bool batch_invariant_;  // of calls that do not say
    KernelProvider provider_;
    std::shared_ptr<const cuda::Driver> driver_;
    cuda::Device device_;  // before the kernels, which refer to it
    plan::DeviceSpec spec_;
    plan::PlanTable table_;  // of the user; goes before the planner's own choice

    // Kernels are few and stay, so pointers to them are good without the lock. Shapes and pointers change without end
    // in some programs: what is kept of them is dropped all at once when it is too much.
    static constexpr size_t kMaxKept = 4096;
    mutable std::shared_mutex mutex_;
    std::unordered_map<std::string, std::unique_ptr<const GemmKernel>> kernels_;  // by plan's name
    std::array<std::unique_ptr<const cuda::Kernel>, 6> quantize_kernels_;
    std::unordered_map<Shape, const GemmKernel*, BytesHash> choices_;
    std::unordered_map<CallKey, std::shared_ptr<const Call>, BytesHash> calls_;
    std::unordered_map<GroupedKey, std::shared_ptr<const GroupedCall>, BytesHash> grouped_calls_;
    std::unordered_map<KGroupedKey, std::shared_ptr<const KGroupedCall>, BytesHash> k_grouped_calls_;
};

/// Sets the tensor maps of D, where TMA stores it.
template <typename D>
void HopperBackend::set_d_maps(SegmentedParams& p, const GemmConfig& c, const D& d) const {
    for (uint32_t width = 0; kernel_plan(c).tma_store() && width < kPanelWidths; ++width)
        if (panels_of_width(c, width) > 0) p.d[width] = map_of("d", d, d_box(width));
}

/// A call that was made before. Sets the kernel in `call`, a part of `key`, if it is named and has been loaded.
template <typename Calls, typename Key>
typename Calls::mapped_type HopperBackend::find_call(const Calls& calls, Key& key, CallKey& call,
                                                     const std::string& config) const {
    const std::shared_lock lock(mutex_);
    if (!config.empty()) {
        const auto kernel = kernels_.find(config);
        if (kernel == kernels_.end()) return nullptr;
        call.named = kernel->second.get();
    }
    const auto found = calls.find(key);
    return found == calls.end() ? nullptr : found->second;
}

}  // namespace finegemm
