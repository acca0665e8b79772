// The CPU takes operands at any address, with rows of any length. Layer tests.
#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include <finegemm/prenorm.h>
#include <finegemm/quantize.h>

#include "api/multiply.h"
#include "support/cpu.h"
#include "support/grouped.h"
#include "support/k_grouped.h"
#include "support/matrix.h"

namespace finegemm::test {
namespace {

/// Copies of matrices that begin `shift` bytes behind a multiple of 64, with three elements between rows.
class Shifted {
public:
    explicit Shifted(int64_t shift) : shift_(shift) {}

    ConstStack copy(const ConstStack& of) {
        ConstStack moved = of;
        ConstMatrix& x = moved.matrix;
        x.row_stride = x.cols + 3, x.col_stride = 1, moved.stride = x.rows * x.row_stride + 1;
        const auto bytes = static_cast<size_t>(of.count * moved.stride * size_of(x.dtype) + 128);
        auto* data = memory_.emplace_back(bytes).data();
        data += (64 - reinterpret_cast<uintptr_t>(data) % 64) + static_cast<uintptr_t>(shift_);
        x.data = data;
        for_each(of, [&](int64_t i, int64_t r, int64_t c) {
            std::memcpy(data + at(moved, i, r, c), static_cast<const char*>(of.matrix.data) + at(of, i, r, c),
                        static_cast<size_t>(size_of(x.dtype)));
        });
        return moved;
    }
    ConstMatrix copy(const ConstMatrix& x) { return copy(ConstStack{x}).matrix; }
    Stack copy(const Stack& x) {
        const ConstStack moved = copy(ConstStack(x));
        return {writable(moved.matrix), moved.count, moved.stride};
    }
    Matrix copy(const Matrix& x) { return writable(copy(ConstMatrix(x))); }

    static void expect_equal(const ConstStack& x, const ConstStack& y) {
        for_each(x, [&](int64_t i, int64_t r, int64_t c) {
            ASSERT_EQ(std::memcmp(static_cast<const char*>(x.matrix.data) + at(x, i, r, c),
                                  static_cast<const char*>(y.matrix.data) + at(y, i, r, c),
                                  static_cast<size_t>(size_of(x.matrix.dtype))),
                      0)
                << i << ", " << r << ", " << c;
        });
    }

private:
    static Matrix writable(const ConstMatrix& x) {
        return {const_cast<void*>(x.data), x.dtype, x.rows, x.cols, x.row_stride, x.col_stride, {}};
    }
    static int64_t at(const ConstStack& s, int64_t i, int64_t r, int64_t c) {
        return (i * s.stride + r * s.matrix.row_stride + c * s.matrix.col_stride) * size_of(s.matrix.dtype);
    }
    template <typename Use>
    static void for_each(const ConstStack& s, const Use& use) {
        for (int64_t i = 0; i < s.count; ++i)
            for (int64_t r = 0; r < s.matrix.rows; ++r)
                for (int64_t c = 0; c < s.matrix.cols; ++c) use(i, r, c);
    }

