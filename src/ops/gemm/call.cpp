// Calls of the public functions in one form. Layer engine.
#include "ops/gemm/call.h"

namespace finegemm {

namespace {

constexpr float kOne = 1;

int64_t scale_blocks(int64_t extent) { return (extent + kScaleBlock - 1) / kScaleBlock; }

/// One column of scales, for all of K, and one scale, for the matrix, as what they stand for: strides of 0 repeat them.
/// `rows`: of the scales if there is one for the matrix.
ConstStack repeated(ConstStack scales, const ConstMatrix& of, int64_t rows) {
    ConstMatrix& s = scales.matrix;
    if (s.rows != of.rows && s.rows != 1) return scales;
    const int64_t cols = scale_blocks(of.cols);
    if (cols != 1) s.cols = cols, s.col_stride = 0;
    if (s.rows == 1 && rows != 1) s.rows = rows, s.row_stride = 0;
    return scales;
}

/// The scales of an operand as a call has them: those that were passed, or 1 for an operand that takes none. `rows`: as
/// many scales as there are for a column of blocks.
ConstStack scales_of(const ConstStack& scales, const ConstStack& of, int64_t rows) {
    const ConstMatrix& s = scales.matrix;
    if (s.cols == 1 && of.matrix.cols > 0 && !are(is_unscaled, of.matrix.dtype) && !is_mx(s))
        return repeated(scales, of.matrix, rows);
    const bool none = !s.data && s.rows == 0 && s.cols == 0;
    return none && are(is_unscaled, of.matrix.dtype) ? unit_scales(of) : scales;
}
ConstStack scales_of_rows(const ConstStack& scales, const ConstStack& of) {
    return scales_of(scales, of, of.matrix.rows);
}
ConstStack scales_of_blocks(const ConstStack& scales, const ConstStack& of) {
    return scales_of(scales, of, scale_blocks(of.matrix.rows));
}

}  // namespace

int64_t row_alignment(const Groups& groups) {
    const bool aligned = groups.form == GroupForm::Indices || groups.form == GroupForm::PrefixSums;
    return aligned ? groups.alignment : 1;
}

ConstStack unit_scales(const ConstStack& of) {
    const ConstMatrix& x = of.matrix;
    return {{&kOne, DType::F32, x.rows, scale_blocks(x.cols), 0, 0, x.device}, of.count, 0};
}

Call::Call(const GemmArgs& x, const GemmOptions& o)
    : a{x.a},
      sfa(scales_of_rows({x.sfa}, a)),
      b{x.b},
      sfb(scales_of_blocks({x.sfb}, b)),
      d{x.d},
      d_width(x.d.cols),
      options(o) {
    d.matrix.cols = plan::product_cols(o.epilogue, d_width);
}

Call::Call(const GroupedGemmArgs& x, const GemmOptions& o)
    : a(x.a),
      sfa(scales_of_rows(x.sfa, a)),
      b(x.b),
      sfb(scales_of_blocks(x.sfb, b)),
      d(x.d),
      d_width(x.d.matrix.cols),
      grouping(Grouping::Rows),
      groups(x.groups),
      group_count(x.b.count),
      options(o) {
    d.matrix.cols = plan::product_cols(o.epilogue, d_width);
}

Call::Call(const KGroupedGemmArgs& x, const GemmOptions& o)
    : a{x.a},
      sfa(scales_of_rows({x.sfa}, a)),
      b{x.b},
      sfb(scales_of_rows({x.sfb}, b)),
      d(x.d),
      d_width(x.d.matrix.cols),
      grouping(Grouping::K),
      groups{.data = x.offsets, .size = x.groups + 1, .device = x.offsets_device},
      group_count(x.groups),
      layout(x.layout),
      options(o) {}

Call::Call(const SummedGemmArgs& x, const GemmOptions& o)
    : a(x.a),
      sfa(unit_scales(a)),
      b(x.b),
      sfb(unit_scales(b)),
      d{x.d},
      d_width(x.d.cols),
      grouping(Grouping::Sum),
      group_count(x.a.count),
      options(o) {}

Call::Call(const Call& x, const GemmOptions& o)
    : a(x.a),
      sfa(x.sfa),
      b(x.b),
      sfb(x.sfb),
      d(x.d),
      d_width(x.d_width),
      grouping(x.grouping),
      groups(x.groups),
      group_count(x.group_count),
      layout(x.layout),
      choices(x.choices),
      stored(x.stored),
      stores_sums(x.stores_sums),
      options(o) {}

plan::Problem problem_of(const Call& call, bool batch_invariant) {
    const GemmOptions& options = call.options;
    GemmShape shape{.m = call.rows() * (call.summed() ? 1 : call.a.count),
                    .n = call.d.matrix.cols,
                    .k = call.a.matrix.cols * (call.summed() ? call.a.count : 1),
                    .dtype = call.a.matrix.dtype,
                    .dtype_of_b = call.b.matrix.dtype,
                    .row_b_scales = call.row_b_scales() && !is_mx(call.sfb.matrix),
                    .a_mx = is_mx(call.sfa.matrix),
                    .b_mx = is_mx(call.sfb.matrix),
                    .out_dtype = call.d.matrix.dtype,
                    .accumulate = options.accumulate,
                    .num_sms = options.num_sms,
                    .batch_invariant = options.batch_invariant.value_or(batch_invariant),
                    .a_mn_major = major_of(call.a.matrix) == Major::MN,
                    .b_mn_major = major_of(call.b.matrix) == Major::MN};
    if (pairs_columns(call.finish())) shape.out_dtype.reset();  // D is of the one type that it may be
    for (const plan::FinishField& x : plan::kFinishFields) shape.*x.asked = call.finish() == x.finish;
    if (call.of_k()) shape.k_groups = call.group_count;
    if (call.summed()) shape.summed = call.group_count;
    if (call.of_rows()) {
        shape.groups = call.group_count;
        const bool whole = call.groups.form == GroupForm::Whole;
        shape.expected_m = whole ? call.a.matrix.rows : call.groups.expected_m;
        const int64_t alignment = row_alignment(call.groups);
        shape.alignment = alignment > 1 ? alignment : 0;
    }
    return plan::problem_of(shape);
}

}  // namespace finegemm
