// Checks of what becomes of a product. Layer api.
#include "api/epilogue.h"

#include <algorithm>
#include <type_traits>

#include "ops/gemm/finish/finishes.h"
#include "plan/fields.h"

namespace finegemm {

namespace {

/// The finish of the first argument that is given, and an argument of another one; null where there is none.
struct Given {
    Finish finish = Finish::None;
    const char *first = nullptr, *other = nullptr;
};
Given given_in(const Epilogue& epilogue) {
    Given given;
    plan::given_arguments(
        [&](const plan::EpilogueArgument& x, const auto&) {
            if (!given.first) given = {x.finish, x.name};
            else if (x.finish != given.finish && !given.other) given.other = x.name;
        },
        epilogue);
    return given;
}

/// Products that have no such kernels.
void check_takes_epilogue(const Call& call, const Given& given) {
    const char* const name = given.first;
    const FinishFacts facts = facts_of(given.finish);
    if (call.of_k())
        reject(name,
               "is given, but d of groups of K is the product alone, or added to; leave it out, or set accumulate");
    if (call.summed()) reject(name, "is given, but d of a sum over stacks is the sum alone, or added to; leave it out");
    if (!plan::takers_of(given.finish).have(call.grouping))
        reject(name, "is given, but not in groups of rows can d have it; leave it out");
    if (call.row_b_scales())
        reject(name,
               "is given, but where each row of b has scales d is the product alone; leave it out, or pass scales for "
               "128x128 blocks of b (quantize_blocks makes them)");
    if (call.a.matrix.cols == 0)
        reject("a", "has K = 0 columns, must have some where {} is given; there is no product to add to", name);
    if (given.other) reject(given.other, "is given, but so is {}; leave one of them out", name);
    const ElementType* type = find_type(call.a.matrix.dtype);
    if (!type || facts.any_result) return;
    const DType usual = pairs_columns(given.finish) ? DType::E4M3 : type->results[0];
    if (call.d.matrix.dtype != usual)
        reject("d", "has dtype {}, must be {} where {} is given; pass memory of that type",
               name_of(call.d.matrix.dtype), name_of(usual), name);
}

/// A matrix that is as D is.
void check_like_d(const Argument& c, const Argument& d) {
    c.check_dtype(d.x.dtype, "convert it to the type of d, or pass a d of its type");
    c.check_extents();
    if (!c.has_shape(d.x.rows, d.x.cols) || c.count != d.count)
        reject(c.name, "has shape [{}, {}] in {} matrices, must be [{}, {}] in {}, as d; pass it so", c.x.rows,
               c.x.cols, c.count, d.x.rows, d.x.cols, d.count);
    c.check_device(d.x.device, "d");
    c.check_pointer(alignment_on(d.x.device));
    c.check_rows(alignment_on(d.x.device));
    if (c.is_same_as(d)) return;
    if (c.overlaps(d))
        reject(c.name, "overlaps d, must be d itself, with its strides, or memory apart from it; copy it");
}

/// A number for each column of D.
void check_row(const Argument& row, const Argument& d) {
    row.check_dtype(DType::F32, "convert it, which loses nothing");
    row.check_extents();
    if (!row.has_shape(1, d.x.cols))
        reject(row.name, "has shape [{}, {}], must be [1, {}], a number for each column of d; pass as many", row.x.rows,
               row.x.cols, d.x.cols);
    row.check_device(d.x.device, "d");
    row.check_pointer(alignment_on(d.x.device));
    row.check_rows(1);
    row.check_apart_from(d);
}

/// Scales of D, which are written beside it.
void check_scales_of_d(const char* name, const Stack& scales, const Argument& d,
                       const std::array<Argument, 4>& inputs) {
    const ConstMatrix matrix = scales.matrix;
    const Argument s{name, matrix, scales.count, scales.stride};
    check_scales(s, scales_of_rows(d.x, "one for each row and 128 columns of d"));
    if (s.count != d.count)
        reject(s.name, "has {} matrices, must have {}, one for each of d; pass a stack", s.count, d.count);
    s.check_elements_apart();
    s.check_device(d.x.device, "d");
    s.check_pointer(std::min<int64_t>(alignment_on(d.x.device), alignof(float)));
    s.check_span();
    s.check_apart_from(d);
    for (const Argument& x : inputs) x.check_apart_from(s);
}

/// A number for each of `rows` rows of the product.
void check_row_numbers(const Argument& x, int64_t rows, const Argument& d, const Epilogue& epilogue) {
    x.check_dtype(DType::F32, "convert it, which loses nothing");
    x.check_extents();
    if (!x.has_shape(rows, 1) || x.count != d.count)
        reject(x.name, "has {} numbers in {} stacks, must have {} in {}, one for each row of d; pass as many",
               x.x.rows * x.x.cols, x.count, rows, d.count);
    x.check_steps_not_negative();
    x.check_device(d.x.device, "d");
    x.check_pointer(std::min<int64_t>(alignment_on(d.x.device), alignof(float)));
    x.check_span();
    x.check_apart_from(d);
    plan::arguments_of<Stack>(
        [&](const char* name, const Stack& s) {
            const ConstMatrix matrix = s.matrix;
            x.check_apart_from({name, matrix, s.count, s.stride});
        },
        epilogue);
}

/// The number of a row for each of `rows` rows of the product.
void check_row_indices(const Argument& x, int64_t rows, const Argument& d) {
    x.check_dtype(DType::I32, "convert it");
    x.check_extents();
    if (!x.has_shape(rows, 1))
        reject(x.name, "has shape [{}, {}], must be [{}, 1], a number for each row of the product; pass as many",
               x.x.rows, x.x.cols, rows);
    if (rows > 1 && x.x.row_stride != 1)
        reject(x.name, "has row stride {}, must be 1; make it contiguous", x.x.row_stride);
    check_numbers({x.name, static_cast<const int32_t*>(x.x.data), rows, x.x.device}, d.x.device, d);
}

/// Rows of D, where no numbers say which ones are written.
void check_rows_of_d(const Call& call, const Argument& d) {
    if (finds_rows(call.finish()) && !plan::places_rows(call.epilogue()) && d.x.rows != call.rows())
        reject("d", "has {} rows, must have {}, one for each row of the product; pass as many", d.x.rows, call.rows());
}

}  // namespace

void check_finish(const Call& call) {
    const Given given = given_in(call.epilogue());
    if (given.finish == Finish::None) return;
    check_takes_epilogue(call, given);
    with_finish(given.finish, [&]<typename T>() { T::check(call); });
}

void check_epilogue_operands(const Call& call, const Argument& d, const std::array<Argument, 4>& inputs) {
    const Given given = given_in(call.epilogue());
    if (!given.first) return;
    if (call.options.accumulate)
        reject("accumulate", "is set, but so is {}; leave it out{}", given.first,
               facts_of(given.finish).loads_source ? ", and pass d as c" : "");
    plan::given_arguments(
        [&]<typename T>(const plan::EpilogueArgument& x, const T& value) {
            if constexpr (std::is_same_v<T, ConstStack>)
                check_like_d({x.name, value.matrix, value.count, value.stride}, d);
            else if constexpr (std::is_same_v<T, ConstMatrix>) check_row({x.name, value}, d);
            else if constexpr (std::is_same_v<T, Stack>) check_scales_of_d(x.name, value, d, inputs);
            else if constexpr (std::is_same_v<T, RowNumbers>)
                check_row_numbers({x.name, value.rows.matrix, value.rows.count, value.rows.stride}, call.rows(), d,
                                  call.epilogue());
            else if constexpr (std::is_same_v<T, RowIndices>) check_row_indices({x.name, value.rows}, call.rows(), d);
        },
        call.epilogue());
    check_rows_of_d(call, d);
}

}  // namespace finegemm