    int64_t shift_;
    std::deque<std::vector<char>> memory_;
};

/// The call's D must have the same bits when all that it has lies elsewhere.
void expect_same_bits(Context& context, Call call) {
    for (const int64_t shift : {1, 2, 4, 8}) {
        Shifted memory(shift);
        Call moved = call;
        for (ConstStack* x : {&moved.a, &moved.sfa, &moved.b, &moved.sfb}) *x = memory.copy(*x);
        moved.d = memory.copy(call.d);
        multiply(context, moved);
        Shifted here(0);
        Call aligned = call;
        aligned.d = here.copy(call.d);
        multiply(context, aligned);
        Shifted::expect_equal(moved.d, aligned.d);
    }
}

TEST(AnyAddress, GivesTheSameBitsInEachNumericsAndTypeOfD) {
    Context context(cpu_options());
    for (const Numerics numerics : {Numerics::Fast, Numerics::Exact, Numerics::Hopper})
        for (const DType dtype : {DType::BF16, DType::F32})
            for (const bool accumulate : {false, true}) {
                if (accumulate && dtype == DType::BF16) continue;
                Problem p(7, 136, 272, 5, false, 0, true);
                Buffer<float> wide(DType::F32, 7, 136);
                for (int64_t r = 0; r < 7; ++r)
                    for (int64_t c = 0; c < 136; ++c) wide.at(r, c) = static_cast<float>(r - c);
                GemmArgs args = p.args();
                if (dtype == DType::F32) args.d = wide.view();
                expect_same_bits(context,
                                 {args, {.numerics = numerics, .check_values = true, .accumulate = accumulate}});
            }
}

TEST(AnyAddress, GivesTheSameBitsOfGroups) {
    Context context(cpu_options());
    for (const GroupForm form : kAllForms) {
        GroupedProblem p(random_grouping(form, 4, 60, 64, 3), 136, 272, 1);
        expect_same_bits(context, {p.args(), {.check_values = true}});
    }
    KGroupedProblem p(30, 136, 768, {128, 384, 384, 768}, 1);
    expect_same_bits(context, {p.args(), {.check_values = true}});
}

TEST(AnyAddress, GivesTheSameBitsOfQuantisation) {
    Context context(cpu_options());
    const std::vector<uint32_t> values = [] {
        std::vector<uint32_t> v(130 * 144);
        for (size_t i = 0; i < v.size(); ++i)  // no exponent of NaN in any of the types
            v[i] = (static_cast<uint32_t>(i) * 2654435761u) & 0xbbffbbff;
        return v;
    }();
    for (const DType dtype : {DType::F32, DType::BF16, DType::F16})
        for (const bool blocks : {false, true})
            for (const int64_t shift : {1, 2, 4}) {
                const Matrix x{const_cast<uint32_t*>(values.data()), dtype, 130, 144, 144, 1, {}};
                Buffer<uint8_t> q(DType::E4M3, 130, 144);
                Buffer<float> scales(DType::F32, blocks ? 2 : 130, 2);
                const auto quantize = blocks ? quantize_blocks : quantize_rows;
                quantize(context, x, q.view(), scales.view(), {});
                Shifted memory(shift);
                const Matrix moved_q = memory.copy(q.view()), moved_scales = memory.copy(scales.view());
                std::memset(moved_q.data, 0, 144);
                std::memset(moved_scales.data, 0, 8);
                quantize(context, memory.copy(x), moved_q, moved_scales, {});
                Shifted::expect_equal({moved_q}, {q.view()});
                Shifted::expect_equal({moved_scales}, {scales.view()});
            }
}

TEST(AnyAddress, GivesTheSameBitsBeforeANorm) {
    Context context(cpu_options());
    Buffer<uint16_t> a(DType::BF16, 7, 192);
    Buffer<float> b(DType::F32, 24, 192), d(DType::F32, 14, 24), sqrsum(DType::F32, 2, 7);
    for (int64_t k = 0; k < 192; ++k) {
        for (int64_t m = 0; m < 7; ++m) a.at(m, k) = bf16_of_float(static_cast<float>(k - 7 * m) / 16);
        for (int64_t n = 0; n < 24; ++n) b.at(n, k) = static_cast<float>(n - k) / 7;
    }
    Stack slices{d.view(), 2, 7 * 24};
    slices.matrix.rows = 7;
    prenorm_gemm(context, {a.view(), b.view(), slices, sqrsum.view()});
    for (const int64_t shift : {2, 4, 6}) {
        Shifted memory(shift);
        const Stack moved = memory.copy(slices);
        const Matrix squares = memory.copy(sqrsum.view());
        std::memset(moved.matrix.data, 0, 24), std::memset(squares.data, 0, 24);
        prenorm_gemm(context, {memory.copy(a.view()), memory.copy(b.view()), moved, squares});
        Shifted::expect_equal(moved, slices);
        Shifted::expect_equal({squares}, {sqrsum.view()});
    }
}

}  // namespace
}  // namespace finegemm::test
