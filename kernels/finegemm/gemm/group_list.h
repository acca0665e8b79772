// The kernel that writes a list of groups of K to memory, where parameters of a product have no room for it.
// Layer gemm.
#pragma once

#include <finegemm/core/tensor_map.h>

namespace finegemm {

struct GroupListConfig {
    static constexpr uint32_t kCount = 1;
    FG_HD constexpr uint32_t index() const { return 0; }
    FG_HD constexpr uint32_t threads() const { return 128; }
    constexpr bool operator==(const GroupListConfig&) const = default;
};

/// Groups whose sizes one launch takes along.
inline constexpr uint32_t kListedGroups = 896;

/// An operand of groups in blocks.
struct ListedBlocks {
    TensorMap map;        // of any group: others have another address, width and row stride
    const uint8_t* data;  // of the first group
    int64_t k_bytes;      // of one column of all its rows
};

struct GroupListParams {
    ListedBlocks a, b;
    uint32_t element_bytes;
    int32_t* offsets_to;     // [groups + 1]
    TensorMap* maps_to;      // A's and B's of each group in turn; null: groups lie in columns
    uint32_t first, groups;  // of this launch
    int32_t offsets[kListedGroups + 1];
};
static_assert(sizeof(GroupListParams) <= 4096, "a kernel of CUDA 12.0 takes no more");

}  // namespace finegemm
