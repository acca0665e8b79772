// The groups of a grouped GEMM: which rows each has. Layer backend.
#include "backend/groups.h"

namespace finegemm {

std::string_view name_of(GroupForm form) {
    switch (form) {
        case GroupForm::Offsets: return "offsets";
        case GroupForm::Indices: return "indices";
        case GroupForm::PrefixSums: return "prefix_sums";
        case GroupForm::Masked: return "masks";
    }
    return "";
}

GroupLayout layout_of(const GroupedGemmArgs& args) {
    const Groups& groups = args.groups;
    const bool has_alignment = groups.form == GroupForm::Indices || groups.form == GroupForm::PrefixSums;
    const bool first_is_given = groups.form == GroupForm::Offsets;
    return {.ends = groups.form == GroupForm::Indices ? nullptr : groups.data + (first_is_given ? 1 : 0),
            .indices = groups.form == GroupForm::Indices ? groups.data : nullptr,
            .groups = static_cast<uint32_t>(args.b.count),
            .rows = static_cast<uint32_t>(args.a.matrix.rows),
            .alignment = has_alignment ? static_cast<uint32_t>(groups.alignment) : 1,
            .first_is_given = first_is_given,
            .stacked = groups.form == GroupForm::Masked};
}

KGroupLayout layout_of(const KGroupedGemmArgs& args) {
    return {.offsets = args.offsets,
            .groups = static_cast<uint32_t>(args.groups),
            .k_blocks = static_cast<uint32_t>(args.a.cols) / kScaleBlock};
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

}  // namespace finegemm
