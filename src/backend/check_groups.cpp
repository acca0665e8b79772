// The validation mode's look at groups and their scales. Layer backend.
#include "backend/check_groups.h"

#include <fmt/format.h>

#include <finegemm/error.h>

#include "backend/check_scales.h"
#include "backend/groups.h"

namespace finegemm {

namespace {

template <typename... Args>
[[noreturn]] void reject(const Groups& groups, int64_t i, fmt::format_string<Args...> rule, Args&&... args) {
    throw Error(Errc::InvalidArgument, fmt::format("groups: {}[{}] is {}, {}", name_of(groups.form), i, groups.data[i],
                                                   fmt::format(rule, std::forward<Args>(args)...)));
}

void check_ends(const Groups& groups, const GroupLayout& layout) {
    for (int64_t i = 0; i < groups.size; ++i) {
        const int32_t end = groups.data[i];
        if (end < 0 || static_cast<uint32_t>(end) > layout.rows)
            reject(groups, i, "must be from 0 to M = {}; look at what computed it", layout.rows);
        if (i == 0 || layout.stacked) continue;
        const int32_t before = groups.data[i - 1];
        const uint32_t begin = layout.range({before, end}).begin;
        if (static_cast<uint32_t>(end) >= begin) continue;
        if (layout.first_is_given)
            reject(groups, i, "must be at least the {} before it; give a group without rows the same number twice",
                   before);
        reject(groups, i,
               "must be at least {}, where its group begins: {} before it, and alignment {}; give a group without "
               "rows its begin",
               begin, before, layout.alignment);
    }
}

void check_indices(const Groups& groups, const GroupLayout& layout) {
    for (int64_t i = 0; i < groups.size; ++i) {
        const int32_t index = groups.data[i];
        if (index != -1 && !layout.is_group(index))
            reject(groups, i, "must be from 0 to {}, or -1 for padding; look at what computed it", layout.groups - 1);
        if (index == -1 || i % groups.alignment == 0 || index == groups.data[i - 1]) continue;
        reject(groups, i,
               "but {} before it: groups begin at multiples of {} and have their padding behind their rows; begin "
               "this one at row {}, with -1 before it",
               groups.data[i - 1], groups.alignment, (i / groups.alignment + 1) * groups.alignment);
    }
}

/// Rows of the stack's matrix i, which the message names where the stack has more than one by its rules.
void check_rows(std::string_view name, const ConstStack& scales, int64_t i, RowRange rows, bool stacked) {
    const ConstMatrix& s = scales.matrix;
    check_scale_rows(stacked ? fmt::format("{}[{}, ", name, i) : fmt::format("{}[", name),
                     static_cast<const float*>(s.data) + i * scales.stride, rows.begin, rows.end, s.cols, s.row_stride,
                     s.col_stride);
}

}  // namespace

void check_group_numbers(const GroupedGemmArgs& args) {
    const GroupLayout layout = layout_of(args);
    if (layout.indices) check_indices(args.groups, layout);
    else check_ends(args.groups, layout);
}

void check_group_scales(const GroupedGemmArgs& args) {
    const GroupLayout layout = layout_of(args);
    for (const auto& [group, rows] : rows_by_group(layout))
        if (group >= 0) check_rows("sfa", args.sfa, layout.stacked ? group : 0, rows, layout.stacked);
    const RowRange all{0, static_cast<uint32_t>(args.sfb.matrix.rows)};
    for (int64_t g = 0; g < args.sfb.count; ++g) check_rows("sfb", args.sfb, g, all, true);
}

void check_k_offsets(const KGroupedGemmArgs& args) {
    const auto reject = [&]<typename... Rest>(int64_t i, fmt::format_string<Rest...> rule, Rest&&... rest) {
        throw Error(Errc::InvalidArgument, fmt::format("offsets: [{}] is {}, {}", i, args.offsets[i],
                                                       fmt::format(rule, std::forward<Rest>(rest)...)));
    };
    for (int64_t i = 0; i <= args.groups; ++i) {
        const int32_t offset = args.offsets[i];
        if (offset < 0 || offset > args.a.cols)
            reject(i, "must be from 0 to K = {}; look at what computed it", args.a.cols);
        if (offset % static_cast<int32_t>(kScaleBlock) != 0)
            reject(i, "must be a multiple of {}; pad groups with zeros", kScaleBlock);
        if (i > 0 && offset < args.offsets[i - 1])
            reject(i, "must be at least the {} before it; give a group without k the same number twice",
                   args.offsets[i - 1]);
    }
}

void check_k_group_scales(const KGroupedGemmArgs& args) {
    const KRange used = layout_of(args).range(args.offsets[0], args.offsets[args.groups]);
    for (const auto& [prefix, s] : {std::pair{"sfa[", args.sfa}, std::pair{"sfb[", args.sfb}})
        check_scale_rows(prefix, static_cast<const float*>(s.data), 0, s.rows, used.end, s.row_stride, s.col_stride,
                         used.begin);
}

}  // namespace finegemm
