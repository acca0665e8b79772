// Argument checks of the product before a norm. Layer api.
#include "ops/prenorm/checks.h"

#include <algorithm>

#include "api/argument.h"
#include "plan/elements.h"
#include "plan/fields.h"

namespace finegemm {

namespace {

constexpr int64_t kBlock = 64;  // of K
constexpr int64_t kMostSlices = 1024;

void check_operands(const Argument& a, const Argument& b, int64_t slices) {
    a.check_dtype(DType::BF16, "convert it");
    b.check_dtype(DType::F32, "convert it");
    a.check_extents();
    b.check_extents();
    if (b.x.cols != a.x.cols)
        reject("b", "has {} columns, but a has K = {}; a is [M, K], b is [N, K]", b.x.cols, a.x.cols);
    if (a.x.cols == 0 || a.x.cols % kBlock != 0)
        reject("a", "has K = {} columns, must be a multiple of {} from {} on; pad a and b with zeros", a.x.cols, kBlock,
               kBlock);
    if (b.x.rows < 8 || b.x.rows > 32 || b.x.rows % 8 != 0)
        reject("b", "has N = {} rows, must be 8, 16, 24 or 32; pad it with rows of zeros", b.x.rows);
    if (slices < 1 || slices > kMostSlices)
        reject("d", "has S = {} slices, must be from 1 to {}; pass as many as are added up", slices, kMostSlices);
}

void check_shape(const Argument& x, int64_t rows, int64_t cols, const char* meaning) {
    if (!x.has_shape(rows, cols))
        reject(x.name, "has shape [{}, {}], must be [{}, {}] ({}); pass memory of that shape", x.x.rows, x.x.cols, rows,
               cols, meaning);
}

}  // namespace

void check_prenorm(const PrenormCall& call) {
    const ConstMatrix matrix = call.d.matrix, row = call.sqrsum;
    const Argument a{"a", call.a}, b{"b", call.b}, d{"d", matrix, call.d.count, call.d.stride}, sums{"sqrsum", row};
    check_operands(a, b, d.count);
    d.check_dtype(DType::F32, "pass memory of f32");
    check_shape(d, a.x.rows, b.x.rows, "a row for each of a, a column for each row of b");
    sums.check_dtype(DType::F32, "pass memory of f32");
    check_shape(sums, d.count, a.x.rows, "a row for each slice of d, a column for each row of a");
    plan::check_num_sms(call.options.num_sms);

    const int64_t alignment = alignment_on(d.x.device);
    const int64_t of_floats = std::min<int64_t>(alignment, alignof(float));
    for (const auto& [x, unit] : {std::pair(d, of_floats), {a, alignment}, {b, alignment}, {sums, of_floats}}) {
        x.check_device(d.x.device, "d");
        x.check_pointer(unit);
        x.check_rows(unit);
    }
    d.check_matrices_apart();
    for (const Argument& output : {d, sums}) {
        a.check_apart_from(output);
        b.check_apart_from(output);
    }
    d.check_apart_from(sums);
}

void check_prenorm(const PrenormShape& shape) {
    for (const auto& [name, x] : {std::pair("m", shape.m), {"n", shape.n}, {"k", shape.k}})
        if (x < 1 || x > INT32_MAX) reject(name, "is {}, must be from 1 to {}; pass that of the call", x, INT32_MAX);
    const ConstMatrix a{nullptr, DType::BF16, shape.m, shape.k}, b{nullptr, DType::F32, shape.n, shape.k};
    check_operands({"a", a}, {"b", b}, shape.slices);
    plan::check_num_sms(shape.num_sms);
}

}  // namespace finegemm
