// finegemm.gemm, grouped_gemm, k_grouped_gemm and einsum. Layer: front end.
#include "products.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <finegemm/einsum.h>
#include <finegemm/error.h>
#include <finegemm/gemm.h>
#include <fmt/format.h>

#include "api/equations.h"
#include "api/option_lists.h"
#include "epilogue.h"
#include "k_offsets.h"
#include "plan/fields.h"

namespace finegemm::python {

namespace {

/// For callers in this package: as views a tensor's library would take longer to make them than a call takes.
std::string_view turned_of(Arguments& given) {
    PyObject* letters = given.find("turned");
    return letters ? text("turned", letters) : "";
}

void check_accumulate(Arguments& given) {
    PyObject* const accumulate = given.peek("accumulate");
    if (accumulate && boolean("accumulate", accumulate) && given.optional("d") == Py_None)
        throw Error(Errc::InvalidArgument,
                    "accumulate: is set, but d is None, must be what to add to; pass it, of float32");
}

/// Calls `product` of C++ with the options that are given. `out`: the array on `device` whose stream it is without one.
template <typename Product, typename Operands>
void multiply(Product* product, Context& context, const Operands& operands, Arguments& given, Tensors& tensors,
              PyObject* out, Device device, const Epilogue& epilogue = {}) {
    PyObject* const stream = given.rest("stream");
    GemmOptions options{.stream = tensors.stream(stream ? stream : Py_None, out, device)};
    call_options([&](const char* name, auto& option) { given.take_rest(name, option); }, options);
    options.epilogue = epilogue;
    given.check_all_taken();
    WithoutGil others_run;
    options.poll = [&](double) { others_run.run_handlers(); };
    (*product)(context, operands, options);
}

/// What D is where nobody says, as arrays call it.
const char* usual_result(const ConstMatrix& a, const Epilogue& epilogue = {}) {
    if (pairs_columns(plan::finish_of(epilogue))) return find_type(DType::E4M3)->array_name.data();
    const ElementType* of = find_type(a.dtype);
    const ElementType* d = of ? find_type(of->results[0]) : nullptr;
    return (d ? d : find_type(DType::BF16))->array_name.data();  // for an A that the library will refuse, anything
}

/// `format`: that `out_dtype`, if it is given, names.
void check_out_dtype(PyObject* out_dtype, std::string_view format, bool is_that_of_d) {
    if (out_dtype != Py_None && !is_that_of_d)
        throw Error(Errc::InvalidArgument,
                    fmt::format("out_dtype: is '{}', must be the dtype of d, which has another; leave it out", format));
}

}  // namespace

Object gemm_into(const Imports& imports, Context& context, Arguments& given) {
    Tensors tensors(imports, turned_of(given));
    check_accumulate(given);
    PyObject *d = given.optional("d"), *out_dtype = given.optional("out_dtype");
    const auto matrix = [&](const char* name) { return tensors.matrix(name, given.required(name)); };
    const auto scales = [&](const char* name) { return tensors.scales(name, given.required(name)); };
    GemmArgs problem{.a = matrix("a"), .sfa = scales("sfa"), .b = matrix("b"), .sfb = scales("sfb"), .d = {}};
    const Epilogue epilogue = epilogue_of(given, tensors);
    const ConstMatrix& c = epilogue.c.matrix;
    const std::string_view usual =
        plan::is_given(c, {}) ? find_type(c.dtype)->array_name : usual_result(problem.a, epilogue);
    const std::string_view format = out_dtype == Py_None ? usual : text("out_dtype", out_dtype);
    const DType made = type_named("out_dtype", format);
    const int64_t width = plan::width_of_d(epilogue, problem.b.rows);
    Object out = d == Py_None ? tensors.empty_like(given.required("a"), {problem.a.rows, width}, format.data(), "d")
                              : tensors.output("d", d);
    problem.d = tensors.matrix("d", out.get(), Access::Write);
    check_out_dtype(out_dtype, format, problem.d.dtype == made);
    multiply(gemm, context, problem, given, tensors, out.get(), problem.d.device, epilogue);
    return out;
}

namespace {

/// An argument that says which rows a group has.
struct GroupArgument {
    const char* name;
    GroupForm form;
    PyObject* x;
};

/// The one that is given of the five.
GroupArgument group_argument(Arguments& given) {
    bool heads = false;
    given.take("heads", heads);
    const GroupArgument all[] = {{"offsets", GroupForm::Offsets, given.optional("offsets")},
                                 {"m_indices", GroupForm::Indices, given.optional("m_indices")},
                                 {"prefix_sums", GroupForm::PrefixSums, given.optional("prefix_sums")},
                                 {"masked_m", GroupForm::Masked, given.optional("masked_m")},
                                 {"heads", GroupForm::Whole, heads ? Py_True : Py_None}};
    const auto is_given = [](const GroupArgument& g) { return g.x != Py_None; };
    if (const auto count = std::ranges::count_if(all, is_given); count != 1)
        throw Error(Errc::InvalidArgument, fmt::format("offsets, m_indices, prefix_sums, masked_m, heads: {} of them "
                                                       "are given, must be one; leave the others out",
                                                       count));
    return *std::ranges::find_if(all, is_given);
}

/// A new D in the form of A.
Object new_result(const Tensors& tensors, PyObject* a, const GroupedGemmArgs& problem, std::optional<int> counted,
                  const Epilogue& epilogue) {
    const int64_t groups = problem.a.count, m = plan::rows_of_product(epilogue, problem.a.matrix.rows),
                  n = plan::width_of_d(epilogue, problem.b.matrix.rows);
    const char* format = usual_result(problem.a.matrix, epilogue);
    if (!counted) return tensors.empty_like(a, {m, n}, format, "d");
    return *counted == 0 ? tensors.empty_like(a, {groups, m, n}, format, "d")
                         : tensors.empty_like(a, {m, groups, n}, format, "d");
}

}  // namespace

Object grouped_gemm_into(const Imports& imports, Context& context, Arguments& given) {
    Tensors tensors(imports, turned_of(given));
    const GroupArgument which = group_argument(given);
    const bool whole = which.form == GroupForm::Whole;
    const Numbers numbers = whole ? Numbers{} : tensors.numbers(which.name, which.x);
    Groups groups{.form = which.form, .data = numbers.data, .size = numbers.size, .device = numbers.device};
    given.take("alignment", groups.alignment);
    given.take("expected_m", groups.expected_m);
    std::optional<int> counted;  // dimension of a, sfa and d
    if (which.form == GroupForm::Masked) counted = 0;
    if (whole) counted = 1;
    PyObject *a = given.required("a"), *sfa = given.required("sfa"), *d = given.optional("d");
    GroupedGemmArgs problem{.a = tensors.one_or_more("a", a, counted),
                            .sfa = sfa == Py_None ? Stack() : tensors.one_or_more("sfa", sfa, counted),
                            .b = tensors.stack("b", given.required("b")),
                            .sfb = tensors.scale_stack("sfb", given.required("sfb")),
                            .d = {},
                            .groups = groups};
    const Epilogue epilogue = epilogue_of(given, tensors, counted);
    Object out = d == Py_None ? new_result(tensors, a, problem, counted, epilogue) : tensors.output("d", d);
    problem.d = tensors.one_or_more("d", out.get(), counted, Access::Write);
    with_names_of_python(which.name, [&] {
        multiply(grouped_gemm, context, problem, given, tensors, out.get(), problem.d.matrix.device, epilogue);
    });
    return out;
}

Object k_grouped_gemm_into(const Imports& imports, Context& context, Arguments& given) {
    Tensors tensors(imports, turned_of(given));
    check_accumulate(given);
    PyObject *offsets = given.optional("offsets"), *sizes = given.optional("sizes");
    if ((offsets == Py_None) == (sizes == Py_None))
        throw Error(Errc::InvalidArgument,
                    fmt::format("offsets, sizes: {} given, must be one, which says which k each group has; pass an "
                                "array of int32, or a list of ints",
                                offsets == Py_None ? "none of them is" : "both are"));
    PyObject *a = given.required("a"), *b = given.required("b"), *d = given.optional("d");
    const Matrix a_scales = tensors.scales("sfa", given.required("sfa"));
    const Matrix b_scales = tensors.scales("sfb", given.required("sfb"));
    std::vector<int32_t> room;
    const Numbers numbers =
        sizes == Py_None ? k_offsets_of(tensors, offsets, room) : k_offsets_of_sizes(tensors, sizes, room);
    const KOperand left = tensors.k_operand("a", a, a_scales, numbers),
                   right = tensors.k_operand("b", b, b_scales, numbers);
    if (left.layout != right.layout)
        throw Error(Errc::InvalidArgument,
                    "b: must have as many dimensions as a: two where groups are columns of one "
                    "matrix, one where they are blocks; lay both out alike");
    if (sizes != Py_None) check_sum_of_sizes(room.back(), left.matrix.cols);
    KGroupedGemmArgs problem{.a = left.matrix,
                             .sfa = a_scales,
                             .b = right.matrix,
                             .sfb = b_scales,
                             .d = {},
                             .offsets = numbers.data,
                             .groups = numbers.size - 1,
                             .offsets_device = numbers.device,
                             .layout = left.layout};
    Object out = d == Py_None ? tensors.empty_like(a, {problem.groups, problem.a.rows, problem.b.rows}, "float32", "d")
                              : tensors.output("d", d);
    problem.d = tensors.stack("d", out.get(), Access::Write);
    multiply(k_grouped_gemm, context, problem, given, tensors, out.get(), problem.d.matrix.device);
    return out;
}

namespace {

/// A new D of an equation.
Object new_result(const Tensors& tensors, PyObject* a, const Equation& e, const EinsumArgs& x, const char* format) {
    const auto extent = [&](char letter) {
        const bool of_a = e.a().find(letter) != std::string_view::npos;
        return of_a ? dimension(x.a, e.a(), letter).extent : dimension(x.b, e.b(), letter).extent;
    };
    const std::string_view d = e.d();
    return e.summed ? tensors.empty_like(a, {extent(d[0]), extent(d[1])}, format, "d")
                    : tensors.empty_like(a, {extent(d[0]), extent(d[1]), extent(d[2])}, format, "d");
}

}  // namespace

Object einsum_into(const Imports& imports, Context& context, Arguments& given) {
    Tensors tensors(imports);
    check_accumulate(given);
    const std::string_view equation = text("equation", given.required("equation"));
    const Equation& e = equation_named(equation);
    PyObject *a = given.required("a"), *d = given.optional("d"), *out_dtype = given.optional("out_dtype");
    EinsumArgs problem{.a = tensors.stack("a", a),
                       .sfa = tensors.scale_stack("sfa", given.optional("sfa")),
                       .b = tensors.stack("b", given.required("b")),
                       .sfb = tensors.scale_stack("sfb", given.optional("sfb")),
                       .d = {}};
    const std::string_view format =
        out_dtype == Py_None ? usual_result(problem.a.matrix) : text("out_dtype", out_dtype);
    const DType made = type_named("out_dtype", format);
    Object out = d == Py_None ? new_result(tensors, a, e, problem, format.data()) : tensors.output("d", d);
    const std::optional<int> counted = e.summed ? std::nullopt : std::optional(0);
    problem.d = tensors.one_or_more("d", out.get(), counted, Access::Write);
    check_out_dtype(out_dtype, format, problem.d.matrix.dtype == made);
    const auto product = [&](Context& by, const EinsumArgs& x, const GemmOptions& o) { einsum(by, e.text, x, o); };
    multiply(&product, context, problem, given, tensors, out.get(), problem.d.matrix.device,
             epilogue_of(given, tensors, counted));
    return out;
}

}  // namespace finegemm::python
