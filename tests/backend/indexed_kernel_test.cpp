// The text of kernels whose rows of A and of D are found by numbers, run on the host: launches are the backend's, and D
// has the bits of the CPU's model, which has those of a product of copied rows. Layer tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "ops/gemm/cpu.h"
#include "ops/routing/cpu.h"
#include "support/gemm_kernel.h"
#include "support/grouped.h"
#include "support/mock_driver.h"
#include "support/random.h"
#include "support/random_cases.h"

namespace finegemm {
namespace {

constexpr GemmConfig config(uint32_t tile_m, uint32_t stages, Output output) {
    return {.tile_m = tile_m,
            .tile_n = 128,
            .stages = stages,
            .math_warpgroups = tile_m > 64 ? 2u : 1u,
            .grouping = Grouping::Rows,
            .output = output,
            .finish = Finish::Indexed};
}

/// A product of which the rows of A, of D, or both are found by numbers: `T` tokens, all but those that are named NaN.
template <typename Element>
struct Problem {
    static constexpr DType kType = sizeof(Element) == 4 ? DType::F32 : DType::BF16;
    test::Random random;
    test::GroupedProblem groups;
    int64_t m, tokens, d_height;
    bool gathers, scatters, weighted, sums;
    test::Buffer<uint8_t> a;
    test::Buffer<float> sfa, factors;
    std::vector<int32_t> rows_of_a, rows_of_d;

    Problem(uint32_t seed, GroupForm form)
        : random(seed),
          groups(test::random_grouping(form, random.any(1, 3), 260, 64, seed), 8 * random.any(1, 34),
                 16 * random.any(1, 20), seed, 16),
          m(groups.rows()),
          tokens(random.any(1, 90)),
          d_height(m + random.any(0, 40)),
          gathers(random.any(1, 3) > 1),
          scatters(!gathers || random.one_in(2)),
          weighted(random.one_in(2)),
          sums(kType == DType::BF16 && random.one_in(2)),
          a(DType::E4M3, tokens, groups.k, 16),
          sfa(DType::F32, tokens, test::GroupedProblem::blocks(groups.k), 1),
          factors(DType::F32, m, 1, static_cast<int64_t>(seed % 2)) {
        for (int64_t t = 0; t < tokens; ++t) {
            std::fill_n(&a.at(t, 0), groups.k, 0x7f);
            std::fill_n(&sfa.at(t, 0), test::GroupedProblem::blocks(groups.k), std::numeric_limits<float>::quiet_NaN());
        }
        for (int64_t r = 0; r < m; ++r) {
            factors.at(r, 0) = random.normal(1);
            const auto token = static_cast<int32_t>(random.any(0, tokens - 1));
            const bool none = random.one_in(6);
            rows_of_a.push_back(none ? random.one_of({-1, -7, static_cast<int32_t>(tokens)}) : token);
            if (none || groups.grouping.group_of(r) < 0) continue;
            for (int64_t c = 0; c < groups.k; ++c) a.at(token, c) = e4m3_of_float(random.normal(100));
            for (int64_t c = 0; c < test::GroupedProblem::blocks(groups.k); ++c)
                sfa.at(token, c) = 0.01f + std::abs(random.normal(0.001f));
        }
        std::vector<int32_t> all(static_cast<size_t>(d_height));
        std::iota(all.begin(), all.end(), 0);
        for (int64_t r = 0; r < m; ++r) {
            std::swap(all[static_cast<size_t>(r)], all[static_cast<size_t>(random.any(r, d_height - 1))]);
            rows_of_d.push_back(random.one_in(6) ? random.one_of({-1, static_cast<int32_t>(d_height)})
                                                 : all[static_cast<size_t>(r)]);
        }
        if (!scatters) d_height = m;
    }

