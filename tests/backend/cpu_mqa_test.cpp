// An indexer's scores on the CPU: random calls, bit for bit against their definition. Layer tests.
#include <gtest/gtest.h>

#include "ops/mqa/cpu.h"
#include "support/mqa.h"
#include "support/mqa_reference.h"
#include "support/random_cases.h"

namespace finegemm {
namespace {

using test::Logits;
using test::MqaProblem;
using test::PagedMqaProblem;
using test::Random;
using test::ReferenceQuery;

constexpr float kOutside = -std::numeric_limits<float>::infinity();

/// What d holds where no logit is.
uint32_t outside(const MqaOptions& options, DType type) {
    return options.form == LogitsForm::Filled ? test::stored_bits(kOutside, type) : Logits::untouched(type);
}

testing::AssertionResult is_by_definition(MqaProblem& p) {
    const MqaCall call = p.call();
    for (int64_t i = 0; i < p.queries.count; ++i) {
        const ReferenceQuery query(call.q, call.w, i, call.options.relu);
        const int64_t start = std::max(p.starts.at(0, i), 0), end = std::min<int64_t>(p.ends.at(0, i), p.keys);
        for (int64_t c = 0; c < call.d.cols; ++c) {
            const int64_t key = p.compressed() ? start + c : c;
            uint32_t wanted = outside(call.options, call.d.dtype);
            if (key >= start && key < end)
                wanted = test::stored_bits(
                    query.logit({&p.k.at(key, 0), static_cast<size_t>(p.queries.dim)}, p.sfk.at(0, key)), call.d.dtype);
            if (p.d.bits(i, c) != wanted)
                return testing::AssertionFailure()
                       << text_of(call) << ": [" << i << ", " << c << "] is " << p.d.bits(i, c) << ", not " << wanted;
        }
    }
    return testing::AssertionSuccess();
}

testing::AssertionResult is_by_definition(PagedMqaProblem& p) {
    const PagedMqaCall call = p.call();
    for (int64_t i = 0; i < p.queries.count; ++i) {
        const ReferenceQuery query(call.q, call.w, i, Relu::Exact);
        const int64_t b = i / p.each, t = i % p.each;
        const int64_t length =
            p.own_lengths ? p.lengths.at(b, p.each > 1 ? t : 0) : p.lengths.at(b, 0) - (p.each - 1 - t);
        for (int64_t c = 0; c < call.d.cols; ++c) {
            uint32_t wanted = outside(call.options, call.d.dtype);
            if (c < length) {
                int64_t page = p.block_table.at(b, c / p.page_size);
                if (page < 0 || page >= p.pages) page = 0;
                const int64_t slot = c % p.page_size;
                float scale = 0;
                std::memcpy(&scale, &p.cache.at(page, p.page_size * p.queries.dim + 4 * slot), 4);
                wanted = test::stored_bits(
                    query.logit({&p.cache.at(page, slot * p.queries.dim), static_cast<size_t>(p.queries.dim)}, scale),
                    call.d.dtype);
            }
            if (p.d.bits(i, c) != wanted)
                return testing::AssertionFailure()
                       << text_of(call) << ": [" << i << ", " << c << "] is " << p.d.bits(i, c) << ", not " << wanted;
        }
    }
    return testing::AssertionSuccess();
}

TEST(CpuMqa, LogitsOfRandomCallsAreByDefinitionAndNothingElseIsWritten) {
    Random random(38);
    ThreadPool pool(2);
    for (int64_t i = 0; i < test::random_cases(100); ++i) {
        MqaProblem p(random);
        run_on_cpu(p.call(), pool);
        ASSERT_TRUE(is_by_definition(p)) << "call " << i;
        ASSERT_TRUE(p.d.surroundings_intact()) << text_of(p.call());
    }
}

TEST(CpuMqa, LogitsOfRandomPagedCallsAreByDefinitionAndNothingElseIsWritten) {
    Random random(39);
    ThreadPool pool(2);
    for (int64_t i = 0; i < test::random_cases(100); ++i) {
        PagedMqaProblem p(random);
        run_on_cpu(p.call(), pool);
        ASSERT_TRUE(is_by_definition(p)) << "call " << i;
        ASSERT_TRUE(p.d.surroundings_intact()) << text_of(p.call());
    }
}

/// The rule of docs/indexer.md, unit by unit: row s is the first unit of slot s.
std::vector<int32_t> schedule_by_units(const std::vector<int32_t>& lengths, int64_t each, int64_t slots) {
    const int64_t atoms = each <= 2 ? 1 : (each + 1) / 2;
    std::vector<std::pair<int64_t, int64_t>> units;
    for (size_t b = 0; b < lengths.size(); ++b)
        for (int64_t atom = 0; atom < atoms; ++atom)
            for (int64_t split = 0; split * 256 < lengths[b]; ++split)
                units.emplace_back(static_cast<int64_t>(b) * atoms + atom, split);
    const auto total = static_cast<int64_t>(units.size());
    units.emplace_back(static_cast<int64_t>(lengths.size()) * atoms, 0);
    std::vector<int32_t> rows;
    int64_t unit = 0;
    for (int64_t s = 0; s <= slots; ++s) {
        rows.push_back(static_cast<int32_t>(units[static_cast<size_t>(unit)].first));
        rows.push_back(static_cast<int32_t>(units[static_cast<size_t>(unit)].second));
        unit += total / slots + (s >= slots - total % slots ? 1 : 0);
        unit = std::min(unit, total);
    }
    return rows;
}

TEST(CpuMqa, ASchedulesRowsAreTheFirstUnitsOfItsSlots) {
    Random random(40);
    ThreadPool pool(1);
    for (int i = 0; i < 300; ++i) {
        const int64_t requests = random.any(0, 9), each = random.any(1, 8), slots = random.any(1, 40);
        const int64_t most = random.one_of<int64_t>({0, 300, 9000}), columns = random.one_in(2) ? each : 1;
        test::Buffer<int32_t> lengths(DType::I32, requests, columns, random.any(0, 3));
        test::Buffer<int32_t> schedule(DType::I32, slots + 1, 2);
        std::vector<int32_t> last;
        for (int64_t b = 0; b < requests; ++b)
            last.push_back(lengths.at(b, columns - 1) = static_cast<int32_t>(random.any(-2, most)));
        const PagedMqaScheduleOptions options;
        run_on_cpu(PagedMqaScheduleCall{lengths.view(), each, schedule.view(), options}, pool);
        const std::vector<int32_t> wanted = schedule_by_units(last, each, slots);
        ASSERT_TRUE(std::equal(wanted.begin(), wanted.end(), schedule.data()))
            << requests << " " << each << " " << slots;
        ASSERT_TRUE(schedule.surroundings_intact());
    }
}

TEST(CpuMqa, BothFormsKeepToTheirBounds) {
    Random random(41);
    ThreadPool pool(2);
    int of_form[2] = {};
    double largest[2] = {};  // error as a share of its bound
    for (int n = 0; n < 300; ++n) {
        MqaProblem p(random);
        if (p.queries.logits != DType::F32 || p.compressed()) continue;
        const MqaCall call = p.call();
        run_on_cpu(call, pool);
        for (int64_t i = 0; i < call.queries(); ++i) {
            const ReferenceQuery query(call.q, call.w, i, call.options.relu);
            for (int64_t j = std::max(p.starts.at(0, i), 0); j < std::min<int64_t>(p.ends.at(0, i), p.keys); ++j) {
                const auto truth = query.in_double({&p.k.at(j, 0), static_cast<size_t>(call.dim())});
                const double scale = p.sfk.at(0, j), bound = truth.bound * scale;
                if (!(truth.absolute < 1e36 && truth.absolute > 1e-30 && scale > 1e-3)) continue;
                const double error = std::abs(static_cast<double>(p.d.f32.at(i, j)) - truth.sum * scale);
                ASSERT_LE(error, bound) << text_of(call) << " at " << i << ", " << j;
                largest[query.abs] = std::max(largest[query.abs], error / bound);
                ++of_form[query.abs];
            }
        }
    }
    for (const int form : {0, 1}) {
        EXPECT_GT(of_form[form], 1000);
        EXPECT_GT(largest[form], 0.01) << "the bound says too little";
    }
}

}  // namespace
}  // namespace finegemm
