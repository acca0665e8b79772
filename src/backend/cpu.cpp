// The backend for CPUs. Layer backend.
#include "backend/cpu.h"

#include "backend/check_values.h"
#include "backend/cpu_gemm.h"
#include "backend/cpu_quantize.h"
#include "backend/thread_pool.h"

namespace finegemm {

namespace {

class CpuBackend final : public Backend {
public:
    explicit CpuBackend(const Options& options)
        : batch_invariant_(options.batch_invariant), pool_(options.cpu_threads) {}

    void gemm(const Call& call) override { cpu_gemm(call, pool_, batch_invariant_); }
    void check_values(const Call& call) override {
        check_group_numbers(call);
        check_scale_values(call);
    }
    void quantize(ScaleShape shape, const ConstMatrix& x, const Matrix& q, const Matrix& scales,
                  const QuantizeOptions& options) override {
        cpu_quantize(shape, x, q, scales, options, pool_);
    }

private:
    bool batch_invariant_;  // of calls that do not say
    ThreadPool pool_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const Options& options) { return std::make_unique<CpuBackend>(options); }

}  // namespace finegemm
