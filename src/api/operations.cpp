// The operations: check, then hand over to the backend of the device. Layer api.
#include <finegemm/gemm.h>
#include <finegemm/quantize.h>
#include <finegemm/scale_layout.h>

#include "api/context.h"
#include "api/multiply.h"
#include "ops/gemm/checks.h"
#include "ops/quantize/checks.h"
#include "ops/scale_layout/checks.h"

namespace finegemm {

void multiply(Context& context, const Call& call) {
    check_gemm(call);
    if (call.d.matrix.rows == 0 || call.d.matrix.cols == 0) return;
    ContextState& state = context.state();
    Backend& backend = state.backend(call.device());
    if (call.options.check_values.value_or(state.options.check_values)) backend.check_values(call);
    backend.gemm(call);
}

void gemm(Context& context, const GemmArgs& args, const GemmOptions& options) { multiply(context, {args, options}); }

void grouped_gemm(Context& context, const GroupedGemmArgs& args, const GemmOptions& options) {
    multiply(context, {args, options});
}

void k_grouped_gemm(Context& context, const KGroupedGemmArgs& args, const GemmOptions& options) {
    multiply(context, {args, options});
}

namespace {

void quantize(Context& context, const QuantizeCall& call) {
    check_quantize(call);
    if (call.x.rows == 0 || call.x.cols == 0) return;
    context.state().backend(call.x.device).run(call);
}

}  // namespace

void scale_layout(Context& context, const ScaleLayoutArgs& args, const ScaleLayoutOptions& options) {
    const ScaleLayoutCall call{args.sf, args.out, args.groups, options};
    check_scale_layout(call);
    const Matrix& out = call.out.matrix;
    if (out.rows == 0 || out.cols == 0) return;
    context.state().backend(out.device).run(call);
}

void quantize_rows(Context& context, const ConstMatrix& x, const Matrix& q, const Matrix& scales,
                   const QuantizeOptions& options) {
    quantize(context, {ScaleShape::Rows, x, q, scales, options});
}

void quantize_blocks(Context& context, const ConstMatrix& x, const Matrix& q, const Matrix& scales,
                     const QuantizeOptions& options) {
    quantize(context, {ScaleShape::Blocks, x, q, scales, options});
}

}  // namespace finegemm
