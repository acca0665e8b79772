// The grouped GEMM of the CPU backend: against the definition, and against the GEMM of each row alone.
#include <gtest/gtest.h>

#include <climits>
#include <cmath>

#include <fmt/format.h>

#include "ops/gemm/cpu.h"
#include "support/cpu.h"
#include "support/grouped.h"
#include "support/slowdown.h"

namespace finegemm::cpu_grouped_test {
namespace {

using test::cpu_backend;
using test::GroupedProblem;
using test::Grouping;
using test::kUntouched;

/// Each form, with scales for blocks and for rows of B.
const std::vector<std::pair<GroupForm, bool>> kAllKinds = [] {
    std::vector<std::pair<GroupForm, bool>> all;
    for (const GroupForm form : test::kAllForms)
        for (const bool row_b_scales : {false, true}) all.emplace_back(form, row_b_scales);
    return all;
}();

constexpr Numerics kAllNumerics[] = {Numerics::Fast, Numerics::Exact, Numerics::Hopper};

void run(GroupedProblem& p, Numerics numerics, int threads = 2) {
    GemmOptions options;
    options.numerics = numerics;
    cpu_backend(threads)->gemm({p.args(), options});
}

std::vector<uint16_t> row_of(GroupedProblem& p, int64_t row) {
    const uint16_t* from = &p.d.at(p.buffer_row(row), 0);
    return {from, from + p.n};
}

/// What the row is by itself.
std::vector<uint16_t> row_by_dense_gemm(GroupedProblem& p, int64_t row, Numerics numerics) {
    std::vector<uint16_t> d(static_cast<size_t>(p.n) + 8);
    GemmArgs args = p.dense(row, p.grouping.group_of(row));
    args.d.data = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(d.data()) + 15) / 16 * 16);
    GemmOptions options;
    options.numerics = numerics;
    // Kernels for groups with scales for each row of B have the tensor cores multiply them, as this one does.
    if (p.row_b_scales) options.config = "m128n128s5w2_1d1d";
    else options.batch_invariant = true;
    cpu_backend(1)->gemm({args, options});
    const auto* first = static_cast<const uint16_t*>(args.d.data);
    return {first, first + p.n};
}

/// Rows with a group are right, those without are as their form wants it, and nothing else is written.
void expect_right(GroupedProblem& p, Numerics numerics) {
    run(p, numerics);
    for (int64_t r = 0; r < p.rows(); ++r) {
        if (p.grouping.group_of(r) >= 0) ASSERT_EQ(row_of(p, r), row_by_dense_gemm(p, r, numerics)) << "row " << r;
        else ASSERT_TRUE(p.row_is(r, p.grouping.form == GroupForm::Indices ? 0 : kUntouched)) << "row " << r;
    }
    for (int64_t s = 0; s < p.grouping.stacks(); ++s)
        for (int64_t r = p.grouping.m; r < p.a_pitch(); ++r)
            for (int64_t c = 0; c < p.n; ++c) ASSERT_EQ(p.d.at(s * p.a_pitch() + r, c), kUntouched);
    EXPECT_TRUE(p.d.surroundings_intact());
}

TEST(CpuGrouped, KeepsTheBoundOfTheDefinition) {
    for (const auto& [form, row_b_scales] : kAllKinds) {
        GroupedProblem p(test::random_grouping(form, 3, 130, 64, 5), 136, 400, 1, 16, 3, row_b_scales);
        for (const Numerics numerics : kAllNumerics) {
            run(p, numerics);
            for (int64_t r = 0; r < p.rows(); ++r) {
                const int64_t g = p.grouping.group_of(r);
                if (g < 0) continue;
                for (int64_t c = 0; c < p.n; ++c) {
                    double exact = 0, absolute = 0;
                    for (int64_t k = 0; k < p.k; ++k) {
                        const double a = float_of_e4m3(p.a.at(p.buffer_row(r), k));
                        const double b = float_of_e4m3(p.b.at(g * p.b_pitch() + c, k));
                        const double sfb = p.sfb.at(p.sfb_row(g, c), k / 128);
                        const double scale = p.sfa.at(p.buffer_row(r), k / 128) * sfb;
                        exact += a * b * scale;
                        absolute += std::max(std::abs(a), 0x1p-6) * std::max(std::abs(b), 0x1p-6) * scale;
                    }
                    ASSERT_LE(std::abs(float_of_bf16(p.d.at(p.buffer_row(r), c)) - exact),
                              error_bound(absolute, exact, GroupedProblem::blocks(p.k), numerics))
                        << "form " << static_cast<int>(form) << ", numerics " << static_cast<int>(numerics) << ", row "
                        << r << ", column " << c;
                }
            }
        }
    }
}

