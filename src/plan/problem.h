// A product as the planner knows it: extents, operands, output, groups; no pointers. Layer plan.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <finegemm/gemm.h>
#include <finegemm/gemm/kernel_plan.h>

#include "plan/elements.h"

namespace finegemm::plan {

/// The kind of products that a kernel computes; a kernel takes problems of its own kind only.
struct Kind {
    Grouping grouping = Grouping::None;
    Operand a = kRowScaled, b = kBlockScaled;
    Output output = Output::BF16;
    Finish finish = Finish::None;
    constexpr bool operator==(const Kind&) const = default;
};
constexpr Kind kind_of(const GemmConfig& c) {
    Kind kind;
    kind_fields([](const char*, const auto& from, auto& to) { to = from; }, c, kind);
    return kind;
}

/// D: the type of its elements, whether the product is added to them, and what becomes of it before.
struct Result {
    DType element = DType::BF16;
    bool accumulate = false;
    Finish finish = Finish::None;
    constexpr bool operator==(const Result&) const = default;
};

/// Groups of rows, each with a B of its own, or of K, each with a D of its own; or matrices of stacks, whose products
/// are added up.
struct Groups {
    Grouping kind = Grouping::None;
    uint32_t count = 0;
    uint32_t expected_m = 0;  // rows of a group, as expected; 0: M / count
    uint32_t alignment = 0;   // groups begin at multiples of it, and M has their padding, if not 0
    constexpr bool operator==(const Groups&) const = default;
    constexpr uint32_t of_rows() const { return kind == Grouping::Rows ? count : 0; }
    constexpr uint32_t of_k() const { return kind == Grouping::K ? count : 0; }
    constexpr uint32_t summed() const { return kind == Grouping::Sum ? count : 0; }
};

/// Groups that have rows, and the rows of each.
struct BusyGroups {
    double groups, rows;
};

struct Problem {
    uint32_t m = 0, n = 0, k = 0;  // of all groups together; m: as many rows as there may be
    bool batch_invariant = false;  // the order of a row's sums may not depend on M
    uint32_t num_sms = 0;          // that may be used, if not 0
    Operand a = kRowScaled, b = kBlockScaled;
    Result d{};
    Groups groups{};
    constexpr bool operator==(const Problem&) const = default;
    /// Rows of groups of rows, as far as is known beforehand. M may be a capacity: who says how many rows to expect is
    /// believed. Else each group ends anywhere in its last block of `alignment` rows, of which half is padding then.
    constexpr BusyGroups busy_groups() const {
        if (groups.expected_m > 0) return {static_cast<double>(groups.count), static_cast<double>(groups.expected_m)};
        const uint32_t block = max(1, groups.alignment);
        const double busy = max(1, min(groups.count, m / block));
        const double rows = m / busy - (block - 1) / 2.0;
        return {busy, rows < 1 ? 1 : rows};
    }
    /// As many rows as there may be are expected: all groups have as many.
    constexpr bool has_equal_groups() const { return uint64_t{groups.of_rows()} * groups.expected_m == m; }
    constexpr uint32_t k_blocks() const {
        const uint32_t matrices = max(1, groups.summed());  // each has whole blocks
        return ceil_div(k / matrices, kRowBytes / bytes_of(a.element)) * matrices;
    }
    constexpr bool scaled() const { return a.scaling != Scaling::None; }
    /// Affine kernels also write the product alone: with scales of blocks in types other than bf16, and of groups of
    /// rows with an MN-major A. Those for sums write the sums of pieces, in f32.
    constexpr Kind kind() const {
        const bool also_affine = (b.scaling == Scaling::Blocks && d.element != DType::BF16) ||
                                 (groups.kind == Grouping::Rows && a.major == Major::MN);
        const Finish finish = d.finish == Finish::None && also_affine ? Finish::Affine : d.finish;
        const DType written = groups.kind == Grouping::Sum ? DType::F32 : d.element;
        return {groups.kind, a, b, find_type(written)->output.value(), finish};
    }
};

/// The problem of a shape that has been checked (plan/fields.h).
Problem problem_of(const GemmShape& shape);
GemmShape shape_of(const Problem& problem);

/// One line of text for a problem: extents, A, B, D, and each option that is set.
/// "gemm 4096x7168x2048 e4m3:row128 e4m3:block128 bf16 groups=64 expected_m=64"
std::string text_of(const Problem& problem);
/// The shape that a line says, for front ends; what it leaves out behind the extents has its default, and what follows
/// # is a comment. Throws Error(InvalidArgument) for text that is no such line.
GemmShape parse_shape(std::string_view line);

/// For caches of what depends on a problem alone.
struct ProblemHash {
    size_t operator()(const Problem& problem) const;
};

}  // namespace finegemm::plan
