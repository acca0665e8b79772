// The operations: check, then hand over to the backend of the device. Layer api.
#include <finegemm/gemm.h>
#include <finegemm/grouped.h>
#include <finegemm/k_grouped.h>
#include <finegemm/quantize.h>

#include "api/checks.h"
#include "api/context.h"

namespace finegemm {

void gemm(Context& context, const GemmArgs& args, const GemmOptions& options) {
    check_gemm(args, options);
    if (args.d.rows == 0 || args.d.cols == 0) return;
    ContextState& state = context.state();
    Backend& backend = state.backend(args.d.device);
    if (options.check_values.value_or(state.options.check_values)) backend.check_scales(args, options);
    backend.gemm(args, options);
}

void grouped_gemm(Context& context, const GroupedGemmArgs& args, const GemmOptions& options) {
    check_grouped(args, options);
    if (args.d.matrix.rows == 0 || args.d.matrix.cols == 0) return;
    ContextState& state = context.state();
    Backend& backend = state.backend(args.d.matrix.device);
    if (options.check_values.value_or(state.options.check_values)) backend.check_groups(args, options);
    backend.grouped_gemm(args, options);
}

void k_grouped_gemm(Context& context, const KGroupedGemmArgs& args, const GemmOptions& options) {
    check_k_grouped(args, options);
    if (args.d.matrix.rows == 0 || args.d.matrix.cols == 0) return;
    ContextState& state = context.state();
    Backend& backend = state.backend(args.d.matrix.device);
    if (options.check_values.value_or(state.options.check_values)) backend.check_k_groups(args, options);
    backend.k_grouped_gemm(args, options);
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
