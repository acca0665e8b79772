// Selection on the CPU against its rules, and selections from logits against logits and selections. Layer tests.
#include <gtest/gtest.h>

#include <numeric>

#include "engine/cpu.h"
#include "ops/topk/cpu.h"
#include "support/mqa.h"
#include "support/slowdown.h"
#include "support/topk.h"

namespace finegemm {
namespace {

using test::TopkProblem;

/// Is x before y? NaN before all, -0 as 0.
bool goes_before(float x, float y) {
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && !std::isnan(y);
    return x > y;
}

/// Bins as the document has them: by what a number is, not by its bits.
int64_t bin_of(float x) {
    if (std::isnan(x)) return 255;
    const float size = std::abs(x);
    int64_t bin = 0;
    if (size >= 131072) bin = 127;
    else if (size >= std::exp2(-15.0f)) {
        int exponent = 0;
        const float mantissa = std::frexp(size, &exponent) * 2;  // size = mantissa * 2^(exponent - 1)
        bin = std::min<int64_t>(127, (exponent - 1 + 15) * 4 + static_cast<int64_t>((mantissa - 1) * 4));
    }
    return x < 0 ? 127 - bin : 128 + bin;
}

test::Selected by_the_rules(TopkProblem& p) {
    test::TopkMemory memory(p.rows, p.k, p.with_values, p.with_histogram, p.padding);
    for (int64_t i = 0; i < p.rows; ++i) {
        const auto [begin, end] = p.window(i);
        std::vector<int64_t> columns(static_cast<size_t>(std::max<int64_t>(end - begin, 0)));
        std::iota(columns.begin(), columns.end(), begin);
        if (p.with_histogram) {
            for (int64_t b = 0; b < 256; ++b) memory.histogram.at(i, b) = 0;
            for (const int64_t j : columns) ++memory.histogram.at(i, bin_of(p.logits.at(i, j)));
        }
        std::ranges::stable_sort(
            columns, [&](int64_t x, int64_t y) { return goes_before(p.logits.at(i, x), p.logits.at(i, y)); });
        columns.resize(std::min(columns.size(), static_cast<size_t>(p.k)));
        if (!p.options.sorted) std::ranges::sort(columns);
        for (int64_t c = 0; c < p.k; ++c) {
            const bool none = c >= static_cast<int64_t>(columns.size());
            memory.indices.at(i, c) = none ? -1 : static_cast<int32_t>(columns[static_cast<size_t>(c)]);
            if (p.with_values)
                memory.values.at(i, c) = none ? -INFINITY : p.logits.at(i, columns[static_cast<size_t>(c)]);
        }
    }
    return memory.selected();
}

TEST(CpuTopk, FollowsItsRules) {
    test::Random random(61);
    ThreadPool pool(2);
    for (uint32_t i = 0; i < test::tried(300); ++i) {
        TopkProblem p(random, 4, 3000);
        const auto wanted = by_the_rules(p);
        const auto found = p.run([&](const TopkCall& call) { run_on_cpu(call, pool); });
        ASSERT_TRUE(found.intact) << p.name();
        ASSERT_TRUE(found == wanted) << p.name();
    }
}

/// Selects from logits in one call, and in two.
template <typename SomeCall, typename LogitsCall, typename Select>
void expect_same_selections(Backend& backend, SomeCall& call, const LogitsCall& logits, const Select& select, int64_t k,
                            bool both) {
    const int64_t rows = call.rows();
    test::TopkMemory one(rows, k, true, true, 0), two(rows, k, true, true, 0);
    test::Buffer<float> asked(DType::F32, rows, logits.d.cols);
    call.out = one.view();
    if (both) call.logits = asked.view();
    backend.run(call);
    backend.run(logits);
    backend.run(select(two.view()));
    ASSERT_TRUE(one.selected() == two.selected()) << text_of(call);
}

TEST(CpuTopk, OfLogitsIsThatOfWhatMqaLogitsGives) {
    test::Random random(62);
    const auto backend = make_cpu_backend({});
    for (uint32_t i = 0; i < test::tried(40); ++i) {
        test::MqaProblem p(random);
        if (p.queries.count == 0) continue;
        MqaCall logits = p.call();
        MqaOptions filled = logits.options;
        filled.form = LogitsForm::Filled;
        test::Buffer<float> d(DType::F32, p.queries.count, p.keys);
        const TopkOptions options{.sorted = i % 2 == 0, .relu = filled.relu};
        MqaTopkCall call{{.q = logits.q,
                          .k = logits.k,
                          .sfk = logits.sfk,
                          .w = logits.w,
                          .starts = logits.starts,
                          .ends = logits.ends,
                          .out = {},
                          .logits = {}},
                         options};
        const MqaCall all{.q = logits.q,
                          .k = logits.k,
                          .sfk = logits.sfk,
                          .w = logits.w,
                          .starts = logits.starts,
                          .ends = logits.ends,
                          .d = d.view(),
                          .options = filled};
        const auto select = [&](const TopkOutputs& out) {
            return TopkCall{{.logits = d.view(), .starts = logits.starts, .ends = logits.ends, .out = out}, options};
        };
        expect_same_selections(*backend, call, all, select, random.any(1, 50), i % 3 == 0);
    }
}

TEST(CpuTopk, OfPagedLogitsIsThatOfWhatPagedMqaLogitsGives) {
    test::Random random(63);
    const auto backend = make_cpu_backend({});
    for (uint32_t i = 0; i < test::tried(40); ++i) {
        test::PagedMqaProblem p(random);
        const PagedMqaCall logits = p.call();
        MqaOptions filled = logits.options;
        filled.form = LogitsForm::Filled;
        const int64_t width = p.most_pages * p.page_size, keys = i % 4 == 0 ? random.any(1, width) : 0;
        test::Buffer<float> d(DType::F32, logits.q.count, keys > 0 ? keys : width);
        const TopkOptions options{.sorted = i % 2 == 0, .relu = filled.relu};
        PagedMqaTopkCall call{{.q = logits.q,
                               .cache = logits.cache,
                               .w = logits.w,
                               .lengths = logits.lengths,
                               .block_table = logits.block_table,
                               .keys = keys,
                               .out = {},
                               .logits = {}},
                              options};
        const PagedMqaCall all{.q = logits.q,
                               .cache = logits.cache,
                               .w = logits.w,
                               .lengths = logits.lengths,
                               .block_table = logits.block_table,
                               .schedule = {},
                               .d = d.view(),
                               .options = filled};
        const auto select = [&](const TopkOutputs& out) {
            return TopkCall{{.logits = d.view(), .starts = {}, .ends = logits.lengths, .out = out},
                            options,
                            p.each,
                            p.own_lengths || p.each == 1};
        };
        expect_same_selections(*backend, call, all, select, random.any(1, 50), i % 3 == 0 && keys == 0);
    }
}

}  // namespace
}  // namespace finegemm