TEST(CpuGrouped, GivesEachRowTheBitsThatItHasAlone) {
    std::mt19937 random(11);
    const auto below = [&](uint32_t n) { return static_cast<int64_t>(random() % n); };
    for (const auto& [form, row_b_scales] : kAllKinds)
        for (uint32_t seed = 0; seed < test::tried(10); ++seed) {
            SCOPED_TRACE(fmt::format("form {}, scales of {}, seed {}", static_cast<int>(form),
                                     row_b_scales ? "rows" : "blocks", seed));
            GroupedProblem p(test::random_grouping(form, 1 + below(6), 1 + below(300), 64, seed), 8 + 8 * below(20),
                             16 + 16 * below(20), seed, 16 * below(3), below(3), row_b_scales);
            for (const Numerics numerics : kAllNumerics) expect_right(p, numerics);
        }
}

TEST(CpuGrouped, TakesGroupsOfEverySize) {
    const std::vector<Grouping> groupings = {
        {GroupForm::Offsets, 1, 300, 128, {0, 300}},             // one group, of more than one tile
        {GroupForm::Offsets, 4, 60, 128, {7, 7, 7, 7, 7}},       // all empty
        {GroupForm::Offsets, 4, 60, 128, {11, 12, 12, 30, 47}},  // from the middle to the middle
        {GroupForm::Offsets, 2, 600, 128, {1, 254, 599}},        // 253 rows: a tile and one more
        {GroupForm::PrefixSums, 3, 40, 1, {13, 13, 40}},
        {GroupForm::PrefixSums, 2, 40, 1 << 30, {13, 40}},  // nothing begins beyond M
        {GroupForm::Masked, 3, 16, 128, {0, 0, 0}},
        {GroupForm::Masked, 2, 260, 128, {260, 1}},
        {GroupForm::Indices, 2, 100, 1 << 30, std::vector<int32_t>(100, 1)},
        {GroupForm::Indices, 2, 100, 64, std::vector<int32_t>(100, -1)}};
    for (const Grouping& g : groupings) {
        SCOPED_TRACE("form " + std::to_string(static_cast<int>(g.form)) + ", M " + std::to_string(g.m));
        GroupedProblem p(g, 24, 144, 3);
        for (const Numerics numerics : kAllNumerics) expect_right(p, numerics);
    }
}

TEST(CpuGrouped, Takes4096Groups) {
    for (const GroupForm form : {GroupForm::Offsets, GroupForm::Masked}) {
        GroupedProblem p(test::random_grouping(form, 4096, 3, 128, 4), 8, 32, 2);
        for (const Numerics numerics : kAllNumerics) expect_right(p, numerics);
    }
}

TEST(CpuGrouped, WholeGroupsHaveAllRows) {
    GroupedProblem want({GroupForm::Masked, 3, 20, 128, {20, 20, 20}}, 136, 272, 9);
    GroupedProblem got(want.grouping, 136, 272, 9);
    run(want, Numerics::Exact);
    GroupedGemmArgs args = got.args();
    args.groups = {.form = GroupForm::Whole};
    cpu_backend(2)->gemm({args, {.numerics = Numerics::Exact}});
    for (int64_t r = 0; r < 60; ++r) EXPECT_TRUE(std::equal(&got.d.at(r, 0), &got.d.at(r, 0) + 136, &want.d.at(r, 0)));
}

TEST(CpuGrouped, ReadsScalesInAnyLayoutAndStacksInAnyOrder) {
    GroupedProblem p({GroupForm::Masked, 3, 20, 128, {20, 3, 11}}, 136, 272, 9);
    run(p, Numerics::Exact);
    // Rows of the three groups interleaved, scales by columns.
    std::vector<float> sfa(3 * 20 * 3);
    std::vector<uint8_t> a(3 * 20 * 272 + 16);
    std::vector<uint16_t> d(3 * 20 * 136 + 8);
    auto* a_data = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(a.data()) + 15) / 16 * 16);
    auto* d_data = reinterpret_cast<uint16_t*>((reinterpret_cast<uintptr_t>(d.data()) + 15) / 16 * 16);
    for (int64_t r = 0; r < 60; ++r) {
        const int64_t interleaved = r % 20 * 3 + r / 20;
        std::copy_n(&p.a.at(r, 0), 272, a_data + interleaved * 272);
        for (int64_t c = 0; c < 3; ++c) sfa[static_cast<size_t>(r / 20 + c * 3 + r % 20 * 9)] = p.sfa.at(r, c);
    }
    GroupedGemmArgs args = p.args();
    args.a = {{a_data, DType::E4M3, 20, 272, 3 * 272, 1, {}}, 3, 272};
    args.sfa = {{sfa.data(), DType::F32, 20, 3, 9, 3, {}}, 3, 1};
    args.d = {{d_data, DType::BF16, 20, 136, 3 * 136, 1, {}}, 3, 136};
    cpu_backend(2)->gemm({args, {.stream = nullptr, .numerics = Numerics::Exact, .config = {}}});
    for (int64_t r = 0; r < 60; ++r) {
        if (p.grouping.group_of(r) < 0) continue;
        EXPECT_TRUE(std::equal(&p.d.at(r, 0), &p.d.at(r, 0) + 136, d_data + (r % 20 * 3 + r / 20) * 136)) << r;
    }
}

