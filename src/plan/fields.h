// The fields of a product beside its extents, once: names, meanings, and which groupings take them. The arguments of an
// epilogue, likewise. Layer plan.
// Lines of text, JSON, C structs, Python's keywords, options of the command line, keys of launches and the sentence
// about a field that does not belong to a product are all made from these lists.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include <finegemm/gemm.h>
#include <finegemm/gemm/config.h>
#include <finegemm/gemm/d_columns.h>
#include <fmt/format.h>

#include "plan/elements.h"
#include "plan/problem.h"

namespace finegemm::plan {

/// Which products take a field.
struct Takers {
    bool dense, rows, k, sum = false;
    constexpr bool have(Grouping grouping) const {
        switch (grouping) {
            case Grouping::None: return dense;
            case Grouping::Rows: return rows;
            case Grouping::K: return k;
            case Grouping::Sum: return sum;
        }
        return false;
    }
};
inline constexpr Takers kDense{true, false, false}, kRows{false, true, false}, kOfK{false, false, true},
    kSum{false, false, false, true}, kDenseOrK{true, false, true}, kDenseOrRows{true, true, false},
    kNotRows{true, false, true, true}, kNotSum{true, true, true}, kAll{true, true, true, true};

struct Field {
    const char* name;
    Takers takers;
    const char* meaning;
    MayHave* may_be = nullptr;  // of a type of elements
};

// Each calls visit(field, its member of each of `shapes`), which have members of the fields' names.
template <typename Visit, typename... Shapes>
constexpr void operand_fields(const Visit& visit, Shapes&... shapes) {
    visit(Field{"dtype", kAll, "Of A and B; without it e4m3, which has scales, as e5m2 and i8 have", is_operand},
          shapes.dtype...);
    visit(Field{"dtype_of_b", kNotSum, "Of B, where one of A and B is e4m3 and the other e5m2", is_operand},
          shapes.dtype_of_b...);
    visit(Field{"row_b_scales", kNotSum,
                "Scales for each row of B, not for 128x128 blocks, as gradients of weights need"},
          shapes.row_b_scales...);
    visit(Field{"a_mx", kDenseOrRows, "Scales of A are exponents, for each row and 32 of K (MX); b_mx, too"},
          shapes.a_mx...);
    visit(Field{"b_mx", kDenseOrRows, "Scales of B are exponents, for each row and 32 of K (MX)"}, shapes.b_mx...);
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
    visit(Field{"summed", kSum, "Matrices of A and of B, whose products are added up; K is that of all together"},
          shapes.summed...);
    visit(Field{"accumulate", kNotRows, "D, of f32, is added to, not overwritten"}, shapes.accumulate...);
    visit(Field{"affine", kDenseOrRows, "D is alpha A B + beta C + bias, with any of the three"}, shapes.affine...);
    visit(Field{"head_gaps", kDense, "D is in heads, each with a gap that is not written"}, shapes.head_gaps...);
    visit(Field{"gated", kDenseOrRows, "D is the SwiGLU of the halves of N, in e4m3 with scales"}, shapes.gated...);
    visit(Field{"indexed", kRows, "Rows of A and of D are found by numbers, or have factors"}, shapes.indexed...);
    visit(Field{"num_sms", kAll, "SMs that may be used at most; 0: all"}, shapes.num_sms...);
    visit(Field{"batch_invariant", kAll, "The bits of a row of D may not depend on M"}, shapes.batch_invariant...);
    visit(Field{"a_mn_major", kNotSum, "A is stored as [K, M], not [M, K]; of bf16 or f16"}, shapes.a_mn_major...);
    visit(Field{"b_mn_major", kNotSum, "B is stored as [K, N], not [N, K]; of bf16 or f16"}, shapes.b_mn_major...);
}
template <typename Visit, typename... Shapes>
constexpr void fields(const Visit& visit, Shapes&... shapes) {
    operand_fields(visit, shapes...);
    option_fields(visit, shapes...);
}

/// A finish as the fields of a shape have it.
struct FinishField {
    Finish finish;
    bool GemmShape::* asked;
    const char* phrase;                              // of the product: ", with alpha, beta, C or a bias"
    void (*example)(Epilogue& epilogue, int64_t n);  // arguments of such a product, for who was told no more
};
inline constexpr FinishField kFinishFields[] = {
    {Finish::Affine, &GemmShape::affine, ", with alpha, beta, C or a bias", [](Epilogue& e, int64_t) { e.beta = 1; }},
    {Finish::HeadGaps, &GemmShape::head_gaps, ", with a gap in each head of D",
     [](Epilogue& e, int64_t n) {
         const int64_t head = n % 256 == 0 ? 256 : n;
         e.head_left = head / 16 * 8, e.head_gap = 64, e.head_right = head - e.head_left;
     }},
    {Finish::Gated, &GemmShape::gated, ", whose SwiGLU D is, quantised",
     [](Epilogue& e, int64_t) { e.gate_alpha = 1; }},
    {Finish::Indexed, &GemmShape::indexed, ", with rows by their numbers",
     [](Epilogue& e, int64_t) {
         e.rows_of_a.rows.rows = e.rows_of_d.rows.rows = e.factors_of_rows.rows.matrix.rows = 1;
     }},
};
/// The row of the finish that a shape asks for; null where D is the product.
constexpr const FinishField* find_finish(const GemmShape& s) {
    for (const FinishField& x : kFinishFields)
        if (s.*x.asked) return &x;
    return nullptr;
}
constexpr Finish finish_of(const GemmShape& s) { return find_finish(s) ? find_finish(s)->finish : Finish::None; }

/// Which products take a finish: those that take the field that asks for it.
constexpr Takers takers_of(Finish finish) {
    Takers takers{};
    const GemmShape shape;
    option_fields(
        [&](const Field& field, const auto&) {
            if (std::string_view(field.name) == facts_of(finish).name) takers = field.takers;
        },
        shape);
    return takers;
}

/// An argument of an epilogue, and the finish that it is of.
struct EpilogueArgument {
    const char* name;
    Finish finish;
    const char* meaning;
};

/// Calls visit(argument, its member of each of `epilogues`), which have members of the arguments' names.
template <typename Visit, typename... Epilogues>
constexpr void epilogue_arguments(const Visit& visit, Epilogues&... epilogues) {
    using A = EpilogueArgument;
    visit(A{"alpha", Finish::Affine, "Of the product: D is alpha A B + beta C + bias"}, epilogues.alpha...);
    visit(A{"beta", Finish::Affine, "Of C, which is random; 0: there is none"}, epilogues.beta...);
    visit(A{"c", Finish::Affine, "A matrix like D"}, epilogues.c...);
    visit(A{"bias", Finish::Affine, "Add a random bias to each column of D"}, epilogues.bias...);
    visit(A{"head_left", Finish::HeadGaps, "Columns of the product before the gap of a head of D"},
          epilogues.head_left...);
    visit(A{"head_gap", Finish::HeadGaps, "Columns of D in the gap of a head, which are not written"},
          epilogues.head_gap...);
    visit(A{"head_right", Finish::HeadGaps, "Columns of the product behind the gap"}, epilogues.head_right...);
    visit(A{"sfd", Finish::Gated, "Scales of D, which is the SwiGLU of the product, quantised"}, epilogues.sfd...);
    visit(A{"row_weights", Finish::Gated, "A number for each row that its SwiGLU is multiplied by"},
          epilogues.row_weights...);
    visit(A{"gate_limit", Finish::Gated, "Of gates from above, and of the magnitudes of ups; 0: none"},
          epilogues.gate_limit...);
    visit(A{"gate_alpha", Finish::Gated, "Factor of the gate in its sigmoid; 0: 1"}, epilogues.gate_alpha...);
    visit(A{"up_offset", Finish::Gated, "Added to ups"}, epilogues.up_offset...);
    visit(A{"bf16_between", Finish::Gated, "The product and its SwiGLU are rounded to bf16"},
          epilogues.bf16_between...);
    visit(A{"power_of_two_sfd", Finish::Gated, "Scales of D are powers of two"}, epilogues.power_of_two_sfd...);
    visit(A{"rows_of_a", Finish::Indexed, "Rows of A that the rows of the product are of; -1: zeros"},
          epilogues.rows_of_a...);
    visit(A{"rows_of_d", Finish::Indexed, "Rows of D that they are stored as; -1: none"}, epilogues.rows_of_d...);
    visit(A{"factors_of_rows", Finish::Indexed, "A number for each row of the product that it is multiplied by"},
          epilogues.factors_of_rows...);
}

/// Calls visit(name, its member of each of `epilogues`) for each argument of a type: ConstStack, which is like D, or
/// ConstMatrix, which has a number for each column of D.
template <typename Type, typename Visit, typename... Epilogues>
constexpr void arguments_of(const Visit& visit, Epilogues&... epilogues) {
    epilogue_arguments(
        [&]<typename T, typename... Others>(const EpilogueArgument& argument, T& first, Others&... others) {
            if constexpr (std::is_same_v<std::remove_const_t<T>, Type>) visit(argument.name, first, others...);
        },
        epilogues...);
}

// Does an argument say more than that D is the product?
inline bool is_given(float x, float usual) { return x != usual; }
inline bool is_given(int64_t x, int64_t usual) { return x != usual; }
inline bool is_given(const std::optional<float>& x, const std::optional<float>&) { return x.value_or(0) != 0; }
inline bool is_given(const ConstMatrix& x, const ConstMatrix&) { return x.data || x.rows != 0 || x.cols != 0; }
inline bool is_given(const ConstStack& x, const ConstStack& usual) { return is_given(x.matrix, usual.matrix); }
inline bool is_given(const Stack& x, const Stack& usual) { return is_given(ConstStack(x), ConstStack(usual)); }
inline bool is_given(const RowNumbers& x, const RowNumbers& usual) { return is_given(x.rows, usual.rows); }
inline bool is_given(const RowIndices& x, const RowIndices& usual) { return is_given(x.rows, usual.rows); }
inline bool is_given(bool x, bool) { return x; }
inline constexpr Epilogue kNoEpilogue{};

/// Calls visit(argument, value) for each argument that is given.
template <typename Visit>
constexpr void given_arguments(const Visit& visit, const Epilogue& epilogue) {
    epilogue_arguments(
        [&](const EpilogueArgument& argument, const auto& value, const auto& usual) {
            if (is_given(value, usual)) visit(argument, value);
        },
        epilogue, kNoEpilogue);
}
// C is multiplied by beta, which is 1 where it is not given: with 0 there need be no C, and none is read.
inline bool needs_c(const Epilogue& x) { return x.beta.value_or(0) != 0; }
inline bool adds_c(const Epilogue& x) { return x.c.matrix.data && x.beta.value_or(1) != 0; }

// Rows of A, and of D, that numbers say; and rows of the product, which are as many as A has where none do.
inline bool takes_rows(const Epilogue& x) { return is_given(x.rows_of_a, {}); }
inline bool places_rows(const Epilogue& x) { return is_given(x.rows_of_d, {}); }
inline int64_t rows_of_product(const Epilogue& x, int64_t rows) { return takes_rows(x) ? x.rows_of_a.rows.rows : rows; }

/// Calls visit(may they be the same, its member of each of `epilogues`) for numbers of rows: of A, of which several
/// rows of the product may be, and of D.
template <typename Visit, typename... Epilogues>
constexpr void numbers_of_rows(const Visit& visit, Epilogues&... epilogues) {
    visit(true, epilogues.rows_of_a...);
    visit(false, epilogues.rows_of_d...);
}

/// What an epilogue makes of the product. C that is not read makes nothing of it.
inline Finish finish_of(const Epilogue& epilogue) {
    Finish finish = Finish::None;
    given_arguments(
        [&]<typename T>(const EpilogueArgument& argument, const T&) {
            if (!std::is_same_v<T, ConstStack> || adds_c(epilogue)) finish = argument.finish;
        },
        epilogue);
    return finish;
}
/// The name of the first one that is; null where there is none.
inline const char* first_given(const Epilogue& epilogue) {
    const char* first = nullptr;
    given_arguments([&](const EpilogueArgument& x, const auto&) { first = first ? first : x.name; }, epilogue);
    return first;
}
/// Sets the fields that the given arguments ask for.
inline void ask_for(const Epilogue& epilogue, GemmShape& shape) {
    given_arguments(
        [&](const EpilogueArgument& argument, const auto&) {
            for (const FinishField& x : kFinishFields) shape.*x.asked |= x.finish == argument.finish;
        },
        epilogue);
}

// Columns of D, by the epilogue of a call.

/// Most columns of each part of a head: with them added, a column of D still is a number that kernels can divide.
inline constexpr int64_t kMaxHeadPart = 65536;

/// Is it one? A gap has at least eight columns; the others may have none.
inline bool is_head_part(int64_t cols, int64_t least) { return cols >= least && cols <= kMaxHeadPart && cols % 8 == 0; }

/// Columns of the product in a head of D; 0 where D has none.
inline int64_t head_cols(const Epilogue& x) {
    const bool sound = is_head_part(x.head_left, 0) && is_head_part(x.head_gap, 8) && is_head_part(x.head_right, 0);
    return sound ? x.head_left + x.head_right : 0;
}

/// Where the columns of the product lie in D, of a call that has been checked.
inline DColumns columns_of(const Epilogue& x) {
    if (head_cols(x) == 0) return {};
    return {Divider::by(static_cast<uint32_t>(head_cols(x))), static_cast<uint32_t>(x.head_right),
            static_cast<uint32_t>(x.head_gap)};
}

/// Columns of a D that has those of a product with `n`.
inline int64_t width_of_d(const Epilogue& x, int64_t n) {
    if (pairs_columns(finish_of(x))) return n / 2;
    return head_cols(x) > 0 ? n + n / head_cols(x) * x.head_gap : n;
}

/// The reverse: columns of the product, for a D of that width; the width itself where there is no such product.
inline int64_t product_cols(const Epilogue& x, int64_t width) {
    if (pairs_columns(finish_of(x))) return 2 * width;
    const int64_t head = head_cols(x);
    return head > 0 && width % (head + x.head_gap) == 0 ? width / (head + x.head_gap) * head : width;
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

/// The grouping that a shape asks for; the first one where it asks for several.
constexpr Grouping grouping_of(const GemmShape& s) {
    return s.groups ? Grouping::Rows : s.k_groups ? Grouping::K : s.summed ? Grouping::Sum : Grouping::None;
}

/// Types of A, of B and of D, of a shape whose types are known ones.
inline const ElementType& operand_type(const GemmShape& s) { return *find_type(s.dtype.value_or(DType::E4M3)); }
inline const ElementType& type_of_b(const GemmShape& s) {
    return s.dtype_of_b ? *find_type(*s.dtype_of_b) : operand_type(s);
}
inline DType result_type(const GemmShape& s) {
    return s.out_dtype.value_or(s.k_groups ? DType::F32 : operand_type(s).results[0]);
}

// Checks, which throw Error(InvalidArgument).

/// Throws for a field that does not belong to the shape's kind of product, for a value that no product takes, and for
/// extents that need no kernel.
void check_shape(const GemmShape& shape);
/// The checks of check_shape but for those of extents.
void check_fields(const GemmShape& shape);
/// Throws for types of A and B that no kernel multiplies in such a product. `name`: of what has the type of A.
void check_operand_types(const Problem& problem, const char* name);

inline constexpr int64_t kMaxGroups = 4096;
/// Groups of K: a tile that is published has sixteen bits for its group.
inline constexpr int64_t kMaxKGroups = 65535;
/// Rows of the smallest blocks by which indices are read.
inline constexpr int64_t kMinIndexAlignment = 64;
void check_group_count(int64_t groups, int64_t most = kMaxGroups, const char* name = "groups");
void check_expected_m(int64_t rows);
/// `form`: what it is the alignment of.
void check_alignment(int64_t alignment, int64_t least, std::string_view form);
void check_num_sms(int32_t num_sms);
/// The rule for the K of groups of K.
inline constexpr const char* kWholeBlocks =
    "must be a multiple of 128, as each group has whole blocks; pad groups with zeros";
static_assert(kScaleBlock == 128);

}  // namespace finegemm::plan
