// Calls, right and wrong, of products whose rows of A and of D are found by numbers, from C. Layer tests.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "api/calls.h"

namespace finegemm::test {
namespace {

/// 40 rows of the product, of 40 tokens in reverse, stored in reverse: right until a test changes it.
struct IndexedCall : GroupedCall {
    std::vector<int32_t> rows_of_a, rows_of_d;
    std::vector<float> factors = std::vector<float>(40, 1);
    finegemm_epilogue epilogue{};

    explicit IndexedCall(Grouping grouping = {GroupForm::Offsets, 4, 40, 128, {0, 10, 10, 25, 40}})
        : GroupedCall(std::move(grouping)) {
        for (int32_t i = 0; i < 40; ++i) rows_of_a.push_back(39 - i), rows_of_d.push_back(39 - i);
        epilogue.struct_size = sizeof epilogue;
        epilogue.alpha = 1;
        epilogue.rows_of_a = of(rows_of_a.data(), DType::I32);
        epilogue.rows_of_d = of(rows_of_d.data(), DType::I32);
        epilogue.factors_of_rows = {of(factors.data(), DType::F32), 1, 0};
        options.epilogue = &epilogue;
    }
    static finegemm_matrix of(const void* data, DType type) { return c_matrix({data, type, 40, 1, 1, 1, {}}); }
};

TEST(Indexed, IsWrittenFromC) {
    const CContext context;
    IndexedCall call;
    call.rows_of_a[39] = -1;  // token 0 is left out, and D's row 0 becomes zero
    call.rows_of_d[38] = -1;  // D's row 1 stays
    call.factors[37] = 2;
    ASSERT_EQ(call.run(context.get()), FINEGEMM_OK) << call.error.message;
    EXPECT_TRUE(call.problem.row_is(0, 0));
    EXPECT_TRUE(call.problem.row_is(1, kUntouched));
    for (int64_t row = 2; row < 40; ++row) {  // token t is multiplied by the B of row 39 - t, and stored as row t
        const int64_t group = call.problem.grouping.group_of(39 - row);
        GemmArgs one = call.problem.dense(row, group);
        std::vector<uint16_t> wanted(256);
        one.d.data = wanted.data();
        GemmCall alone;
        alone.args = {c_matrix(one.a), c_matrix(one.sfa), c_matrix(one.b), c_matrix(one.sfb),
                      c_matrix(ConstMatrix(one.d))};
        ASSERT_EQ(alone.run(context.get()), FINEGEMM_OK);
        for (size_t col = 0; col < 256; ++col)
            ASSERT_EQ(float_of_bf16(call.problem.d.at(row, static_cast<int64_t>(col))),
                      (row == 2 ? 2 : 1) * float_of_bf16(wanted[col]))
                << row;
    }
}

TEST(Indexed, IsRefusedWithAReason) {
    const CContext context;
    const std::pair<void (*)(IndexedCall&), const char*> misuses[] = {
        {[](IndexedCall& c) { c.epilogue.rows_of_a.dtype = FINEGEMM_F32; },
         "rows_of_a: has dtype f32, must be i32; convert it"},
        {[](IndexedCall& c) { c.epilogue.rows_of_d.rows = 39; },
         "rows_of_d: has shape [39, 1], must be [40, 1], a number for each row of the product; pass as many"},
        {[](IndexedCall& c) { c.epilogue.rows_of_d.row_stride = 2; },
         "rows_of_d: has row stride 2, must be 1; make it contiguous"},
        {[](IndexedCall& c) { c.epilogue.rows_of_a.device_type = FINEGEMM_CUDA; },
         "rows_of_a: is on cuda:0, but d is on cpu; all must be on one device"},
        {[](IndexedCall& c) { c.epilogue.factors_of_rows.matrix.rows = 3; },
         "factors_of_rows: has 3 numbers in 1 stacks, must have 40 in 1, one for each row of d; pass as many"},
        {[](IndexedCall& c) { c.epilogue.rows_of_d = {}, c.args.d.matrix.rows = 30; },
         "d: has 30 rows, must have 40, one for each row of the product; pass as many"},
        {[](IndexedCall& c) { c.args.a.matrix.rows = c.args.sfa.matrix.rows = 0; },
         "a: has no rows, must have some where rows_of_a has 40 numbers; pass the rows that they are of"},
        {[](IndexedCall& c) { c.epilogue.alpha = 2; }, "rows_of_a: is given, but so is alpha; leave one of them out"},
        {[](IndexedCall& c) { c.rows_of_a[7] = 40, c.options.check_values = FINEGEMM_ON; },
         "rows_of_a: [7] is 40, must be from 0 to 39, or -1 for none; look at what computed it"},
        {[](IndexedCall& c) { c.rows_of_d[7] = -2, c.options.check_values = FINEGEMM_ON; },
         "rows_of_d: [7] is -2, must be from 0 to 39, or -1 for none; look at what computed it"},
        {[](IndexedCall& c) { c.rows_of_d[7] = 39, c.options.check_values = FINEGEMM_ON; },
         "rows_of_d: [7] is 39, as [0] is: a row of d is that of one row of the product; look at what computed it"},
    };
    for (const auto& [spoil, message] : misuses) {
        IndexedCall call;
        spoil(call);
        EXPECT_EQ(call.run(context.get()), FINEGEMM_INVALID_ARGUMENT) << message;
        EXPECT_STREQ(call.error.message, message);
        EXPECT_TRUE(call.problem.row_is(0, kUntouched)) << message;
    }
    IndexedCall masked(GroupedCall::masked());
    EXPECT_EQ(masked.run(context.get()), FINEGEMM_INVALID_ARGUMENT);
    EXPECT_STREQ(
        masked.error.message,
        "rows_of_a: is given, but groups have matrices of their own (masks, whole), must share one; pass offsets, "
        "indices or prefix_sums, or leave it out");
}

TEST(Indexed, IsUnknownToProgramsThatWereCompiledBefore) {
    const CContext context;
    IndexedCall call, plain;
    call.epilogue.struct_size = offsetof(finegemm_epilogue, rows_of_a);
    plain.options.epilogue = nullptr;
    ASSERT_EQ(call.run(context.get()), FINEGEMM_OK);
    ASSERT_EQ(plain.run(context.get()), FINEGEMM_OK);
    for (int64_t row = 0; row < 40; ++row)
        EXPECT_EQ(std::memcmp(&call.problem.d.at(row, 0), &plain.problem.d.at(row, 0), 512), 0);
}

}  // namespace
}  // namespace finegemm::test
