// The groups of a call. Layer engine.
#include "ops/gemm/groups.h"

#include <map>
#include <type_traits>

namespace finegemm {

std::string_view name_of(GroupForm form) {
    switch (form) {
        case GroupForm::Offsets: return "offsets";
        case GroupForm::Indices: return "indices";
        case GroupForm::PrefixSums: return "prefix_sums";
        case GroupForm::Masked: return "masks";
        case GroupForm::Whole: return "whole";
    }
    return "";
}

GroupLayout row_layout_of(const Call& call) {
    const Groups& groups = call.groups;
    const bool first_is_given = groups.form == GroupForm::Offsets;
    const bool ends_are_given = groups.form != GroupForm::Indices && groups.form != GroupForm::Whole;
    return {.ends = ends_are_given ? groups.data + (first_is_given ? 1 : 0) : nullptr,
            .indices = groups.form == GroupForm::Indices ? groups.data : nullptr,
            .groups = static_cast<uint32_t>(call.group_count),
            .rows = static_cast<uint32_t>(call.rows()),
            .alignment = static_cast<uint32_t>(row_alignment(groups)),
            .first_is_given = first_is_given,
            .stacked = call.stacked()};
}

KGroupLayout k_layout_of(const Call& call) {
    return {.offsets = call.groups.data,
            .groups = static_cast<uint32_t>(call.group_count),
            .k_blocks = static_cast<uint32_t>(call.a.matrix.cols) / kScaleBlock};
}

namespace {

std::vector<GroupRows> rows_by_index(const GroupLayout& layout) {
    std::vector<GroupRows> all;
    for (uint32_t row = 0; row < layout.rows; ++row) {
        const int32_t index = layout.indices[row], group = layout.is_group(index) ? index : -1;
        if (all.empty() || all.back().group != group) all.push_back({group, {row, row}});
        all.back().rows.end = row + 1;
    }
    return all;
}

}  // namespace

std::vector<GroupRows> rows_by_group(const GroupLayout& layout) {
    if (layout.indices) return rows_by_index(layout);
    std::vector<GroupRows> all;
    uint32_t taken = 0;  // rows up to here have a group: numbers that do not ascend could give them to another one
    for (uint32_t i = 0; i < layout.spans(); ++i) {
        RowRange rows = layout.span(i);
        if (!layout.stacked) rows.begin = max(rows.begin, taken);
        if (rows.begin >= rows.end) continue;
        taken = rows.end;
        all.push_back({static_cast<int32_t>(i), rows});
    }
    return all;
}

namespace {

/// Rows of matrix i.
template <typename AnyStack>
auto rows_of(const AnyStack& stack, int64_t i, RowRange rows) {
    auto part = stack.matrix;
    using Byte = std::conditional_t<std::is_same_v<decltype(part), ConstMatrix>, const uint8_t, uint8_t>;
    part.data = static_cast<Byte*>(part.data) + (i * stack.stride + rows.begin * part.row_stride) * size_of(part.dtype);
    part.rows = rows.size();
    return part;
}

template <typename AnyStack>
auto matrix_of(const AnyStack& stack, int64_t i) {
    return rows_of(stack, i, {0, static_cast<uint32_t>(stack.matrix.rows)});
}

/// `count` columns from `first` on.
ConstMatrix columns_of(ConstMatrix x, int64_t first, int64_t count) {
    x.data = static_cast<const uint8_t*>(x.data) + first * x.col_stride * size_of(x.dtype);
    x.cols = count;
    return x;
}

/// A group's part of A or B: `count` of K from `first` on.
ConstMatrix part_of(ConstMatrix x, KLayout layout, int64_t first, int64_t count) {
    if (layout == KLayout::Columns) return columns_of(x, first, count);
    x.data = static_cast<const uint8_t*>(x.data) + x.rows * first * size_of(x.dtype);
    x.cols = x.row_stride = count;
    return x;
}

GemmArgs product_of(const Call& call, const GroupRows& of) {
    const int64_t stack = call.stacked() ? of.group : 0;
    GemmArgs product{.a = {}, .sfa = {}, .b = {}, .sfb = {}, .d = rows_of(call.d, stack, of.rows)};
    if (of.group < 0) return product;
    product.a = rows_of(call.a, stack, of.rows);
    product.sfa = rows_of(call.sfa, stack, of.rows);
    product.b = matrix_of(call.b, of.group);
    product.sfb = matrix_of(call.sfb, of.group);
    return product;
}

}  // namespace

GemmArgs product_of(const Call& call, uint32_t g, KRange blocks) {
    const int64_t k = int64_t{blocks.begin} * kScaleBlock, length = int64_t{blocks.size()} * kScaleBlock;
    return {.a = part_of(call.a.matrix, call.layout, k, length),
            .sfa = columns_of(call.sfa.matrix, blocks.begin, blocks.size()),
            .b = part_of(call.b.matrix, call.layout, k, length),
            .sfb = columns_of(call.sfb.matrix, blocks.begin, blocks.size()),
            .d = matrix_of(call.d, g)};
}

std::vector<GemmArgs> products_of(const Call& call) {
    std::vector<GemmArgs> products;
    if (call.of_rows()) {
        for (const GroupRows& rows : rows_by_group(row_layout_of(call))) products.push_back(product_of(call, rows));
        return products;
    }
    if (call.summed()) {
        for (int64_t i = 0; i < call.group_count; ++i)
            products.push_back(
                {matrix_of(call.a, i), call.sfa.matrix, matrix_of(call.b, i), call.sfb.matrix, call.d.matrix});
        return products;
    }
    const KGroupLayout layout = k_layout_of(call);
    if (call.of_k())
        for (uint32_t g = 0; g < layout.groups; ++g) products.push_back(product_of(call, g, layout.group(g)));
    else products.push_back({call.a.matrix, call.sfa.matrix, call.b.matrix, call.sfb.matrix, call.d.matrix});
    if (call.options.accumulate) std::erase_if(products, [](const GemmArgs& product) { return product.a.cols == 0; });
    return products;
}

namespace {

// The stack that an argument of an epilogue is, where it has rows as D has.
ConstStack stack_of_rows(const ConstStack& x) { return x; }
ConstStack stack_of_rows(const Stack& x) { return x; }
ConstStack stack_of_rows(const RowNumbers& x) { return x.rows; }
void set_rows(ConstStack& x, const Matrix& rows) { x = {rows}; }
void set_rows(Stack& x, const Matrix& rows) { x = {rows}; }
void set_rows(RowNumbers& x, const Matrix& rows) { x.rows = {rows}; }

/// Calls visit(name, its member of each of `epilogues`) for each argument that has rows as D has.
template <typename Visit, typename... Epilogues>
void arguments_of_rows(const Visit& visit, Epilogues&... epilogues) {
    plan::arguments_of<ConstStack>(visit, epilogues...);
    plan::arguments_of<Stack>(visit, epilogues...);
    plan::arguments_of<RowNumbers>(visit, epilogues...);
}

/// What padding gets, which is no product: where D has scales, those of zeros.
Epilogue of_padding(const Epilogue& all) {
    Epilogue some;
    plan::arguments_of<Stack>([](const char*, const Stack& from, Stack& to) { to = from; }, all, some);
    return some;
}

}  // namespace

std::vector<ProductEpilogue> epilogues_of(const Call& call, const std::vector<GemmArgs>& products) {
    std::map<std::string_view, std::vector<GemmArgs>> parts;  // those of a call whose D it is
    arguments_of_rows(
        [&](const char* name, const auto& argument) {
            const ConstStack x = stack_of_rows(argument);
            if (!plan::is_given(x, {})) return;
            Call with_x = call;
            const ConstMatrix& m = x.matrix;
            with_x.d = {{const_cast<void*>(m.data), m.dtype, m.rows, m.cols, m.row_stride, m.col_stride, m.device},
                        x.count,
                        x.stride};
            parts[name] = products_of(with_x);
        },
        call.epilogue());
    std::vector<ProductEpilogue> epilogues(products.size());
    for (size_t i = 0; i < products.size(); ++i) {
        const bool padding = products[i].a.cols == 0;
        if (padding && !pairs_columns(call.finish())) continue;
        epilogues[i] = {call.finish(), padding ? of_padding(call.epilogue()) : call.epilogue()};
        arguments_of_rows(
            [&](const char* name, auto& x) {
                if (!plan::is_given(stack_of_rows(x), {})) return;
                if (const auto all = parts.find(name); all != parts.end()) set_rows(x, all->second[i].d);
            },
            epilogues[i].arguments);
    }
    return epilogues;
}

}  // namespace finegemm
