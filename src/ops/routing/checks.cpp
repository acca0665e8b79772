// Argument checks of routing. Layer api.
#include "ops/routing/checks.h"

#include <algorithm>
#include <bit>
#include <span>
#include <vector>

#include "api/argument.h"
#include "plan/elements.h"
#include "plan/fields.h"

namespace finegemm {

namespace {

constexpr int64_t kMostOfAll = int64_t{1} << 23;  // choices

void check_bound(const char* name, int64_t x, int64_t most) {
    if (x < 1 || x > most) reject(name, "is {}, must be from 1 to {}; pass that of the layer", x, most);
}

void check_form(const RouteCall& call) {
    const GroupForm form = call.form;
    if (form != GroupForm::Offsets && form != GroupForm::Indices && form != GroupForm::PrefixSums &&
        form != GroupForm::Masked)
        reject("form", "is {}, must be 1 (offsets), 2 (indices), 3 (prefix_sums) or 4 (masked); pass one of them",
               static_cast<int32_t>(form));
    check_bound("experts", call.experts, kMostExperts);
    check_bound("rows", call.rows, form == GroupForm::Masked ? INT32_MAX / call.experts : INT32_MAX);
    if (form == GroupForm::Offsets || form == GroupForm::Masked) return;
    constexpr int64_t kMost = int64_t{1} << 20;
    const int64_t least = form == GroupForm::Indices ? plan::kMinIndexAlignment : 1;
    if (call.alignment < least || call.alignment > kMost || !std::has_single_bit(static_cast<uint64_t>(call.alignment)))
        reject("alignment", "is {}, must be a power of two from {} to {}; 128 is usual", call.alignment, least, kMost);
}

/// Choices of tokens: ids, rows or weights. `wanted`: tokens, and columns where these are known.
void check_choices(const Argument& x) {
    x.check_extents();
    if (x.x.cols < 1 || x.x.cols > kMostChoices)
        reject(x.name, "has {} columns, must have from 1 to {}, a token's choices; pass [T, k]", x.x.cols,
               kMostChoices);
    if (x.x.rows * x.x.cols > kMostOfAll)
        reject(x.name, "has shape [{}, {}], which are {} choices, must be at most 2^23; split the tokens", x.x.rows,
               x.x.cols, x.x.rows * x.x.cols);
}

void check_shape(const Argument& x, int64_t rows, int64_t cols, const char* meaning) {
    x.check_extents();
    if (!x.has_shape(rows, cols))
        reject(x.name, "has shape [{}, {}], must be [{}, {}] ({}); pass memory of that shape", x.x.rows, x.x.cols, rows,
               cols, meaning);
}

/// A place for numbers, or the numbers.
void check_numbers_at(const Argument& x, int64_t bytes) {
    x.check_pointer(std::min(alignment_on(x.x.device), bytes));
    x.check_rows(1);
}

/// All on the device of the first one, and what is written apart from all else.
void check_apart(std::span<const Argument> read, std::span<const Argument> written) {
    const Argument& first = read.front();
    for (const auto all : {read, written})
        for (const Argument& x : all) x.check_device(first.x.device, first.name);
    for (size_t i = 0; i < written.size(); ++i) {
        for (const Argument& x : read) x.check_apart_from(written[i]);
        for (size_t j = 0; j < i; ++j) written[j].check_apart_from(written[i]);
    }
}

/// Rows of tokens or of experts.
void check_wide_rows(const Argument& x) {
    x.check_extents();
    const int64_t unit = 16 / size_of(x.x.dtype);
    if (x.x.cols % unit != 0)
        reject(x.name, "has {} columns, must be a multiple of {}, 16 bytes; pad it with zeros", x.x.cols, unit);
}

void check_rows_of_experts(const Argument& x) {
    if (x.count < 1 || x.x.rows < 1 || x.x.rows > INT32_MAX / x.count)
        reject(x.name, "has {} matrices of {} rows, must have from 1 to 2^31 - 1 rows; pass memory for the rows",
               x.count, x.x.rows);
}

void check_memory(const Argument& x) {
    x.check_pointer(alignment_on(x.x.device));
    x.check_rows(alignment_on(x.x.device));
    x.check_matrices_apart();
}

/// Chunks of rows are counted by 31 bits.
void check_tokens(const Argument& x) {
    if (x.x.rows > 0 && x.x.cols * size_of(x.x.dtype) / 512 + 1 > INT32_MAX / x.x.rows)
        reject(x.name, "has shape [{}, {}], which is too large for one call; split the tokens", x.x.rows, x.x.cols);
}

void check_inverse(const Argument& inverse, int64_t tokens, const char* of) {
    inverse.check_dtype(DType::I32, "pass what route writes");
    check_choices(inverse);
    if (inverse.x.rows != tokens)
        reject("inverse", "has {} rows, but {} has {}; pass that of these tokens", inverse.x.rows, of, tokens);
    check_numbers_at(inverse, 4);
}

bool is_left_out(const Argument& x) { return !x.x.data && x.x.rows == 0 && x.x.cols == 0; }

/// Types of x and q, and who has scales.
void check_elements(const PermuteCall& call, const Argument& x, const Argument& q) {
    if (!are(is_operand, x.x.dtype))
        reject("x", "has dtype {}, must be {}; convert it", name_of(x.x.dtype), names_of(is_operand));
    if (q.x.dtype != x.x.dtype && !call.quantizes())
        reject("q", "has dtype {}, but x is {}: q is of the same, or e4m3 of bf16; pass memory of one of them",
               name_of(q.x.dtype), name_of(x.x.dtype));
}

void check_scales_of(const PermuteCall& call, const Argument& x, const Argument& x_scales, const Argument& scales) {
    const bool scaled = are(is_scaled, x.x.dtype), written = scaled || call.quantizes();
    if (!scaled && !is_left_out(x_scales))
        reject("x_scales", "is given, but x is {}, which has no scales; leave it out", name_of(x.x.dtype));
    if (!written && !is_left_out(scales))
        reject("scales", "is given, but q is {}, which has no scales; leave it out", name_of(x.x.dtype));
    if (scaled && is_left_out(x_scales))
        reject("x_scales", "is left out, but x is {}, which has scales; pass those that it was quantised with",
               name_of(x.x.dtype));
    if (written && is_left_out(scales))
        reject("scales", "is left out, but q is {}, which has scales; pass memory for them",
               name_of(call.q.matrix.dtype));
    if (scaled) check_scales(x_scales, scales_of_rows(x.x, "one for each row and 128 columns of x", "quantize_rows"));
    if (!written) return;
    if (scales.count != call.q.count)
        reject("scales", "has {} matrices, but q has {}; pass as many", scales.count, call.q.count);
    check_scales(scales, scales_of_rows(call.q.matrix, "one for each row and 128 columns of q"));
    scales.check_elements_apart();
    for (const Argument& s : {scales, x_scales})
        s.check_pointer(std::min<int64_t>(alignment_on(s.x.device), alignof(float)));
}

}  // namespace

void check_routing(const RouteCall& call) {
    const ConstMatrix rows = call.inverse, groups = call.numbers, order = call.permutation;
    const Argument ids{"ids", call.ids}, inverse{"inverse", rows}, numbers{"numbers", groups},
        permutation{"permutation", order};
    if (ids.x.dtype != DType::I32 && ids.x.dtype != DType::I64)
        reject("ids", "has dtype {}, must be i32 or i64; convert it", name_of(ids.x.dtype));
    check_choices(ids);
    check_form(call);
    const bool masked = call.form == GroupForm::Masked;
    const auto shape = [&](const Argument& x, int64_t r, int64_t c, const char* meaning) {
        x.check_dtype(DType::I32, "pass memory of i32");
        check_shape(x, r, c, meaning);
    };
    shape(inverse, ids.x.rows, ids.x.cols, "as ids");
    const int64_t count = call.form == GroupForm::Indices   ? call.rows
                          : call.form == GroupForm::Offsets ? call.experts + 1
                                                            : call.experts;
    shape(numbers, 1, count, "the numbers of groups in this form");
    std::vector<Argument> written = {inverse, numbers};
    if (!is_left_out(permutation)) {
        shape(permutation, masked ? call.experts : 1, call.rows, "the rows that there are");
        if (masked && permutation.x.rows > 1 && permutation.x.row_stride != call.rows)
            reject("permutation", "has row stride {}, must be {} (contiguous); make it contiguous",
                   permutation.x.row_stride, call.rows);
        written.push_back(permutation);
    }
    check_numbers_at(ids, size_of(ids.x.dtype));
    for (const Argument& x : written) check_numbers_at(x, 4);
    check_apart(std::span(&ids, 1), written);
}

void check_routing(const PermuteCall& call) {
    const ConstMatrix codes = call.q.matrix, of_codes = call.scales.matrix;
    const Argument x{"x", call.x}, x_scales{"x_scales", call.x_scales}, inverse{"inverse", call.inverse};
    const Argument q{"q", codes, call.q.count, call.q.stride},
        scales{"scales", of_codes, call.scales.count, call.scales.stride};
    check_elements(call, x, q);
    check_wide_rows(x);
    check_wide_rows(q);
    if (q.x.cols != x.x.cols)
        reject("q", "has {} columns, but x has {}; pass memory for rows of x", q.x.cols, x.x.cols);
    check_rows_of_experts(q);
    check_tokens(x);
    check_inverse(inverse, x.x.rows, "x");
    check_scales_of(call, x, x_scales, scales);
    plan::check_num_sms(call.options.num_sms);
    check_memory(x);
    check_memory(q);
    std::vector<Argument> read = {x, inverse}, written = {q};
    if (!is_left_out(x_scales)) read.push_back(x_scales);
    if (!is_left_out(scales)) written.push_back(scales);
    check_apart(read, written);
}

void check_routing(const CombineCall& call) {
    const ConstMatrix result = call.out;
    const Argument y{"y", call.y.matrix, call.y.count, call.y.stride}, inverse{"inverse", call.inverse},
        weights{"weights", call.weights}, out{"out", result};
    for (const Argument& x : {y, out}) {
        x.check_dtype(DType::BF16, "convert it");
        check_wide_rows(x);
    }
    if (out.x.cols != y.x.cols)
        reject("out", "has {} columns, but y has {}; pass memory for sums of rows of y", out.x.cols, y.x.cols);
    check_rows_of_experts(y);
    check_tokens(out);
    check_inverse(inverse, out.x.rows, "out");
    std::vector<Argument> read = {y, inverse};
    if (!is_left_out(weights)) {
        weights.check_dtype(DType::F32, "convert it");
        check_shape(weights, inverse.x.rows, inverse.x.cols, "as inverse");
        check_numbers_at(weights, 4);
        read.push_back(weights);
    }
    plan::check_num_sms(call.options.num_sms);
    check_memory(y);
    check_memory(out);
    check_apart(read, std::span(&out, 1));
}

}  // namespace finegemm
