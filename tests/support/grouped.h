// Operands of grouped GEMMs for tests, with nothing but NaN in rows without a group. Layer tests.
#pragma once

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include <finegemm/gemm.h>

#include "support/matrix.h"

namespace finegemm::test {

inline constexpr GroupForm kAllForms[] = {GroupForm::Offsets, GroupForm::Indices, GroupForm::PrefixSums,
                                          GroupForm::Masked};

/// Which rows belong to which group.
struct Grouping {
    GroupForm form = GroupForm::Offsets;
    int64_t groups = 0, m = 0, alignment = 128;
    std::vector<int32_t> numbers;

    bool masked() const { return form == GroupForm::Masked; }
    int64_t stacks() const { return masked() ? groups : 1; }
    Groups view() const {
        return {.form = form,
                .data = numbers.data(),
                .size = static_cast<int64_t>(numbers.size()),
                .alignment = alignment,
                .expected_m = 0,
                .device = {}};
    }
    /// Group of row `row`, counted through all stacks, as the API's documentation says it; -1: none. For valid numbers.
    int64_t group_of(int64_t row) const {
        if (form == GroupForm::Indices) return numbers[static_cast<size_t>(row)];
        if (masked()) return row % m < numbers[static_cast<size_t>(row / m)] ? row / m : -1;
        for (int64_t g = 0; g < groups; ++g) {
            const auto i = static_cast<size_t>(g);
            const int64_t before = i == 0 ? 0 : numbers[i - 1];
            const bool offsets = form == GroupForm::Offsets;
            const int64_t begin = offsets ? numbers[i] : (before + alignment - 1) / alignment * alignment;
            if (row >= begin && row < numbers[offsets ? i + 1 : i]) return g;
        }
        return -1;
    }
};

/// Valid numbers with empty groups and gaps among them.
inline Grouping random_grouping(GroupForm form, int64_t groups, int64_t m, int64_t alignment, uint32_t seed) {
    std::mt19937 random(seed);
    const auto below = [&](int64_t n) { return static_cast<int32_t>(random() % static_cast<uint64_t>(n)); };
    Grouping g{.form = form, .groups = groups, .m = m, .alignment = alignment, .numbers = {}};
    if (form == GroupForm::Indices) {
        g.numbers.assign(static_cast<size_t>(m), -1);
        for (int64_t block = 0; block < m; block += alignment)
            std::fill_n(&g.numbers[static_cast<size_t>(block)],
                        below(3) == 0 ? std::min(alignment, m - block) : below(std::min(alignment, m - block) + 1),
                        below(groups));
    } else if (form == GroupForm::PrefixSums) {
        for (int64_t i = 0, end = 0; i < groups; ++i) {
            const int64_t begin = std::min((end + alignment - 1) / alignment * alignment, m);
            end = std::min<int64_t>(m, begin + (below(4) == 0 ? 0 : below(2 * (m / groups) + 1)));
            g.numbers.push_back(static_cast<int32_t>(end));
        }
    } else {
        for (int64_t i = 0; i < groups + (g.masked() ? 0 : 1); ++i) g.numbers.push_back(below(m + 1));
        if (!g.masked()) std::ranges::sort(g.numbers);
    }
    return g;
}

/// Operands with random values. `padding`: elements between rows; `gap`: rows between the matrices of a stack.
struct GroupedProblem {
    Grouping grouping;
    int64_t n, k, gap;
    bool row_b_scales;
    Buffer<uint8_t> a, b;
    Buffer<float> sfa, sfb;
    Buffer<uint16_t> d;

