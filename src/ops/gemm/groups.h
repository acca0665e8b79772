// The groups of a call: which rows or which part of K each has. Layer engine.
#pragma once

#include <string_view>
#include <vector>

#include <finegemm/core/group_layout.h>

#include "ops/gemm/call.h"

namespace finegemm {

/// Name of the numbers in messages: "offsets", "indices", "prefix_sums", "masks". "" for a form that is none.
std::string_view name_of(GroupForm form);

// The numbers as the kernel reads them, wherever they lie. Arguments have been checked.
GroupLayout row_layout_of(const Call& call);
KGroupLayout k_layout_of(const Call& call);

/// Neighbouring rows of one group; of matrix `group` where groups are stacked.
struct GroupRows {
    int32_t group;  // -1: of none, in a layout of indices
    RowRange rows;
    bool operator==(const GroupRows&) const = default;
};

/// The rows of all groups that have some, in the order of the numbers, which lie in the host's memory. Whatever these
/// say, the rows exist and no row is named twice.
std::vector<GroupRows> rows_by_group(const GroupLayout& layout);

/// Row `m` of A, and of D, as the numbers of a call on the CPU say; -1: none.
int64_t row_of_a(const Call& call, int64_t m);
int64_t row_of_d(const Call& call, int64_t m);

/// Throws for numbers that are neither -1 nor rows, and for a row of D that two numbers say.
void check_found_rows(const Call& call);

/// The product of group g of K, which has these k-blocks.
GemmArgs product_of(const Call& call, uint32_t g, KRange blocks);

/// A call as a list of products, which its numbers, in the host's memory, tell: one of a dense call, one of each
/// stretch of rows, one of each group of K, one of each matrix of a sum, all with one D. Rows without a group, which
/// become zero, and groups without k have K = 0; those that are added to D are left out then.
std::vector<GemmArgs> products_of(const Call& call);

/// What becomes of one of a call's products: the call's arguments, where matrices like D are the part that belongs to
/// the product.
struct ProductEpilogue {
    Finish finish = Finish::None;
    Epilogue arguments{};
};

/// The epilogues of products_of(call), in their order. Rows of padding, which become zero, have none.
std::vector<ProductEpilogue> epilogues_of(const Call& call, const std::vector<GemmArgs>& products);

}  // namespace finegemm
