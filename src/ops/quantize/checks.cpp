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

void check_codes(const Argument& out, const Argument& in) {
    check_codes_type(out);
    if (!out.has_shape(in.x.rows, in.x.cols))
        reject(out.name, "has shape [{}, {}], but {} has [{}, {}]; pass memory of the same shape", out.x.rows,
               out.x.cols, in.name, in.x.rows, in.x.cols);
}

/// The input and the outputs on one device, and nothing that is written in anything else.
void check_places(const Argument& in, std::span<const Argument> outputs) {
    const Device& device = in.x.device;
    const int64_t alignment = alignment_on(device);
    const auto is_codes = [](const Argument& out) { return are(is_scaled, out.x.dtype); };
    in.check_device(device, in.name);
    for (const Argument& out : outputs) out.check_device(device, in.name);
    in.check_pointer(alignment);
    for (const Argument& out : outputs)
        out.check_pointer(is_codes(out) ? alignment : std::min<int64_t>(alignment, alignof(float)));
    in.check_rows(alignment);
    for (const Argument& out : outputs) {
        if (!is_codes(out)) continue;
        out.check_rows(alignment);
        out.check_matrices_apart();
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
        in.check_apart_from(outputs[i]);
        for (size_t j = 0; j < i; ++j) outputs[j].check_apart_from(outputs[i]);
    }
}

/// As many matrices in each stack.
void check_counts(const Argument& in, std::span<const Argument> outputs) {
    constexpr int64_t kMost = INT32_MAX;
    if (in.count < 1 || in.count > kMost)
        reject(in.name, "has {} matrices, must have from 1 to {}; leave the call out, or split it", in.count, kMost);
    for (const Argument& out : outputs)
        if (out.count != in.count)
            reject(out.name, "has {} matrices, but {} has {}; pass as many", out.count, in.name, in.count);
}

/// Codes of x once more, [K, N].
void check_transposed(const Argument& out, const ConstMatrix& x, DType codes) {
    out.check_dtype(codes, "codes have one type in both orders");
    if (!out.has_shape(x.cols, x.rows))
        reject(out.name, "has shape [{}, {}], but x has [{}, {}]; pass memory of shape [{}, {}]", out.x.rows,
               out.x.cols, x.rows, x.cols, x.cols, x.rows);
    if (x.rows % 16 != 0)
        reject("x", "has {} rows, must be a multiple of 16 where codes are transposed; pad it with zeros", x.rows);
}

/// Codes of columns, which are [K, C].
void check_column_codes(const Argument& out, const QuantizeColumnsCall& call) {
    const int64_t m = call.x.rows, k = call.x.cols;
    check_codes_type(out);
    if (out.x.dtype == DType::I8)
        reject("q", "has dtype i8, must be e4m3 or e5m2, which gradients have; quantise the transpose by rows");
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

/// Four exponents to a word.
void check_words(const Argument& words, const Wanted& wanted) {
    words.check_dtype(DType::UE8M0x4, "pack four exponents into an int32");
    words.check_extents();
    if (!words.has_shape(wanted.rows, wanted.cols))
        reject(words.name, "has shape [{}, {}], must be [{}, {}] ({}); pack them so", words.x.rows, words.x.cols,
               wanted.rows, wanted.cols, wanted.meaning);
    words.check_steps_not_negative();
}

/// One number that is added to.
void check_counter(const Argument& out) {
    out.check_dtype(DType::I32, "pass memory of i32");
    if (!out.has_shape(1, 1))
        reject(out.name, "has shape [{}, {}], must be [1, 1]; pass memory of one number", out.x.rows, out.x.cols);
}

Wanted wanted_scales(const QuantizeCall& call) {
    const ConstMatrix& x = call.x.matrix;
    switch (call.shape) {
        case ScaleShape::Blocks: return scales_of_blocks(x, "one for each 128x128 block of x");
        case ScaleShape::WholeRows: return {x.rows, 1, "one for each row of x", nullptr};
        default: return scales_of_rows(x, "one for each row and 128 columns of x; or of one column, for each row");
    }
}

}  // namespace