    test::Buffer<Element> new_d() { return {kType, d_height, groups.n, 8}; }
    GroupedGemmArgs args(test::Buffer<Element>& d) {
        GroupedGemmArgs x = groups.args();
        if (gathers) x.a = {a.view()}, x.sfa = {sfa.view()};
        x.d = {d.view()};
        return x;
    }
    /// Addresses of rows of D, as layers over ranks have them.
    std::vector<uint64_t> addresses(test::Buffer<Element>& d) const {
        std::vector<uint64_t> all;
        for (const int32_t row : rows_of_d)
            all.push_back(row >= 0 && row < d_height ? reinterpret_cast<uint64_t>(&d.at(row, 0)) : 0);
        return all;
    }
    Epilogue epilogue() {
        const auto numbers = [&](const std::vector<int32_t>& x) {
            return RowIndices{{x.data(), DType::I32, m, 1, 1, 1, {}}};
        };
        Epilogue x;
        if (gathers) x.rows_of_a = numbers(rows_of_a);
        if (scatters) x.rows_of_d = numbers(rows_of_d);
        if (weighted) x.factors_of_rows.rows = {factors.view()};
        return x;
    }
};

class IndexedKernel : public ::testing::Test {
protected:
    mock::Driver mock{FINEGEMM_MOCK_DRIVER};
    std::shared_ptr<const cuda::Driver> driver = cuda::Driver::open(FINEGEMM_MOCK_DRIVER);
    ThreadPool pool{1};

