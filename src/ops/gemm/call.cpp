// Calls of the public functions in one form. Layer engine.
#include "ops/gemm/call.h"

namespace finegemm {

Call::Call(const GemmArgs& x, const GemmOptions& o) : a{x.a}, sfa{x.sfa}, b{x.b}, sfb{x.sfb}, d{x.d}, options(o) {}

Call::Call(const GroupedGemmArgs& x, const GemmOptions& o)
    : a(x.a),
      sfa(x.sfa),
      b(x.b),
      sfb(x.sfb),
      d(x.d),
      grouping(Grouping::Rows),
      groups(x.groups),
      group_count(x.b.count),
      options(o) {}

Call::Call(const KGroupedGemmArgs& x, const GemmOptions& o)
    : a{x.a},
      sfa{x.sfa},
      b{x.b},
      sfb{x.sfb},
      d(x.d),
      grouping(Grouping::K),
      groups{.data = x.offsets, .size = x.groups + 1, .device = x.offsets_device},
      group_count(x.groups),
      layout(x.layout),
      options(o) {}

plan::Problem problem_of(const Call& call, bool batch_invariant) {
    const GemmOptions& options = call.options;
    GemmShape shape{.m = call.a.matrix.rows * call.a.count,
                    .n = call.d.matrix.cols,
                    .k = call.a.matrix.cols,
                    .row_b_scales = call.row_b_scales(),
                    .out_dtype = call.d.matrix.dtype,
                    .accumulate = options.accumulate,
                    .num_sms = options.num_sms,
                    .batch_invariant = options.batch_invariant.value_or(batch_invariant)};
    if (call.of_k()) shape.k_groups = call.group_count;
    if (call.of_rows()) {
        shape.groups = call.group_count;
        shape.expected_m = call.groups.expected_m;
        shape.alignment = call.groups.form == GroupForm::Indices ? call.groups.alignment : 0;
    }
    return plan::problem_of(shape);
}

}  // namespace finegemm
