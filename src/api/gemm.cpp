// The operations: check, then hand over to the backend of the device. Layer api.
#include <finegemm/gemm.h>
#include <finegemm/grouped.h>
#include <finegemm/k_grouped.h>
#include <finegemm/quantize.h>

#include "api/checks.h"
#include "api/context.h"

namespace finegemm {

namespace {

/// One product of any kind: what is wrong with the arguments, with the values where that is asked for, then the rest.
template <auto Check, auto CheckValues, auto Compute, typename Args>
void multiply(Context& context, const Args& args, const Matrix& d, const GemmOptions& options) {
    Check(args, options);
    if (d.rows == 0 || d.cols == 0) return;
    ContextState& state = context.state();
    Backend& backend = state.backend(d.device);
    if (options.check_values.value_or(state.options.check_values)) (backend.*CheckValues)(args, options);
    (backend.*Compute)(args, options);
}

}  // namespace

void gemm(Context& context, const GemmArgs& args, const GemmOptions& options) {
    multiply<check_gemm, &Backend::check_scales, &Backend::gemm>(context, args, args.d, options);
}

void grouped_gemm(Context& context, const GroupedGemmArgs& args, const GemmOptions& options) {
    multiply<check_grouped, &Backend::check_groups, &Backend::grouped_gemm>(context, args, args.d.matrix, options);
}

void k_grouped_gemm(Context& context, const KGroupedGemmArgs& args, const GemmOptions& options) {
    multiply<check_k_grouped, &Backend::check_k_groups, &Backend::k_grouped_gemm>(context, args, args.d.matrix,
                                                                                  options);
}

namespace {

void quantize(Context& context, ScaleShape shape, const ConstMatrix& x, const Matrix& q, const Matrix& scales,
              const QuantizeOptions& options) {
    check_quantize(shape, x, q, scales);
    if (x.rows == 0 || x.cols == 0) return;
    context.state().backend(x.device).quantize(shape, x, q, scales, options);
}

}  // namespace

void quantize_rows(Context& context, const ConstMatrix& x, const Matrix& q, const Matrix& scales,
                   const QuantizeOptions& options) {
    quantize(context, ScaleShape::Rows, x, q, scales, options);
}

void quantize_blocks(Context& context, const ConstMatrix& x, const Matrix& q, const Matrix& scales,
                     const QuantizeOptions& options) {
    quantize(context, ScaleShape::Blocks, x, q, scales, options);
}

}  // namespace finegemm
