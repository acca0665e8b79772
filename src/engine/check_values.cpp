// The validation mode's look at groups and scales. Layer engine.
#include "engine/check_values.h"

#include <cmath>
#include <string>

#include <fmt/format.h>

#include <finegemm/error.h>

#include "engine/any_address.h"
#include "ops/gemm/groups.h"
#include "plan/reject.h"

namespace finegemm {

namespace {

template <typename... Args>
[[noreturn]] void reject_number(const Groups& groups, int64_t i, fmt::format_string<Args...> rule, Args&&... args) {
    reject("groups", "{}[{}] is {}, {}", name_of(groups.form), i, groups.data[i],
           fmt::format(rule, std::forward<Args>(args)...));
}

void check_ends(const Groups& groups, const GroupLayout& layout) {
    for (int64_t i = 0; i < groups.size; ++i) {
        const int32_t end = groups.data[i];
        if (end < 0 || static_cast<uint32_t>(end) > layout.rows)
            reject_number(groups, i, "must be from 0 to M = {}; look at what computed it", layout.rows);
        if (i == 0 || layout.stacked) continue;
        const int32_t before = groups.data[i - 1];
        const uint32_t begin = layout.range({before, end}).begin;
        if (static_cast<uint32_t>(end) >= begin) continue;
        if (layout.first_is_given)
            reject_number(groups, i,
                          "must be at least the {} before it; give a group without rows the same number twice", before);
        reject_number(
            groups, i,
            "must be at least {}, where its group begins: {} before it, and alignment {}; give a group without "
            "rows its begin",
            begin, before, layout.alignment);
    }
}

void check_indices(const Groups& groups, const GroupLayout& layout) {
    for (int64_t i = 0; i < groups.size; ++i) {
        const int32_t index = groups.data[i];
        if (index != -1 && !layout.is_group(index))
            reject_number(groups, i, "must be from 0 to {}, or -1 for padding; look at what computed it",
                          layout.groups - 1);
        if (index == -1 || i % groups.alignment == 0 || index == groups.data[i - 1]) continue;
        reject_number(
            groups, i,
            "but {} before it: groups begin at multiples of {} and have their padding behind their rows; begin "
            "this one at row {}, with -1 before it",
            groups.data[i - 1], groups.alignment, (i / groups.alignment + 1) * groups.alignment);
    }
}

/// Columns of scales.
struct Columns {
    int64_t begin, end;
};

/// Scales of matrix i of a stack, which the message names if there are several by the rules.
void check_scales(std::string_view name, const ConstStack& scales, int64_t i, bool stacked, RowRange rows,
                  Columns cols) {
    const ConstMatrix& s = scales.matrix;
    if (is_mx(s)) return;  // an exponent is a scale, whatever it is
    for (int64_t r = rows.begin; r < rows.end; ++r)
        for (int64_t c = cols.begin; c < cols.end; ++c) {
            const auto scale = load<float>(s.data, i * scales.stride + r * s.row_stride + c * s.col_stride);
            if (std::isfinite(scale) && scale >= 0) continue;
            throw Error(Errc::InvalidArgument,
                        fmt::format("{}[{}{}, {}] is {}: scales are finite and not negative; look at what computed it "
                                    "(quantize_rows and quantize_blocks never make such a scale)",
                                    name, stacked ? fmt::format("{}, ", i) : "", r, c, scale));
        }
}

RowRange rows_of(const ConstStack& scales) { return {0, static_cast<uint32_t>(scales.matrix.rows)}; }

void check_k_offsets(const Call& call) {
    const int32_t* offsets = call.groups.data;
    const int64_t k = call.a.matrix.cols;
    const auto reject_offset = [&]<typename... Rest>(int64_t i, fmt::format_string<Rest...> rule, Rest&&... rest) {
        reject("offsets", "[{}] is {}, {}", i, offsets[i], fmt::format(rule, std::forward<Rest>(rest)...));
    };
    for (int64_t i = 0; i <= call.group_count; ++i) {
        const int32_t offset = offsets[i];
        if (offset < 0 || offset > k) reject_offset(i, "must be from 0 to K = {}; look at what computed it", k);
        if (offset % static_cast<int32_t>(kScaleBlock) != 0)
            reject_offset(i, "must be a multiple of {}; pad groups with zeros", kScaleBlock);
        if (i > 0 && offset < offsets[i - 1])
            reject_offset(i, "must be at least the {} before it; give a group without k the same number twice",
                          offsets[i - 1]);
    }
}

}  // namespace

void check_group_numbers(const Call& call) {
    if (call.of_k()) return check_k_offsets(call);
    if (!call.of_rows()) return;
    const GroupLayout layout = row_layout_of(call);
    if (layout.indices) check_indices(call.groups, layout);
    else check_ends(call.groups, layout);
    check_found_rows(call);
}

void check_scale_values(const Call& call) {
    if (!call.scaled()) return;
    const int64_t k_blocks = call.sfa.matrix.cols;
    Columns used{0, k_blocks};
    if (call.of_k()) {
        const int32_t* offsets = call.groups.data;
        const KRange range = k_layout_of(call).range(offsets[0], offsets[call.group_count]);
        used = {range.begin, range.end};
    }
    if (call.of_rows())
        for (const auto& [group, rows] : rows_by_group(row_layout_of(call))) {
            if (group < 0) continue;
            if (!plan::takes_rows(call.epilogue())) {
                check_scales("sfa", call.sfa, call.stacked() ? group : 0, call.stacked(), rows, used);
                continue;
            }
            for (uint32_t m = rows.begin; m < rows.end; ++m)
                if (const int64_t row = row_of_a(call, m); row >= 0)
                    check_scales("sfa", call.sfa, 0, false,
                                 {static_cast<uint32_t>(row), static_cast<uint32_t>(row) + 1}, used);
        }
    else check_scales("sfa", call.sfa, 0, false, rows_of(call.sfa), used);
    for (int64_t i = 0; i < call.sfb.count; ++i)
        check_scales("sfb", call.sfb, i, call.of_rows(), rows_of(call.sfb), used);
}

}  // namespace finegemm
