// A product on the CPU whose rows of A, or of D, are found by numbers. Layer cpu.
#include "ops/gemm/cpu.h"
#include "ops/gemm/finish/found_rows.h"

namespace finegemm {

void cpu_found_rows(const Call& call, ThreadPool& pool, bool batch_invariant) {
    FoundRows rows(call);
    if (!call.options.config.empty())  // of a kernel with numbers
        static_cast<void>(arithmetic_of(problem_of(call, batch_invariant), call.options.config));
    cpu_gemm(rows.call(), pool, batch_invariant);
    rows.store();
}

}  // namespace finegemm
