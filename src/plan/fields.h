// The fields of a product beside its extents, once: names, meanings, and which groupings take them. Layer plan.
// Lines of text, JSON, the C struct, options of the command line and the sentence about a field that does not belong to
// a product are all made from this list.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include <finegemm/gemm.h>
#include <finegemm/gemm/config.h>
#include <fmt/format.h>

#include "plan/elements.h"
#include "plan/problem.h"

namespace finegemm::plan {

/// Which products take a field.
struct Takers {
    bool dense, rows, k;
    constexpr bool have(Grouping grouping) const {
        return grouping == Grouping::None ? dense : grouping == Grouping::Rows ? rows : k;
    }
};
inline constexpr Takers kRows{false, true, false}, kOfK{false, false, true}, kDenseOrK{true, false, true},
    kDenseOrRows{true, true, false}, kAll{true, true, true};

struct Field {
    const char* name;
    Takers takers;
    const char* meaning;
    MayHave* may_be = nullptr;  // of a type of elements
};

// Each calls visit(field, its member of each of `shapes`), which have members of the fields' names.
template <typename Visit, typename... Shapes>
constexpr void operand_fields(const Visit& visit, Shapes&... shapes) {
    visit(Field{"dtype", kAll, "Of A and B; without it e4m3, which alone has scales", is_operand}, shapes.dtype...);
    visit(Field{"row_b_scales", kAll, "Scales for each row of B, not for 128x128 blocks, as gradients of weights need"},
          shapes.row_b_scales...);
    visit(Field{"out_dtype", kAll, "Of D; without it f32 for groups of K, else as A and B, for e4m3 bf16", is_output},
          shapes.out_dtype...);
}
template <typename Visit, typename... Shapes>
constexpr void option_fields(const Visit& visit, Shapes&... shapes) {
    visit(Field{"groups", kRows, "Groups of rows, which have M together and a B each"}, shapes.groups...);
    visit(Field{"expected_m", kRows, "Rows of a group to choose by; M over the groups without it"},
          shapes.expected_m...);
    visit(Field{"alignment", kRows, "Of the rows at which groups begin, as indices and prefix sums have it"},
          shapes.alignment...);
    visit(Field{"k_groups", kOfK, "Groups of K, which have K together and a D each"}, shapes.k_groups...);
    visit(Field{"accumulate", kDenseOrK, "D, of f32, is added to, not overwritten"}, shapes.accumulate...);
    visit(Field{"affine", kDenseOrRows, "D is alpha A B + beta C + bias, with any of the three"}, shapes.affine...);
    visit(Field{"num_sms", kAll, "SMs that may be used at most; 0: all"}, shapes.num_sms...);
    visit(Field{"batch_invariant", kAll, "The bits of a row of D may not depend on M"}, shapes.batch_invariant...);
}
template <typename Visit, typename... Shapes>
constexpr void fields(const Visit& visit, Shapes&... shapes) {
    operand_fields(visit, shapes...);
    option_fields(visit, shapes...);
}

// Values of fields: what is not set is left out of texts, and what is, is written in one way.
template <typename T>
constexpr bool is_set(const T& value) {
    return value != T{};
}
template <typename T>
std::string value_text(const T& value) {
    if constexpr (std::is_same_v<T, std::optional<DType>>) return name_of(value.value_or(DType{}));
    else if constexpr (std::is_same_v<T, std::optional<int64_t>>) return fmt::format("{}", value.value_or(0));
    else return fmt::format("{}", value);
}

/// The grouping that a shape asks for; of rows where it asks for both.
constexpr Grouping grouping_of(const GemmShape& s) {
    return s.groups ? Grouping::Rows : s.k_groups ? Grouping::K : Grouping::None;
}

/// Types of A and B, and of D, of a shape whose types are known ones.
inline const ElementType& operand_type(const GemmShape& s) { return *find_type(s.dtype.value_or(DType::E4M3)); }
inline DType result_type(const GemmShape& s) {
    return s.out_dtype.value_or(s.k_groups ? DType::F32 : operand_type(s).results[0]);
}

// Checks, which throw Error(InvalidArgument).

/// Throws for a field that does not belong to the shape's kind of product, for a value that no product takes, and for
/// extents that need no kernel.
void check_shape(const GemmShape& shape);
/// The checks of check_shape but for those of extents.
void check_fields(const GemmShape& shape);

inline constexpr int64_t kMaxGroups = 4096;
/// Rows of the smallest blocks by which indices are read.
inline constexpr int64_t kMinIndexAlignment = 64;
void check_group_count(int64_t groups, const char* name = "groups");
void check_expected_m(int64_t rows);
/// `form`: what it is the alignment of.
void check_alignment(int64_t alignment, int64_t least, std::string_view form);
void check_num_sms(int32_t num_sms);
/// The rule for the K of groups of K.
inline constexpr const char* kWholeBlocks =
    "must be a multiple of 128, as each group has whole blocks; pad groups with zeros";
static_assert(kScaleBlock == 128);

}  // namespace finegemm::plan