    GroupedProblem(Grouping grouping_, int64_t n_, int64_t k_, uint32_t seed, int64_t padding = 0, int64_t gap_ = 0,
                   bool row_b_scales_ = false)
        : grouping(std::move(grouping_)),
          n(n_),
          k(k_),
          gap(gap_),
          row_b_scales(row_b_scales_),
          a(DType::E4M3, grouping.stacks() * a_pitch(), k, padding),
          b(DType::E4M3, grouping.groups * b_pitch(), k, padding),
          sfa(DType::F32, grouping.stacks() * a_pitch(), blocks(k), padding / 16),
          sfb(DType::F32, grouping.groups * sfb_pitch(), blocks(k), padding / 16),
          d(DType::BF16, grouping.stacks() * a_pitch(), n, padding / 2) {
        for (int64_t r = 0; r < grouping.stacks() * a_pitch(); ++r) {
            for (int64_t c = 0; c < k; ++c) a.at(r, c) = 0x7f;
            for (int64_t c = 0; c < blocks(k); ++c) sfa.at(r, c) = std::numeric_limits<float>::quiet_NaN();
        }
        std::mt19937 random(seed);
        for (int64_t r = 0; r < rows(); ++r)
            if (grouping.group_of(r) >= 0) fill(a, sfa, buffer_row(r), buffer_row(r), random);
        for (int64_t g = 0; g < grouping.groups; ++g)
            for (int64_t r = 0; r < n; ++r) fill(b, sfb, g * b_pitch() + r, sfb_row(g, r), random);
    }
    static int64_t blocks(int64_t x) { return Problem::blocks(x); }
    int64_t a_pitch() const { return grouping.m + gap; }
    int64_t b_pitch() const { return n + gap; }
    int64_t sfb_rows() const { return row_b_scales ? n : blocks(n); }
    int64_t sfb_pitch() const { return sfb_rows() + gap; }
    /// Index in its buffer of the scales of row r of group g's B.
    int64_t sfb_row(int64_t g, int64_t r) const { return g * sfb_pitch() + (row_b_scales ? r : r / 128); }
    /// Rows of all stacks.
    int64_t rows() const { return grouping.stacks() * grouping.m; }
    /// Index in its buffer of a row of A and D.
    int64_t buffer_row(int64_t row) const { return row / grouping.m * a_pitch() + row % grouping.m; }

    GroupedGemmArgs args() {
        const auto stack = [](Matrix x, int64_t pitch, int64_t rows) {
            const int64_t count = x.rows / pitch;
            x.rows = rows;
            return Stack{x, count, pitch * x.row_stride};
        };
        return {.a = stack(a.view(), a_pitch(), grouping.m),
                .sfa = stack(sfa.view(), a_pitch(), grouping.m),
                .b = stack(b.view(), b_pitch(), n),
                .sfb = stack(sfb.view(), sfb_pitch(), sfb_rows()),
                .d = stack(d.view(), a_pitch(), grouping.m),
                .groups = grouping.view()};
    }
    /// The GEMM of one row and its group.
    GemmArgs dense(int64_t row, int64_t group) {
        const GroupedGemmArgs all = args();
        GemmArgs one{all.a.matrix, all.sfa.matrix, all.b.matrix, all.sfb.matrix, all.d.matrix};
        one.a.data = &a.at(buffer_row(row), 0);
        one.sfa.data = &sfa.at(buffer_row(row), 0);
        one.b.data = &b.at(group * b_pitch(), 0);
        one.sfb.data = &sfb.at(sfb_row(group, 0), 0);
        one.d.data = &d.at(buffer_row(row), 0);
        one.a.rows = one.sfa.rows = one.d.rows = 1;
        return one;
    }
    bool row_is(int64_t row, uint16_t value) {
        return std::all_of(&d.at(buffer_row(row), 0), &d.at(buffer_row(row), 0) + n,
                           [=](uint16_t x) { return x == value; });
    }

private:
    void fill(Buffer<uint8_t>& codes, Buffer<float>& scales, int64_t row, int64_t scale_row, std::mt19937& random) {
        std::normal_distribution<float> normal(0, 100);
        std::uniform_real_distribution<float> scale(0.001f, 0.01f);
        for (int64_t c = 0; c < k; ++c) codes.at(row, c) = e4m3_of_float(normal(random));
        for (int64_t c = 0; c < blocks(k); ++c) scales.at(scale_row, c) = scale(random);
    }
};

inline constexpr uint16_t kUntouched = Buffer<uint16_t>::kPattern * 0x101;

}  // namespace finegemm::test
