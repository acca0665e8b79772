// Argument checks of GEMMs. Layer api.
#include "ops/gemm/checks.h"

#include <algorithm>

#include "api/argument.h"
#include "api/epilogue.h"
#include "engine/check_values.h"
#include "ops/gemm/groups.h"
#include "plan/fields.h"

namespace finegemm {

namespace {

constexpr const char* kGroups = "groups";  // the name of the argument

/// The operands with their names.
struct Operands {
    Argument a, sfa, b, sfb, d;
};

/// Number of matrices in each stack of groups of rows.
void check_counts(const Operands& x, bool stacked) {
    const auto& [a, sfa, b, sfb, d] = x;
    if (b.count < 1 || b.count > plan::kMaxGroups)
        reject("b", "has {} matrices, must have 1 to {}, one for each group; use several calls for more", b.count,
               plan::kMaxGroups);
    if (sfb.count != b.count)
        reject("sfb", "has {} matrices, must have {}, one for each of b; quantize_blocks makes them", sfb.count,
               b.count);
    for (const Argument& of_rows : {a, sfa, d}) {
        if (stacked && of_rows.count != b.count)
            reject(of_rows.name, "has {} matrices, must have {}, one for each of b; pass a stack, as b is",
                   of_rows.count, b.count);
        if (!stacked && of_rows.count != 1)
            reject(of_rows.name,
                   "has {} matrices, must have 1, with the rows of all groups; only masked and whole groups have a "
                   "matrix each",
                   of_rows.count);
    }
}

void check_size(const Groups& groups, int64_t rows, int64_t count) {
    const auto check = [&](int64_t wanted, const char* meaning) {
        if (groups.size != wanted)
            reject(kGroups, "has {} {}, must have {} ({}); pass as many", groups.size, name_of(groups.form), wanted,
                   meaning);
    };
    switch (groups.form) {
        case GroupForm::Offsets: return check(count + 1, "the begin of each group and the end of the last one");
        case GroupForm::Indices: return check(rows, "one for each row of a");
        case GroupForm::PrefixSums: return check(count, "the end of each group");
        case GroupForm::Masked: return check(count, "the number of rows of each group");
        case GroupForm::Whole: return check(0, "all rows are used");
    }
}

void check_form(const Groups& groups) {
    if (name_of(groups.form).empty())
        reject(kGroups,
               "has form {}, must be 1 (offsets), 2 (indices), 3 (prefix_sums), 4 (masks) or 5 (whole); pass one of "
               "them",
               static_cast<int32_t>(groups.form));
    const bool indices = groups.form == GroupForm::Indices;
    if (indices || groups.form == GroupForm::PrefixSums)
        plan::check_alignment(groups.alignment, indices ? plan::kMinIndexAlignment : 1, name_of(groups.form));
    plan::check_expected_m(groups.expected_m);
}

/// What groups of rows ask of a call beyond its operands.
void check_row_groups(const Call& call, const Operands& x) {
    const Groups& groups = call.groups;
    if (call.options.accumulate)
        reject("accumulate", "is set, but d of groups is overwritten; add the result to yours");
    if (x.a.x.cols == 0) reject("a", "has K = 0 columns, must have at least 16; fill d with zeros instead");
    check_size(groups, call.rows(), x.b.count);
    if (groups.form != GroupForm::Whole)
        check_numbers({kGroups, groups.data, groups.size, groups.device}, x.d.x.device, x.d);
}

/// Layouts of A and B that there are kernels for.
void check_layouts(const Call& call, const Operands& x) {
    const Major a = major_of(x.a.x), b = major_of(x.b.x);
    if (call.of_rows() && !call.stacked() && a == Major::MN)
        reject("a",
               "has column stride {}, must be 1 (rows contiguous) where groups share a matrix and begin at any row; "
               "make it contiguous, or give each group a matrix (masks, whole)",
               x.a.x.col_stride);
    for (const Argument& operand : {x.a, x.b})
        if (call.summed() && major_of(operand.x) == Major::MN)
            reject(operand.name,
                   "has column stride {}, must be 1 (rows contiguous) in a sum over stacks; make it "
                   "contiguous",
                   operand.x.col_stride);
    if (call.of_k() && a != b && !x.a.empty() && !x.b.empty())
        reject("b",
               "has strides [{}, {}], and a [{}, {}]: in groups of K both must have contiguous rows, or both "
               "contiguous columns; make one contiguous",
               x.b.x.row_stride, x.b.x.col_stride, x.a.x.row_stride, x.a.x.col_stride);
}

/// Checks groups of K that are blocks of their own.
void check_blocks(const Call& call, const Operands& operands) {
    for (const Argument& x : {operands.a, operands.b})
        if (!x.empty() && (major_of(x.x) == Major::MN || (x.x.rows > 1 && x.x.row_stride != x.x.cols)))
            reject(x.name,
                   "has row stride {}, must be its {} columns where groups are blocks, which lie one behind the other "
                   "without gaps; make it contiguous",
                   x.x.row_stride, x.x.cols);
    if (!call.has_host_offsets())
        reject("offsets",
               "are not on the CPU, must be there where groups are blocks, whose rows are as long as their "
               "groups; copy them to the host, or lay groups out as columns");
}

/// What groups of K ask of a call beyond its operands.
void check_k_groups(const Call& call, const Operands& x) {
    if (x.a.x.cols % kScaleBlock != 0) reject("a", "has K = {} columns, {}", x.a.x.cols, plan::kWholeBlocks);
    if (call.layout != KLayout::Columns && call.layout != KLayout::Blocks)
        reject("layout", "is {}, must be 0 (columns) or 1 (blocks); pass one of them",
               static_cast<int32_t>(call.layout));
    if (call.layout == KLayout::Blocks) check_blocks(call, x);
    const Groups& groups = call.groups;
    const Device where = call.has_host_offsets() ? Device{} : x.d.x.device;
    check_numbers({"offsets", groups.data, groups.size, groups.device}, where, x.d);
    if (call.has_host_offsets()) check_group_numbers(call);
}

void check_accumulate(const Call& call, const Operands& x) {
    if (call.options.accumulate && x.d.x.dtype != DType::F32)
        reject("accumulate",
               "is set, but d has dtype {}, must be f32; pass memory of f32{}, or add the result to yours",
               name_of(x.d.x.dtype),
               call.row_b_scales() || !call.scaled() ? "" : " and scales for each row of b (quantize_rows makes them)");
    if (call.options.accumulate && call.scaled() && !call.row_b_scales() && !x.d.empty())
        reject(
            "accumulate",
            "is set, but b has a scale for each 128x128 block, whose products are added to c; pass d as c, or scales "
            "for each row of b (quantize_rows makes them)");
}

/// What sums over stacks ask of a call beyond its operands.
void check_summed(const Call& call, const Operands& x) {
    if (call.scaled())
        x.a.check_dtype(DType::BF16, fmt::format("products are summed of {}", names_of(is_unscaled)).c_str());
    if (x.a.count < 1 || x.a.count > INT32_MAX / std::max<int64_t>(1, x.a.x.cols))
        reject("a", "has {} matrices of {} columns, must have from 1 to {} columns in all; split larger problems",
               x.a.count, x.a.x.cols, INT32_MAX);
    if (x.b.count != x.a.count)
        reject("b", "has {} matrices, but a has {}; each of a is multiplied by one of b", x.b.count, x.a.count);
}

/// Numbers of matrices, by which operands are told apart.
void check_stacks(const Call& call, const Operands& x) {
    if (call.of_rows()) {
        check_form(call.groups);
        check_counts(x, call.stacked());
    }
    if (call.summed()) check_summed(call, x);
    if (!call.of_k()) return;
    plan::check_group_count(call.group_count, plan::kMaxKGroups);
    if (x.d.count != call.group_count)
        reject("d", "has {} matrices, must have {}, one for each group; pass a stack", x.d.count, call.group_count);
}

}  // namespace

void check_gemm(const Call& call) {
    ConstMatrix d = call.d.matrix;
    d.cols = call.d_width;
    const auto named = [](const char* name, const ConstStack& x) {
        return Argument{name, x.matrix, x.count, x.stride};
    };
    const Operands x{named("a", call.a),
                     named("sfa", call.sfa),
                     named("b", call.b),
                     named("sfb", call.sfb),
                     {"d", d, call.d.count, call.d.stride}};
    const Finish finish = call.finish();
    const auto is_rare = [](const Argument& argument) {
        return argument.x.dtype == DType::E5M2 || argument.x.dtype == DType::I8;
    };
    check_finish(call);
    check_stacks(call, x);
    check_operands(x.a, x.sfa, x.b, x.sfb, x.d, call.d.matrix.cols, call.grouping, finish);
    check_layouts(call, x);
    if (is_rare(x.a) || is_rare(x.b) || is_mx(x.sfb.x) || finds_rows(finish))
        plan::check_operand_types(problem_of(call), "a");
    if (call.of_rows()) check_row_groups(call, x);
    else if (call.of_k()) check_k_groups(call, x);
    if (!call.of_rows()) check_accumulate(call, x);
    check_epilogue_operands(call, x.d, {{x.a, x.sfa, x.b, x.sfb}});
    if (call.grouping != Grouping::None) check_no_prefetch(call.options);
    check_gemm_options(call.options, call.device().type == DeviceType::Cuda && !x.d.empty() && x.a.x.cols > 0);
}

}  // namespace finegemm
