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
        const ReferenceQuery query(call.q, call.w, i, call.options.relu);
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

}  // namespace
}  // namespace finegemm
