// Numerics::Hopper: against the hardware's bits, and against the model as docs/numerics.md states it.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "gemm_reference.h"
#include "ops/gemm/cpu.h"
#include "ops/gemm/cpu_scale_factors.h"
#include "ops/gemm/cpu_tiles.h"
#include "plan/plan.h"

namespace finegemm::hopper_model_test {
namespace {

using test::Problem;

/// One addend of a step: its value, and the exponent that takes part in the alignment.
struct Addend {
    double value;
    int exponent;
};

Addend product(uint8_t a, uint8_t b) {
    const auto exponent = [](uint8_t code) { return std::max(code >> 3 & 15, 1) - 7; };
    return {static_cast<double>(float_of_e4m3(a)) * float_of_e4m3(b), exponent(a) + exponent(b)};
}

double truncated(double x, int unit) { return std::ldexp(std::trunc(std::ldexp(x, -unit)), unit); }

/// One wgmma, as docs/numerics.md states it.
double step(double sum, const std::vector<Addend>& products) {
    std::vector<Addend> addends = products;
    if (sum != 0) addends.push_back({sum, std::ilogb(sum)});
    std::erase_if(addends, [](const Addend& x) { return x.value == 0; });
    if (addends.empty()) return 0;
    if (std::ranges::any_of(addends, [](const Addend& x) { return std::isnan(x.value); })) return NAN;
    int largest = addends[0].exponent;
    for (const Addend& x : addends) largest = std::max(largest, x.exponent);
    double total = 0;  // exact: at most 33 addends of at most 16 bits
    for (const Addend& x : addends) total += truncated(x.value, largest - 13);
    return total == 0 ? 0 : truncated(total, std::ilogb(total) - 13);
}

/// Four steps, from zero.
float block(Problem& p, int64_t r, int64_t c, int64_t kb) {
    double sum = 0;
    for (int64_t k = kb * 128; k < std::min(p.k, kb * 128 + 128); k += 32) {
        std::vector<Addend> products;
        for (int64_t i = k; i < std::min(p.k, k + 32); ++i) products.push_back(product(p.a.at(r, i), p.b.at(c, i)));
        sum = step(sum, products);
    }
    return static_cast<float>(sum);
}

/// The sum for an element of D: promotion block by block, each k-slice of each rank of a split for itself, then the
/// k-slices, then the ranks in order.
float element_sum(Problem& p, int64_t r, int64_t c, Arithmetic of = {}) {
    const auto blocks = static_cast<uint32_t>(Problem::blocks(p.k));
    float total = 0;
    for (uint32_t rank = 0; rank < of.splits; ++rank) {
        float of_rank = 0;
        for (uint32_t k_slice = 0; k_slice < of.k_slices; ++k_slice) {
            float sum = 0;
            const uint32_t begin = blocks * rank / of.splits, end = blocks * (rank + 1) / of.splits;
            for (uint32_t kb = begin + k_slice; kb < end; kb += of.k_slices) {
                const float sfa = p.sfa_at(r, kb), sfb = p.sfb_at(c, kb);
                const float scale =
                    of.tensor_core_scales ? wgmma_factor(factor_operand(sfa), factor_operand(sfb)) : sfa * sfb;
                sum = std::fma(block(p, r, c, kb), scale, sum);
            }
            of_rank = k_slice == 0 ? sum : of_rank + sum;
        }
        total = rank == 0 ? of_rank : total + of_rank;
    }
    return total;
}

uint16_t element(Problem& p, int64_t r, int64_t c, Arithmetic of = {}) {
    return bf16_of_float(element_sum(p, r, c, of));
}

std::string kernel_with(Arithmetic wanted, plan::Kind kind = {}) {
    for (const GemmConfig& config : plan::candidates(kind))
        if (arithmetic_of(config) == wanted) return plan::name_of(config);
    return "";
}

void run(Problem& p, const std::string& kernel) {
    GemmOptions options;
    options.numerics = Numerics::Hopper;
    options.config = kernel;
    ThreadPool pool(2);
    cpu_gemm({p.args(), options}, pool);
}

std::vector<float> one_block(const GemmArgs& args) {
    std::vector<float> sums(static_cast<size_t>(args.d.rows * kCpuTileCols));
    hopper_tile(CpuTile{args, 0, args.d.rows, 0, args.d.cols}, {0, 1, 1}, false, sums.data());
    return sums;
}

// What wgmma.m64n16k32 made on an H200 (docs/numerics.md, "The experiment").

/// Four in a chain, from zero.
struct Recorded {
    uint8_t a[64 * 128], b[16 * 128];
    uint32_t d[64 * 16];
};

/// One, and four in a chain, from given sums: sparse products among which a subnormal one or none is the largest, and
/// NaN.
struct RecordedFromSums {
    uint8_t a[64 * 128], b[16 * 128];
    float c[64 * 16], d1[64 * 16], d4[64 * 16];
};

template <typename Record>
std::vector<Record> recorded(const std::string& name) {
    std::ifstream file(FINEGEMM_TEST_DIR "/backend/data/" + name, std::ios::binary);
    EXPECT_TRUE(file) << name;
    std::vector<Record> all(1);
    while (file.read(reinterpret_cast<char*>(&all.back()), sizeof(Record))) all.emplace_back();
    all.pop_back();
    return all;
}

double chain(const RecordedFromSums& x, size_t row, size_t col, size_t steps) {
    double sum = x.c[row * 16 + col];
    for (size_t s = 0; s < steps; ++s) {
        std::vector<Addend> products;
        for (size_t k = s * 32; k < s * 32 + 32; ++k)
            products.push_back(product(x.a[row * 128 + k], x.b[col * 128 + k]));
        sum = step(sum, products);
    }
    return sum;
}

bool same(double model, float hardware) {
    return std::isnan(model) ? std::isnan(hardware) : float_bits(static_cast<float>(model)) == float_bits(hardware);
}

TEST(HopperModel, AsStatedReproducesTheHardwareFromAnySum) {
    const auto all = recorded<RecordedFromSums>("wgmma_e4m3_h200_sums.bin");
    ASSERT_EQ(all.size(), 4u);
    int64_t nan = 0;
    for (const RecordedFromSums& x : all)
        for (size_t r = 0; r < 64; ++r)
            for (size_t c = 0; c < 16; ++c) {
                ASSERT_TRUE(same(chain(x, r, c, 1), x.d1[r * 16 + c])) << &x - all.data() << ": " << r << ", " << c;
                ASSERT_TRUE(same(chain(x, r, c, 4), x.d4[r * 16 + c])) << &x - all.data() << ": " << r << ", " << c;
                nan += std::isnan(x.d4[r * 16 + c]);
            }
    EXPECT_EQ(nan, 16) << "a row of A has a NaN";
}

TEST(HopperModel, ReproducesTheHardwareBitForBit) {
    const auto all = recorded<Recorded>("wgmma_e4m3_h200.bin");
    ASSERT_EQ(all.size(), 6u);
    const std::vector<float> ones(64, 1.0f);
    test::for_each_instruction_set([&] {
        for (const Recorded& x : all) {
            const std::vector<float> sums = one_block({.a = {x.a, DType::E4M3, 64, 128, 128, 1, {}},
                                                       .sfa = {ones.data(), DType::F32, 64, 1, 1, 1, {}},
                                                       .b = {x.b, DType::E4M3, 16, 128, 128, 1, {}},
                                                       .sfb = {ones.data(), DType::F32, 1, 1, 1, 1, {}},
                                                       .d = {nullptr, DType::BF16, 64, 16, 16, 1, {}}});
            for (size_t r = 0; r < 64; ++r)
                for (size_t c = 0; c < 16; ++c)
                    ASSERT_EQ(float_bits(sums[r * kCpuTileCols + c]), x.d[r * 16 + c])
                        << "case " << &x - all.data() << ", row " << r << ", column " << c;
        }
    });
}

TEST(HopperModel, TakesScalesOfRowsOfBAndAddsToWhatDHad) {
    Problem p(19, 136, 400, 21, true, 0, true);
    test::Buffer<float> d(DType::F32, p.m, p.n, 4);
    GemmArgs args = p.args();
    args.d = d.view();
    ThreadPool pool(2);
    for (const bool accumulate : {false, true}) {
        for (int64_t r = 0; r < p.m; ++r)
            for (int64_t c = 0; c < p.n; ++c) d.at(r, c) = static_cast<float>(r * 1000 - c) / 7;
        cpu_gemm({args, {.numerics = Numerics::Hopper, .accumulate = accumulate}}, pool);
        for (int64_t r = 0; r < p.m; ++r)
            for (int64_t c = 0; c < p.n; ++c) {
                const float sum = element_sum(p, r, c), old = static_cast<float>(r * 1000 - c) / 7;
                ASSERT_EQ(d.at(r, c), accumulate ? old + sum : sum) << r << ", " << c << ", accumulate " << accumulate;
            }
        EXPECT_TRUE(d.surroundings_intact());
    }
}

TEST(HopperModel, GivesTheStatedSumOfEachBlock) {
    // In FP32: rounded to bf16, sums would hide what becomes of their last bits.
    Problem p(19, 40, 1040, 11);
    test::fill_with_any_codes(p, 12);
    test::thin_out(p, 13);
    const GemmArgs args = p.args();
    test::for_each_instruction_set([&] {
        for (int64_t kb = 0; kb < Problem::blocks(p.k); ++kb) {
            std::vector<float> sums(static_cast<size_t>(p.m * kCpuTileCols));
            hopper_tile(CpuTile{args, 0, p.m, 0, p.n}, {kb, kb + 1, 1}, false, sums.data());
            for (int64_t r = 0; r < p.m; ++r)
                for (int64_t c = 0; c < p.n; ++c)
                    ASSERT_EQ(sums[static_cast<size_t>(r * kCpuTileCols + c)],
                              block(p, r, c, kb) * (p.sfa_at(r, kb) * p.sfb_at(0, kb)))
                        << "block " << kb << ", row " << r << ", column " << c;
        }
    });
}

struct Shape {
    int64_t m, n, k;
};

TEST(HopperModel, IsTheStatedOneForAnyShapeCodesAndOrder) {
    for (const Arithmetic of : {Arithmetic{}, {.splits = 3}, {.splits = 4}, {.k_slices = 2}}) {
        const std::string kernel = kernel_with(of);
        ASSERT_FALSE(kernel.empty()) << "no candidate has " << of.splits << " splits, " << of.k_slices << " k-slices";
        for (const Shape s : {Shape{1, 8, 528}, Shape{5, 136, 640}, Shape{254, 8, 512}, Shape{19, 40, 1040}}) {
            Problem p(s.m, s.n, s.k, 11, of.splits == 4, 16);
            if (s.k % 128 != 0) test::fill_with_any_codes(p, 12);
            run(p, kernel);
            for (int64_t r = 0; r < s.m; ++r)
                for (int64_t c = 0; c < s.n; ++c)
                    ASSERT_EQ(p.d.at(r, c), element(p, r, c, of)) << kernel << " " << s.m << "x" << s.n << "x" << s.k;
        }
    }
}

TEST(HopperModel, MultipliesScalesAsTheKernelDoes) {
    int64_t differing = 0;
    for (const bool wgmma : {false, true}) {
        const plan::Kind kind{.b = kRowScaled, .output = Output::F32};
        const Arithmetic of{.tensor_core_scales = wgmma};
        const std::string kernel = kernel_with(of, kind);
        ASSERT_FALSE(kernel.empty());
        for (const Shape s : {Shape{1, 8, 528}, Shape{5, 136, 640}, Shape{254, 8, 256}}) {
            Problem p(s.m, s.n, s.k, 13, s.m == 5, 16, true);
            test::Buffer<float> d(DType::F32, s.m, s.n, 0);
            GemmArgs args = p.args();
            args.d = d.view();
            ThreadPool pool(2);
            cpu_gemm({args, {.numerics = Numerics::Hopper, .config = kernel}}, pool);
            for (int64_t r = 0; r < s.m; ++r)
                for (int64_t c = 0; c < s.n; ++c) {
                    ASSERT_EQ(float_bits(d.at(r, c)), float_bits(element_sum(p, r, c, of))) << r << ", " << c;
                    differing += wgmma && d.at(r, c) != element_sum(p, r, c);
                }
        }
    }
    EXPECT_GT(differing, 100) << "the two ways give other bits";
}

TEST(HopperModel, AddsTheRanksOfASplitInOrder) {
    // Blocks of 1, 2^-24, ... and -1: one by one, the small ones are rounded away; where they meet first, some survive.
    const auto sum = [](Arithmetic of) {
        Problem p(1, 8, 768, 1);
        test::fill_with_zeros(p);
        constexpr float kScales[] = {1, 0x1p-24f, 0x1p-24f, 0x1p-24f, 0x1p-24f, 1};
        for (int64_t kb = 0; kb < 6; ++kb) {
            p.a.at(0, kb * 128) = e4m3_of_float(kb == 5 ? -1 : 1);
            p.b.at(0, kb * 128) = e4m3_of_float(1);
            p.sfa.at(0, kb) = kScales[kb];
            p.sfb.at(0, kb) = 1;
        }
        run(p, kernel_with(of));
        EXPECT_EQ(p.d.at(0, 0), element(p, 0, 0, of));
        return float_of_bf16(p.d.at(0, 0));
    };
    EXPECT_EQ(sum({}), 0);
    EXPECT_EQ(sum({.splits = 3}), 0x1.8p-23f) << "(1 + 2^-24) + (2^-24 + 2^-24) + (2^-24 - 1)";
    EXPECT_EQ(sum({.k_slices = 2}), 0x1p-23f) << "(1 + 2^-24 + 2^-24) + (2^-24 + 2^-24 - 1)";
}

TEST(HopperModel, MakesZeroOfZeroProducts) {
    // Rows of zeros, steps of zeros, and sums that cancel before a step of zeros.
    Problem p(3, 16, 272, 4);
    for (int64_t k = 0; k < p.k; ++k) {
        p.a.at(0, k) = k % 2 == 0 ? 0x00 : 0x80;
        if (k >= 32) p.a.at(1, k) = 0;
        p.a.at(2, k) = k == 0 ? e4m3_of_float(3) : k == 1 ? e4m3_of_float(-3) : uint8_t{0};
        p.b.at(0, k) = e4m3_of_float(2);
    }
    run(p, kernel_with({}));
    for (int64_t c = 0; c < 16; ++c) {
        EXPECT_EQ(p.d.at(0, c), 0);
        EXPECT_EQ(p.d.at(1, c), element(p, 1, c));
    }
    EXPECT_EQ(p.d.at(2, 0), 0);
}

TEST(HopperModel, TakesThePlannersOrderWithoutAName) {
    Problem p(16, 64, 4096, 9);
    const plan::Choice taken = plan::choose({16, 64, 4096}, *plan::find_device("h200"));
    const plan::Problem problem = problem_of({p.args(), {}});
    EXPECT_EQ(arithmetic_of(problem, ""), arithmetic_of(taken.config));
    const Arithmetic other{.k_slices = 2};
    ASSERT_NE(arithmetic_of(taken.config), other);
    EXPECT_EQ(arithmetic_of(problem, kernel_with(other)), other);
    EXPECT_EQ(arithmetic_of(problem, "m256n128s4w2"), Arithmetic{}) << "these may be some rows of a product";
    const plan::Problem few_sms = problem_of({p.args(), {.num_sms = 16}});
    EXPECT_EQ(arithmetic_of(few_sms, "m64n32s6w1_splitK8_x2"), Arithmetic{.splits = 8}) << "two tiles of eight CTAs";
}

/// Bits of the first rows of D when those rows of A are the first of `m`. The second half of K nearly cancels the
/// first, so that bf16 shows the rounding of sums.
std::vector<uint16_t> first_rows(int64_t rows, int64_t m, const GemmOptions& options) {
    constexpr int64_t kHalf = 2048;
    Problem all(130, 64, 2 * kHalf, 9);
    for (int64_t k = 0; k < kHalf; ++k) {
        for (int64_t r = 0; r < all.m; ++r) all.a.at(r, kHalf + k) = all.a.at(r, k) ^ 0x80;
        for (int64_t r = 0; r < all.n; ++r) all.b.at(r, kHalf + k) = all.b.at(r, k);
    }
    for (int64_t kb = 0; kb < kHalf / 128; ++kb) {
        for (int64_t r = 0; r < all.m; ++r) all.sfa.at(r, kHalf / 128 + kb) = all.sfa.at(r, kb) * 1.001f;
        all.sfb.at(0, kHalf / 128 + kb) = all.sfb.at(0, kb);
    }
    GemmArgs args = all.args();
    args.a.rows = args.sfa.rows = args.d.rows = m;
    ThreadPool pool(2);
    cpu_gemm({args, options}, pool);
    return {all.d.data(), all.d.data() + rows * 64};
}

TEST(BatchInvariant, RowsHaveTheSameBitsForAnyM) {
    for (const Numerics numerics : {Numerics::Fast, Numerics::Exact, Numerics::Hopper}) {
        const GemmOptions options{.numerics = numerics, .batch_invariant = true};
        const auto alone = first_rows(1, 1, options);
        for (const int64_t m : {2, 7, 64, 130}) EXPECT_EQ(first_rows(1, m, options), alone) << m;
    }
}

TEST(BatchInvariant, OtherwiseTheSplitOfKMayChangeBits) {
    const GemmOptions split{.numerics = Numerics::Hopper, .config = kernel_with({.splits = 8})};
    EXPECT_NE(first_rows(130, 130, split),
              first_rows(130, 130, {.numerics = Numerics::Hopper, .batch_invariant = true}));
}

TEST(HopperModel, DropsWhatIsFarBelowTheLargest) {
    // 448 * 448 has exponent 16; a product of 1 lies 16 below it, beyond the 13 bits that are kept.
    Problem p(1, 8, 32, 1);
    test::fill_with_zeros(p);
    p.a.at(0, 0) = p.b.at(0, 0) = e4m3_of_float(448);
    p.a.at(0, 1) = p.b.at(0, 1) = e4m3_of_float(1);
    p.sfa.at(0, 0) = p.sfb.at(0, 0) = 1;
    EXPECT_EQ(one_block(p.args())[0], 448.0f * 448.0f);
}

TEST(HopperModel, ComesNearTheBoundInTheWorstCase) {
    // One product of 8 sets the unit to 2^-10. All others, (15/8)^2 * 2^-12, lie just below it and are lost.
    Problem p(1, 8, 128, 1);
    p.sfa.at(0, 0) = p.sfb.at(0, 0) = 1;
    for (int64_t k = 0; k < 128; ++k) p.a.at(0, k) = p.b.at(0, k) = e4m3_of_float(0x1.ep-6f);
    p.a.at(0, 0) = e4m3_of_float(8);
    p.b.at(0, 0) = e4m3_of_float(1);
    const test::Sums sums = test::sums_of(p);
    const double share = (sums.exact[0] - one_block(p.args())[0]) / sums.absolute[0];
    EXPECT_LE(share, kTensorCoreLoss);
    EXPECT_GE(share, 0.8 * kTensorCoreLoss);
}

}  // namespace
}  // namespace finegemm::hopper_model_test