void check_quantize(const QuantizeCall& call) {
    const ConstMatrix &x = call.x.matrix, q = call.q.matrix, scales = call.scales.matrix;
    const ConstMatrix transposed = call.transposed.matrix;
    const Argument in{"x", x, call.x.count, call.x.stride};
    const std::array<Argument, 3> all = {{{"q", q, call.q.count, call.q.stride},
                                          {"scales", scales, call.scales.count, call.scales.stride},
                                          {"transposed", transposed, call.transposed.count, call.transposed.stride}}};
    const std::span<const Argument> outputs(all.data(), call.has_transposed() ? 3 : 2);
    check_input(in);
    check_counts(in, outputs);
    check_codes(outputs[0], in);
    check_scales(outputs[1], wanted_scales(call));
    outputs[1].check_elements_apart();
    if (call.has_transposed()) check_transposed(outputs[2], x, q.dtype);
    check_places(in, outputs);
}

void check_quantize(const QuantizeColumnsCall& call) {
    const ConstMatrix q = call.q, scales = call.scales, row_q = call.row_q, row_scales = call.row_scales;
    const ConstMatrix begins = call.begins;
    // x first, then what is written.
    const std::array<Argument, 5> all = {
        {{"x", call.x}, {"q", q}, {"scales", scales}, {"row_q", row_q}, {"row_scales", row_scales}}};
    const bool with_rows = call.row_q.data || call.row_scales.data;
    const std::span<const Argument> given(all.data(), with_rows ? 5 : 3);
    check_input(given[0]);
    check_both({"offsets", call.offsets}, {"begins", begins});
    check_both(all[3], all[4]);
    if (call.has_groups()) check_group_numbers({"offsets", call.offsets});
    check_column_codes(given[1], call);
    check_scales(given[2], scales_of_rows(q, "one for each row and 128 columns of q"));
    if (with_rows) {
        given[3].check_dtype(q.dtype, "rows and columns have codes of one type");
        check_codes(given[3], given[0]);
        check_scales(given[4], scales_of_rows(call.x, "one for each row and 128 columns of x"));
    }
    for (size_t i = 2; i < given.size(); i += 2) given[i].check_elements_apart();
    check_places(given[0], given.subspan(1));
    if (call.has_groups()) check_groups({"offsets", call.offsets}, {"begins", begins}, given);
}

void check_reencode(const ReencodeCall& call) {
    const ConstMatrix &x = call.codes.matrix, q = call.q.matrix, scales = call.scales.matrix, changed = call.changed;
    const Argument in{"codes", x, call.codes.count, call.codes.stride};
    const Argument words{"words", call.words.matrix, call.words.count, call.words.stride};
    const std::array<Argument, 3> all = {{{"q", q, call.q.count, call.q.stride},
                                          {"scales", scales, call.scales.count, call.scales.stride},
                                          {"changed", changed}}};
    const std::span<const Argument> outputs(all.data(), changed.data ? 3 : 2);
    in.check_dtype(DType::E4M3, "MXFP8 has no other codes");
    in.check_extents();
    if (x.cols % 16 != 0) reject("codes", "has {} columns, must be a multiple of 16; pad it with zeros", x.cols);
    check_words(words, scales_of_rows(x, "four exponents for each row and 128 columns of codes"));
    check_counts(in, std::array{words, all[0], all[1]});
    all[0].check_dtype(DType::E4M3, "codes keep their type");
    check_codes(all[0], in);
    check_scales(all[1], call.has_blocks()
                             ? scales_of_blocks(x, "one for each 128x128 block of codes, or for each row of one")
                             : scales_of_rows(x, "one for each row and 128 columns of codes"));
    all[1].check_elements_apart();
    if (changed.data) check_counter(all[2]);
    words.check_device(x.device, "codes");
    words.check_pointer(std::min<int64_t>(alignment_on(x.device), alignof(uint32_t)));
    check_places(in, outputs);
    for (const Argument& out : outputs) words.check_apart_from(out);
}

}  // namespace finegemm
