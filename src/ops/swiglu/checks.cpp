// Argument checks of SwiGLU with quantisation. Layer api.
#include "ops/swiglu/checks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "api/argument.h"
#include "ops/gemm/groups.h"
#include "plan/fields.h"

namespace finegemm {

namespace {

void check_operands(const Argument& x, const Argument& q) {
    if (x.x.dtype != DType::BF16 && x.x.dtype != DType::F32)
        reject("x", "has dtype {}, must be bf16 or f32; convert it", name_of(x.x.dtype));
    q.check_dtype(DType::E4M3, "pass memory of one byte for each pair of columns of x");
    x.check_extents();
    q.check_extents();
    if (x.x.cols % 32 != 0)
        reject("x", "has {} columns, must be a multiple of 32, half of them gates; pad both halves with zeros",
               x.x.cols);
    if (!q.has_shape(x.x.rows, x.x.cols / 2))
        reject("q", "has shape [{}, {}], but x has [{}, {}]; pass memory of shape [{}, {}]", q.x.rows, q.x.cols,
               x.x.rows, x.x.cols, x.x.rows, x.x.cols / 2);
}

void check_counts(const SwigluCall& call, const Argument& x, const Argument& q, const Argument& scales) {
    const int64_t most = call.stacked() ? plan::kMaxGroups : 1;
    if (x.count < 1 || x.count > most)
        reject("x", "has {} matrices, must have from 1 to {}; {}", x.count, most,
               call.stacked() ? "leave the call out, or split it" : "only masked and whole groups have a matrix each");
    for (const Argument& out : {q, scales})
        if (out.count != x.count) reject(out.name, "has {} matrices, but x has {}; pass as many", out.count, x.count);
}

/// How many numbers there are.
void check_size(const SwigluCall& call, int64_t least, int64_t most, const char* meaning) {
    const Groups& groups = call.groups;
    if (groups.size < least || groups.size > most)
        reject("groups", "has {} {}, must have {}{} ({}); pass as many", groups.size, name_of(groups.form), least,
               most > least ? fmt::format(" to {}", most) : "", meaning);
}

void check_groups(const SwigluCall& call, const Argument& q, const Argument& scales) {
    const Groups& groups = call.groups;
    switch (groups.form) {
        case GroupForm::Offsets:
            check_size(call, 2, plan::kMaxGroups + 1, "the begin of each group and the end of the last one");
            break;
        case GroupForm::Indices: check_size(call, q.x.rows, q.x.rows, "one for each row of x"); break;
        case GroupForm::PrefixSums: check_size(call, 1, plan::kMaxGroups, "the end of each group"); break;
        case GroupForm::Masked: check_size(call, q.count, q.count, "the number of rows of each group"); break;
        case GroupForm::Whole: return check_size(call, 0, 0, "all rows are used");
    }
    if (groups.form == GroupForm::PrefixSums) plan::check_alignment(groups.alignment, 1, name_of(groups.form));
    for (const Argument& out : {q, scales})
        check_numbers({"groups", groups.data, groups.size, groups.device}, q.x.device, out);
}

void check_weights(const Argument& weights, const Argument& q, const Argument& scales) {
    weights.check_dtype(DType::F32, "convert it");
    weights.check_extents();
    if (!weights.has_shape(q.count, q.x.rows))
        reject("weights", "has shape [{}, {}], must be [{}, {}] (one for each row of q); pass as many", weights.x.rows,
               weights.x.cols, q.count, q.x.rows);
    weights.check_device(q.x.device, "x");
    weights.check_pointer(std::min<int64_t>(alignment_on(q.x.device), alignof(float)));
    weights.check_steps_not_negative();
    weights.check_span();
    for (const Argument& out : {q, scales}) weights.check_apart_from(out);
}

}  // namespace

void check_activation(float gate_limit, float gate_alpha, float up_offset) {
    if (!std::isfinite(gate_limit) || gate_limit < 0)
        reject("gate_limit", "is {}, must be above 0, or 0 for none; pass that of the model", gate_limit);
    if (!std::isfinite(gate_alpha) || gate_alpha <= 0)
        reject("gate_alpha", "is {}, must be above 0; pass 1 for the usual sigmoid", gate_alpha);
    if (!std::isfinite(up_offset)) reject("up_offset", "is {}, must be finite; pass 0 for none", up_offset);
}

void check_swiglu(const SwigluCall& call) {
    const ConstMatrix q_matrix = call.q.matrix, s_matrix = call.scales.matrix;
    const Argument x{"x", call.x.matrix, call.x.count, call.x.stride}, q{"q", q_matrix, call.q.count, call.q.stride},
        scales{"scales", s_matrix, call.scales.count, call.scales.stride};
    if (name_of(call.groups.form).empty())
        reject("groups",
               "has form {}, must be 1 (offsets), 2 (indices), 3 (prefix_sums), 4 (masks) or 5 (whole); pass one of "
               "them",
               static_cast<int32_t>(call.groups.form));
    const SwigluOptions& o = call.options;
    check_activation(o.gate_limit, o.gate_alpha, o.up_offset);
    plan::check_num_sms(o.num_sms);
    check_operands(x, q);
    check_counts(call, x, q, scales);
    check_scales(scales, scales_of_rows(q_matrix, "one for each row and 128 columns of q"));
    scales.check_elements_apart();

    const int64_t alignment = alignment_on(x.x.device), of_floats = std::min<int64_t>(alignment, alignof(float));
    for (const auto& [argument, unit] : {std::pair(x, alignment), {q, alignment}, {scales, of_floats}}) {
        argument.check_device(x.x.device, "x");
        argument.check_pointer(unit);
    }
    x.check_rows(alignment);
    q.check_rows(alignment);
    q.check_matrices_apart();
    for (const Argument& out : {q, scales}) x.check_apart_from(out);
    q.check_apart_from(scales);
    if (call.has_weights()) check_weights({"weights", call.weights}, q, scales);
    check_groups(call, q, scales);
}

}  // namespace finegemm