    template <GemmConfig C, typename Element>
    void compare(uint32_t seed, GroupForm form) {
        Problem<Element> p(seed, form);
        auto here = p.new_d(), there = p.new_d();
        const GemmOptions options{.numerics = Numerics::Hopper, .epilogue = p.epilogue()};
        const GroupedGemmArgs of_cpu = p.args(here), of_kernel = p.args(there);
        Call wanted(of_cpu, options);
        wanted.stores_sums = p.sums;
        cpu_gemm(wanted, pool);
        GemmOptions placed = options;
        const std::vector<uint64_t> addresses = p.addresses(there);
        if (p.scatters && seed % 2 == 0) placed.epilogue.rows_of_d = {{addresses.data(), DType::I64, p.m, 1, 1, 1, {}}};
        Call call(of_kernel, placed);
        call.stores_sums = p.sums;
        test::run_kernel<C>(*driver, call, seed);
        if (HasFatalFailure()) return;
        EXPECT_TRUE(there.surroundings_intact() && here.surroundings_intact());
        for (int64_t r = 0; r < p.d_height; ++r)
            for (int64_t c = 0; c < p.groups.n; ++c)
                ASSERT_EQ(std::memcmp(&there.at(r, c), &here.at(r, c), sizeof(Element)), 0)
                    << seed << ": row " << r << ", column " << c << ": " << +there.at(r, c) << ", not "
                    << +here.at(r, c) << ", " << p.gathers << p.scatters << p.weighted << p.sums;
    }
};

constexpr GroupForm kForms[] = {GroupForm::Offsets, GroupForm::Indices, GroupForm::PrefixSums};

TEST_F(IndexedKernel, HasTheBitsOfTheCpuForGroupsInEveryForm) {
    uint32_t seed = 0;
    for (uint32_t round = 1; round <= test::random_cases(2); ++round)
        for (const GroupForm form : kForms) {
            compare<config(64, 8, Output::BF16), uint16_t>(++seed, form);
            compare<config(128, 6, Output::BF16), uint16_t>(++seed, form);
            compare<config(256, 4, Output::BF16), uint16_t>(++seed, form);
            compare<config(64, 8, Output::F32), float>(++seed, form);
            compare<config(128, 6, Output::F32), float>(++seed, form);
            if (HasFatalFailure()) return;
        }
}

/// What is stored as sums are the bits of combine over the rows of a product that has been stored.
TEST_F(IndexedKernel, SumsAreThoseOfTheCombineCall) {
    for (uint32_t seed = 1; seed <= 12; ++seed) {
        Problem<uint16_t> p(seed, GroupForm::Offsets);
        auto d = p.new_d();
        test::Buffer<uint16_t> rows(DType::BF16, p.m, p.groups.n, 8), sums(DType::BF16, p.m, p.groups.n, 8);
        p.gathers = false, p.scatters = true;
        GemmOptions options{.numerics = Numerics::Hopper, .epilogue = p.epilogue()};
        Call stored(p.args(d), options);
        stored.stores_sums = true;
        cpu_gemm(stored, pool);
        GroupedGemmArgs args = p.groups.args();
        args.d = {rows.view()};
        cpu_gemm({args, {.numerics = Numerics::Hopper}}, pool);
        std::vector<int32_t> inverse(static_cast<size_t>(p.m));
        std::iota(inverse.begin(), inverse.end(), 0);
        CombineArgs combined{
            .y = {rows.view()}, .inverse = {inverse.data(), DType::I32, p.m, 1, 1}, .out = sums.view()};
        if (p.weighted) combined.weights = p.factors.view();
        const CombineOptions how;
        run_on_cpu(CombineCall{combined, how}, pool);
        int64_t found = 0;
        for (int64_t r = 0; r < p.m; ++r) {
            const int32_t to = p.rows_of_d[static_cast<size_t>(r)];
            if (p.groups.grouping.group_of(r) < 0 || to < 0 || to >= p.d_height) continue;
            ++found;
            for (int64_t c = 0; c < p.groups.n; ++c) ASSERT_EQ(d.at(to, c), sums.at(r, c)) << seed << ": " << r;
        }
        EXPECT_GT(found, 0);
    }
}

/// On the CPU each row is that of a product of its own, times its factor, and nothing else of D is written.
TEST_F(IndexedKernel, IsTheProductOfCopiedRows) {
    for (uint32_t seed = 1; seed <= 6; ++seed) {
        Problem<float> p(seed, kForms[seed % 3]);
        auto d = p.new_d(), untouched = p.new_d();
        const GemmOptions options{.numerics = Numerics::Hopper, .epilogue = p.epilogue()};
        cpu_gemm({p.args(d), options}, pool);
        std::vector<bool> written(static_cast<size_t>(p.d_height));
        for (int64_t r = 0; r < p.m; ++r) {
            const auto i = static_cast<size_t>(r);
            const int64_t group = p.groups.grouping.group_of(r), to = p.scatters ? p.rows_of_d[i] : r;
            const int64_t from = p.gathers ? p.rows_of_a[i] : p.groups.buffer_row(r);
            const bool zeros = group < 0 && p.groups.grouping.form == GroupForm::Indices && !p.scatters;
            if ((group < 0 && !zeros) || to < 0 || to >= p.d_height) continue;
            written[static_cast<size_t>(to)] = true;
            std::vector<float> row(static_cast<size_t>(p.groups.n));
            if (group >= 0 && (!p.gathers || (from >= 0 && from < p.tokens))) {
                GemmArgs one = p.groups.dense(0, group);
                if (p.gathers) {
                    one.a.data = &p.a.at(from, 0), one.sfa.data = &p.sfa.at(from, 0);
                } else {
                    one.a.data = &p.groups.a.at(from, 0), one.sfa.data = &p.groups.sfa.at(from, 0);
                }
                one.d = {row.data(), DType::F32, 1, p.groups.n, p.groups.n, 1, {}};
                cpu_gemm({one, {.numerics = Numerics::Hopper, .batch_invariant = true}}, pool);
            }
            for (int64_t c = 0; c < p.groups.n; ++c) {
                const float sum = row[static_cast<size_t>(c)];
                ASSERT_EQ(d.at(to, c), p.weighted && group >= 0 ? p.factors.at(r, 0) * sum : sum) << seed << ": " << r;
            }
        }
        for (int64_t r = 0; r < p.d_height; ++r) {
            if (written[static_cast<size_t>(r)]) continue;
            ASSERT_EQ(std::memcmp(&d.at(r, 0), &untouched.at(r, 0), static_cast<size_t>(p.groups.n) * 4), 0) << r;
        }
    }
}

}  // namespace
}  // namespace finegemm
