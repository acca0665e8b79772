// finegemm.scale_layout. Layer: front end.
#include "operations/scale_layout.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <finegemm/error.h>
#include <finegemm/scale_layout.h>
#include <fmt/format.h>

namespace finegemm::python {

namespace {

/// The argument that has the groups' numbers, if any is given.
const char* take_groups(Tensors& tensors, Arguments& given, ScaleGroups& groups) {
    const std::pair<const char*, ScaleGroupForm> all[] = {{"prefix_sums", ScaleGroupForm::Rows},
                                                          {"k_sizes", ScaleGroupForm::KSizes},
                                                          {"k_prefix_sums", ScaleGroupForm::KPrefixSums}};
    given.take("alignment", groups.alignment);
    given.take("scale_k", groups.scale_k);
    const char* found = nullptr;
    for (const auto& [name, form] : all) {
        PyObject* x = given.optional(name);
        if (x == Py_None) continue;
        if (found)
            throw Error(
                Errc::InvalidArgument,
                fmt::format("{}: is given with {}, must be the only groups; leave one of them out", name, found));
        const Numbers numbers = tensors.numbers(name, x);
        found = name;
        groups.form = form;
        groups.data = numbers.data;
        groups.size = numbers.size;
        groups.device = numbers.device;
    }
    return found;
}

/// Columns of a new output.
int64_t cols_of(const ConstMatrix& sf, bool packed, const ScaleGroups& groups) {
    if (sf.dtype == DType::UE8M0x4) return packed ? sf.cols : 4 * sf.cols;
    if (!packed) return sf.cols;
    const bool of_k = groups.form == ScaleGroupForm::KSizes || groups.form == ScaleGroupForm::KPrefixSums;
    return (sf.cols + (of_k ? 3 * groups.size : 3)) / 4;  // each group of K may leave three bytes empty
}

}  // namespace

Object scale_layout_into(const Imports& imports, Context& context, Arguments& given) {
    Tensors tensors(imports);
    PyObject *x = given.required("sf"), *to = given.optional("out");
    const Matrices in = tensors.matrices("sf", x);
    ScaleLayoutArgs args{.sf = in.stack, .out = {}};
    const char* groups = take_groups(tensors, given, args.groups);
    bool packed = false;
    std::optional<int64_t> rows;
    given.take("packed", packed);
    given.take("rows", rows);
    const ConstMatrix& sf = args.sf.matrix;
    std::vector<int64_t> shape = {rows.value_or(sf.rows), cols_of(sf, packed, args.groups)};
    if (in.several) shape.insert(shape.begin(), args.sf.count);
    Object out = to == Py_None ? tensors.empty_mn_major(x, shape, packed ? "int32" : "float32", "out")
                               : tensors.output("out", to);
    args.out = tensors.matrices("out", out.get(), Access::Write).stack;
    ScaleLayoutOptions options{.stream = tensors.stream(given.optional("stream"), out.get(), args.out.matrix.device)};
    given.take("power_of_two_scales", options.power_of_two_scales);
    given.check_all_taken();
    with_names_of_python(groups ? groups : "groups", [&] {
        WithoutGil others_run;
        options.poll = [&](double) { others_run.run_handlers(); };
        scale_layout(context, args, options);
    });
    return out;
}

}  // namespace finegemm::python
