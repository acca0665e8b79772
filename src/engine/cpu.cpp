// The backend for CPUs. Layer engine.
#include "engine/cpu.h"

#include <cstddef>
#include <deque>
#include <type_traits>
#include <vector>

#include "engine/check_values.h"
#include "engine/thread_pool.h"
#include "ops/ep/cpu.h"
#include "ops/ep/steps.h"
#include "ops/four_bit/cpu.h"
#include "ops/gemm/cpu.h"
#include "ops/moe/steps.h"
#include "ops/mqa/cpu.h"
#include "ops/prenorm/cpu.h"
#include "ops/quantize/cpu.h"
#include "ops/routing/cpu.h"
#include "ops/scale_layout/cpu.h"
#include "ops/swiglu/cpu.h"
#include "ops/topk/cpu.h"
#include "ops/topk/steps.h"

namespace finegemm {

namespace {

class CpuBackend final : public Backend {
public:
    explicit CpuBackend(const Options& options)
        : batch_invariant_(options.batch_invariant), pool_(options.cpu_threads) {}

    const Computing& gemm(const Call& call) override {
        cpu_gemm(call, pool_, batch_invariant_);
        return kComputing[static_cast<size_t>(call.options.numerics)];
    }
    void check_values(const Call& call) override {
        check_group_numbers(call);
        check_scale_values(call);
    }
    void run(const Operation& operation) override {
        std::visit(
            [&](const auto& call) {
                if constexpr (std::is_same_v<decltype(call), const MoeCall&>) run_moe(call);
                else if constexpr (std::is_same_v<decltype(call), const EpMoeCall&>) run_ep_moe(call);
                else if constexpr (requires { memory_of(call); }) run_topk(call);
                else start(call);
            },
            operation);
    }

private:
    template <typename OperationCall>
    void start(const OperationCall& call) {
        if constexpr (requires { call.check_values; })
            if (call.check_values) check_numbers(call);
        run_on_cpu(call, pool_);
    }

    void run_moe(const MoeCall& call) {
        const MoeForms forms = usual_forms(call.shape());
        if (call.workspace) return run_steps(*this, call, forms, call.workspace);
        std::vector<std::byte> workspace(static_cast<size_t>(memory_of(call.shape(), forms.fused).bytes));
        run_steps(*this, call, forms, workspace.data());
    }

    void run_ep_moe(const EpMoeCall& call) {
        std::deque<std::vector<std::byte>> memory;
        run_steps(*this, call, [&](int64_t bytes) { return memory.emplace_back(static_cast<size_t>(bytes)).data(); });
    }

    template <typename LogitsTopkCall>
    void run_topk(const LogitsTopkCall& call) {
        const MqaOptions options = for_logits(call.options);
        if (call.check_values) check_numbers(logits_call(call, options));
        std::vector<float> logits(static_cast<size_t>(memory_of(call)) / sizeof(float));
        run_steps(*this, call, logits.data());
    }

    inline static const Computing kComputing[] = {{"fast", ""}, {"exact", ""}, {"hopper", ""}};  // by numerics

    bool batch_invariant_;  // of calls that do not say
    ThreadPool pool_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const Options& options) { return std::make_unique<CpuBackend>(options); }

}  // namespace finegemm
