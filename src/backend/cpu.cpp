// The backend for CPUs. Layer backend.
#include "backend/cpu.h"

#include <utility>

#include "backend/check_groups.h"
#include "backend/check_scales.h"
#include "backend/cpu_gemm.h"
#include "backend/cpu_grouped.h"
#include "backend/cpu_k_grouped.h"
#include "backend/cpu_quantize.h"
#include "backend/thread_pool.h"

namespace finegemm {

namespace {

class CpuBackend final : public Backend {
public:
    explicit CpuBackend(const Options& options)
        : batch_invariant_(options.batch_invariant), pool_(options.cpu_threads) {}

    void gemm(const GemmArgs& args, const GemmOptions& options) override { cpu_gemm(args, decided(options), pool_); }
    void grouped_gemm(const GroupedGemmArgs& args, const GemmOptions& options) override {
        cpu_grouped_gemm(args, options, pool_);
    }
    void k_grouped_gemm(const KGroupedGemmArgs& args, const GemmOptions& options) override {
        cpu_k_grouped_gemm(args, decided(options), pool_);
    }
    void quantize(ScaleShape shape, const ConstMatrix& x, const Matrix& q, const Matrix& scales,
                  const QuantizeOptions& options) override {
        cpu_quantize(shape, x, q, scales, options, pool_);
    }
    void check_scales(const GemmArgs& args, const GemmOptions&) override {
        for (const auto& [name, s] : {std::pair{"sfa", args.sfa}, std::pair{"sfb", args.sfb}})
            check_scales_host(name, static_cast<const float*>(s.data), s.rows, s.cols, s.row_stride, s.col_stride);
    }
    void check_groups(const GroupedGemmArgs& args, const GemmOptions&) override {
        check_group_numbers(args);
        check_group_scales(args);
    }
    void check_k_groups(const KGroupedGemmArgs& args, const GemmOptions&) override { check_k_group_scales(args); }

private:
    GemmOptions decided(GemmOptions options) const {
        if (!options.batch_invariant) options.batch_invariant = batch_invariant_;
        return options;
    }

    bool batch_invariant_;  // of calls that do not say
    ThreadPool pool_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const Options& options) { return std::make_unique<CpuBackend>(options); }

}  // namespace finegemm
