// Argument checks of quantisation. Layer api.
#include "ops/quantize/checks.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "api/argument.h"
#include "plan/fields.h"

namespace finegemm {

namespace {

void check_input(const Argument& in) {
    const ConstMatrix& x = in.x;
    if (x.dtype != DType::BF16 && x.dtype != DType::F16 && x.dtype != DType::F32)
        reject("x", "has dtype {}, must be bf16, f16 or f32; convert it", name_of(x.dtype));
    in.check_extents();
    if (x.cols % 16 != 0) reject("x", "has {} columns, must be a multiple of 16; pad it with zeros", x.cols);
}

void check_codes_type(const Argument& out) {
    if (!are(is_scaled, out.x.dtype))
        reject(out.name, "has dtype {}, must be {}; pass memory of one byte for each element of x",
               name_of(out.x.dtype), names_of(is_scaled));
}

void check_codes(const Argument& out, const ConstMatrix& x) {
    check_codes_type(out);
    if (!out.has_shape(x.rows, x.cols))
        reject(out.name, "has shape [{}, {}], but x has [{}, {}]; pass memory of the same shape", out.x.rows,
               out.x.cols, x.rows, x.cols);
}

/// What is written.
struct Quantized {
    Argument q, scales;
};

/// x and the outputs on one device, and nothing that is written in anything else.
void check_places(const Argument& in, std::span<const Quantized> outputs) {
    const Device& device = in.x.device;
    const int64_t alignment = alignment_on(device);
    in.check_device(device, "x");
    for (const Quantized& out : outputs)
        for (const Argument& x : {out.q, out.scales}) x.check_device(device, "x");
    in.check_pointer(alignment);
    for (const Quantized& out : outputs) out.q.check_pointer(alignment);
    for (const Quantized& out : outputs) out.scales.check_pointer(std::min<int64_t>(alignment, alignof(float)));
    in.check_rows(alignment);
    for (const Quantized& out : outputs) out.q.check_rows(alignment);
    for (size_t i = 0; i < outputs.size(); ++i) {
        for (const Argument& x : {outputs[i].q, outputs[i].scales}) in.check_apart_from(x);
        outputs[i].q.check_apart_from(outputs[i].scales);
        for (size_t j = 0; j < i; ++j)
            for (const Argument& before : {outputs[j].q, outputs[j].scales})
                for (const Argument& x : {outputs[i].q, outputs[i].scales}) before.check_apart_from(x);
    }
}

/// Codes of columns, which are [K, C].
void check_column_codes(const Argument& out, const QuantizeColumnsCall& call) {
    const int64_t m = call.x.rows, k = call.x.cols;
    check_codes_type(out);
    out.check_extents();
    if (out.x.rows != k) reject("q", "has {} rows, but x has {} columns; q is [K, C], x is [M, K]", out.x.rows, k);
    const int64_t unit = call.has_groups() ? kScaleBlock : 16;
    const int64_t least = call.has_groups() ? (m + (kScaleBlock - 1) * (call.offsets.cols - 1)) / unit * unit : m;
    if (out.x.cols % unit != 0 || out.x.cols < least)
        reject("q", "has {} columns, must be a multiple of {} from {} on ({}); pass memory of that shape", out.x.cols,
               unit, (least + unit - 1) / unit * unit,
               call.has_groups() ? "as each group of rows of x begins at a multiple of 128" : "for all rows of x");
}

/// Two arguments of which none or both are given.
void check_both(const Argument& a, const Argument& b) {
    if (!a.x.data == !b.x.data) return;
    const auto& [given, missing] = a.x.data ? std::pair{a.name, b.name} : std::pair{b.name, a.name};
    reject(missing, "is null, but {} is given; pass both, or leave both out", given);
}

void check_group_numbers(const Argument& offsets) {
    offsets.check_extents();
    if (offsets.x.rows != 1 || offsets.x.cols < 2 || offsets.x.cols > plan::kMaxGroups + 1)
        reject("offsets",
               "has shape [{}, {}], must be [1, G + 1] for from 1 to {} groups; pass where each begins and "
               "where the last one ends",
               offsets.x.rows, offsets.x.cols, plan::kMaxGroups);
}

/// Offsets and beginnings of groups. `matrices`: of the call, x first.
void check_groups(const Argument& offsets, const Argument& begins, std::span<const Argument> matrices) {
    for (const Argument& numbers : {offsets, begins}) {
        numbers.check_dtype(DType::I32, "convert it");
        numbers.check_extents();
        if (!numbers.has_shape(1, offsets.x.cols))
            reject(numbers.name,
                   "has shape [{}, {}], must be [1, {}] (groups + 1, as offsets); pass memory of that shape",
                   numbers.x.rows, numbers.x.cols, offsets.x.cols);
        numbers.check_device(matrices.front().x.device, "x");
        numbers.check_pointer(alignof(int32_t));
        numbers.check_rows(1);
        for (const Argument& x : matrices) x.check_apart_from(numbers);
    }
    offsets.check_apart_from(begins);
}

}  // namespace

void check_quantize(const QuantizeCall& call) {
    const auto& [shape, x, q, scales, options] = call;
    const ConstMatrix q_view = q, scales_view = scales;
    const Argument in{"x", x};
    const Quantized out{{"q", q_view}, {"scales", scales_view}};
    check_input(in);
    check_codes(out.q, x);
    check_scales(out.scales, shape == ScaleShape::Rows ? scales_of_rows(x, "one for each row and 128 columns of x")
                                                       : scales_of_blocks(x, "one for each 128x128 block of x"));
    out.scales.check_elements_apart();
    check_places(in, {&out, 1});
}

void check_quantize(const QuantizeColumnsCall& call) {
    const ConstMatrix q = call.q, scales = call.scales, row_q = call.row_q, row_scales = call.row_scales;
    const ConstMatrix begins = call.begins;
    const Argument in{"x", call.x};
    const std::array<Quantized, 2> all = {
        {{{"q", q}, {"scales", scales}}, {{"row_q", row_q}, {"row_scales", row_scales}}}};
    const bool with_rows = call.row_q.data || call.row_scales.data;
    const std::span<const Quantized> outputs(all.data(), with_rows ? 2 : 1);
    check_input(in);
    check_both({"offsets", call.offsets}, {"begins", begins});
    check_both(all[1].q, all[1].scales);
    if (call.has_groups()) check_group_numbers({"offsets", call.offsets});
    check_column_codes(outputs[0].q, call);
    check_scales(outputs[0].scales, scales_of_rows(q, "one for each row and 128 columns of q"));
    if (with_rows) {
        outputs[1].q.check_dtype(q.dtype, "rows and columns have codes of one type");
        check_codes(outputs[1].q, call.x);
        check_scales(outputs[1].scales, scales_of_rows(call.x, "one for each row and 128 columns of x"));
    }
    for (const Quantized& out : outputs) out.scales.check_elements_apart();
    check_places(in, outputs);
    if (!call.has_groups()) return;
    const std::array<Argument, 5> matrices = {in, all[0].q, all[0].scales, all[1].q, all[1].scales};
    check_groups({"offsets", call.offsets}, {"begins", begins}, std::span(matrices).first(1 + 2 * outputs.size()));
}

}  // namespace finegemm
