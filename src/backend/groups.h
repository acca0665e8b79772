// The groups of a grouped GEMM: which rows each has. Layer backend.
#pragma once

#include <string_view>
#include <vector>

#include <finegemm/core/group_layout.h>
#include <finegemm/grouped.h>
#include <finegemm/k_grouped.h>

namespace finegemm {

/// Name of the numbers in messages: "offsets", "indices", "prefix_sums", "masks". "" for a form that is none.
std::string_view name_of(GroupForm form);

/// The numbers as the kernel reads them, wherever they lie. Arguments have been checked.
GroupLayout layout_of(const GroupedGemmArgs& args);
KGroupLayout layout_of(const KGroupedGemmArgs& args);

/// Neighbouring rows of one group; of matrix `group` where groups are stacked.
struct GroupRows {
    int32_t group;  // -1: of none, in a layout of indices
    RowRange rows;
    bool operator==(const GroupRows&) const = default;
};

/// The rows of all groups that have some, in the order of the numbers, which lie in the host's memory. Whatever these
/// say, the rows exist and no row is named twice.
std::vector<GroupRows> rows_by_group(const GroupLayout& layout);

}  // namespace finegemm