TEST(CpuGrouped, ResultsMoveWithTheirGroups) {
    constexpr int64_t kGroups = 4, kRows = 10;
    const Grouping even{GroupForm::Offsets, kGroups, kGroups * kRows, 128, {0, 10, 20, 30, 40}};
    GroupedProblem p(even, 136, 272, 6), q(even, 136, 272, 7);
    const int64_t order[kGroups] = {2, 0, 3, 1};
    for (int64_t g = 0; g < kGroups; ++g) {
        for (int64_t r = 0; r < kRows; ++r) {
            std::copy_n(&p.a.at(order[g] * kRows + r, 0), 272, &q.a.at(g * kRows + r, 0));
            std::copy_n(&p.sfa.at(order[g] * kRows + r, 0), 3, &q.sfa.at(g * kRows + r, 0));
        }
        for (int64_t r = 0; r < 136; ++r) std::copy_n(&p.b.at(order[g] * 136 + r, 0), 272, &q.b.at(g * 136 + r, 0));
        for (int64_t r = 0; r < 2; ++r) std::copy_n(&p.sfb.at(order[g] * 2 + r, 0), 3, &q.sfb.at(g * 2 + r, 0));
    }
    for (const Numerics numerics : kAllNumerics) {
        run(p, numerics);
        run(q, numerics);
        for (int64_t r = 0; r < kGroups * kRows; ++r)
            ASSERT_EQ(row_of(q, r), row_of(p, order[r / kRows] * kRows + r % kRows)) << r;
    }
}

TEST(CpuGrouped, SplittingAGroupInTwoWithTheSameWeightsChangesNothing) {
    GroupedProblem p({GroupForm::Offsets, 2, 60, 128, {0, 17, 60}}, 40, 272, 8);
    GroupedGemmArgs args = p.args();
    args.b.stride = args.sfb.stride = 0;  // one matrix for all groups
    const auto rows_after = [&](std::vector<int32_t> offsets) {
        args.groups.data = offsets.data();
        cpu_backend(2)->gemm({args, {.stream = nullptr, .numerics = Numerics::Hopper, .config = {}}});
        return std::vector<uint16_t>(p.d.data(), p.d.data() + 60 * 40);
    };
    const auto whole = rows_after({0, 60, 60});
    EXPECT_EQ(rows_after({0, 17, 60}), whole);
    EXPECT_EQ(rows_after({0, 0, 60}), whole);
    EXPECT_EQ(std::ranges::count(whole, kUntouched), 0);
}

TEST(CpuGrouped, DoesNotDependOnTheNumberOfThreads) {
    const Grouping g = test::random_grouping(GroupForm::Offsets, 40, 700, 128, 3);
    for (const Numerics numerics : kAllNumerics) {
        GroupedProblem one(g, 136, 144, 5), many(g, 136, 144, 5);
        run(one, numerics, 1);
        run(many, numerics, 4);
        EXPECT_TRUE(std::equal(one.d.data(), one.d.data() + 700 * 136, many.d.data()));
    }
}

TEST(CpuGrouped, WildNumbersWriteNoByteOutsideOfTheRows) {
    const std::vector<int32_t> wild[] = {{INT32_MIN, 7, -1, INT32_MAX, 3, 200},
                                         {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MIN, INT32_MIN, INT32_MIN},
                                         {0, 50, 0, 50, 0, 50},
                                         {50, 40, 30, 20, 10, 0},
                                         {-1, -2, 5, 6, 1 << 30, 51}};
    for (const GroupForm form : test::kAllForms)
        for (const std::vector<int32_t>& numbers : wild) {
            Grouping g{form, 5, 50, 64, {0, 0, 0, 0, 0, 0}};
            g.numbers.resize(form == GroupForm::Indices ? 50 : 6);  // valid, so that all of A is made
            GroupedProblem p(g, 24, 32, 1, 16, 2);
            for (size_t i = 0; i < p.grouping.numbers.size(); ++i) p.grouping.numbers[i] = numbers[i % 6];
            run(p, Numerics::Fast);
            EXPECT_TRUE(p.d.surroundings_intact());
            for (int64_t s = 0; s < g.stacks(); ++s)
                for (int64_t r = g.m; r < p.a_pitch(); ++r)
                    for (int64_t c = 0; c < p.n; ++c) ASSERT_EQ(p.d.at(s * p.a_pitch() + r, c), kUntouched);
        }
}

}  // namespace
}  // namespace finegemm::cpu_grouped_test
