// Products with MX scales whose operands are re-encoded in the call: what is launched, and what comes out. Layer tests.
#include <cmath>

#include "gemm_reference.h"
#include "ops/gemm/cpu.h"
#include "ops/quantize/cpu.h"
#include "ops/reencoded_gemm/call.h"
#include "support/grouped.h"
#include "support/hopper.h"
#include "support/matrix.h"

namespace finegemm {
namespace {

plan::Problem mx_problem(uint32_t m, uint32_t n, uint32_t k) {
    plan::Problem p{.m = m, .n = n, .k = k};
    p.a.scaling = p.b.scaling = Scaling::Mx;
    return p;
}

TEST(ReencodedGemm, IsForManyRows) {
    const plan::DeviceSpec& device = *plan::find_device("h200");
    for (const uint32_t m : {1u, 16u, 64u, 128u})
        EXPECT_FALSE(plan::is_reencoded_faster(mx_problem(m, 4096, 7168), device)) << m;
    for (const uint32_t m : {1024u, 4096u})
        EXPECT_TRUE(plan::is_reencoded_faster(mx_problem(m, 4096, 7168), device)) << m;
    plan::Problem p = mx_problem(4096, 4096, 7168);
    p.num_sms = 64;
    EXPECT_FALSE(plan::is_reencoded_faster(p, device)) << "passes take all SMs";
    p.num_sms = 0, p.batch_invariant = true;
    EXPECT_FALSE(plan::is_reencoded_faster(p, device)) << "the bits of a row may not depend on M";
    EXPECT_FALSE(plan::is_reencoded_faster({.m = 4096, .n = 4096, .k = 7168}, device))
        << "there is nothing to re-encode";
    const auto masked = [](uint32_t groups, uint32_t expected) {
        plan::Problem of_rows = mx_problem(groups * expected * 3 / 2, 6144, 7168);
        of_rows.groups = {Grouping::Rows, groups, expected};
        return of_rows;
    };
    EXPECT_TRUE(plan::is_reencoded_faster(masked(4, 256), device));
    EXPECT_FALSE(plan::is_reencoded_faster(masked(32, 192), device));
}

/// Words of exponents that differ by 3 at most: of few groups a value changes.
void make_words(test::Buffer<float>& scales, uint32_t seed) {
    std::mt19937 random(seed);
    const Matrix all = scales.view();
    for (int64_t r = 0; r < all.rows; ++r)
        for (int64_t c = 0; c < all.cols; ++c) {
            uint32_t word = 0;
            for (uint32_t part = 0; part < 4; ++part) word |= (124 + static_cast<uint32_t>(random() % 4)) << 8 * part;
            scales.at(r, c) = float_of_bits(word);
        }
}

/// Runs it on the CPU, in memory of its own.
template <typename Args>
void run_reencoded(const Args& args, const GemmOptions& options) {
    ThreadPool pool{1};
    const Call mx{args, options};
    const ReencodedCall reencoded(mx);
    std::vector<uint8_t> memory(reencoded.bytes());
    reencoded.run(
        memory.data(), [&](const ReencodeCall& operand) { run_on_cpu(operand, pool); },
        [&](const Call& product) {
            EXPECT_TRUE(product.row_b_scales());
            const ConstMatrix& scales = product.sfb.matrix;
            EXPECT_EQ(mx.of_rows() ? scales.col_stride : scales.row_stride, 1);
            cpu_gemm(product, pool);
        });
}

TEST(ReencodedGemm, IsNearTheProductOfTheExponents) {
    for (const bool of_a : {true, false}) {
        test::Problem p(37, 136, 400, 3, false, 16, true);
        if (of_a) make_words(p.sfa, 5);
        make_words(p.sfb, 6);
        GemmArgs args = p.args();
        if (of_a) args.sfa.dtype = DType::UE8M0x4;
        args.sfb.dtype = DType::UE8M0x4;
        ThreadPool pool{1};
        cpu_gemm({args, {.numerics = Numerics::Exact}}, pool);
        std::vector<float> exact;
        float largest = 0;
        for (int64_t r = 0; r < p.m; ++r)
            for (int64_t c = 0; c < p.n; ++c) {
                exact.push_back(float_of_bf16(p.d.at(r, c)));
                largest = std::max(largest, std::abs(exact.back()));
            }
        run_reencoded(args, {.numerics = Numerics::Exact});
        for (int64_t r = 0; r < p.m; ++r)
            for (int64_t c = 0; c < p.n; ++c)
                ASSERT_NEAR(float_of_bf16(p.d.at(r, c)), exact[static_cast<size_t>(r * p.n + c)], 0.01f * largest)
                    << of_a << ": " << r << ", " << c;
    }
}

TEST(ReencodedGemm, OfGroupsHasTheRowsOfEachAlone) {
    for (const bool masked : {true, false}) {
        const GroupForm form = masked ? GroupForm::Masked : GroupForm::Offsets;
        test::GroupedProblem p(test::random_grouping(form, 3, 20, 1, 7), 136, 400, 3, 16, 2, true);
        make_words(p.sfa, 5), make_words(p.sfb, 6);
        const GemmOptions options{.numerics = Numerics::Exact};
        GroupedGemmArgs args = p.args();
        args.sfa.matrix.dtype = args.sfb.matrix.dtype = DType::UE8M0x4;
        run_reencoded(args, options);
        for (int64_t row = 0; row < p.rows(); ++row) {
            const int64_t group = p.grouping.group_of(row);
            if (group < 0) continue;
            const uint16_t* d = &p.d.at(p.buffer_row(row), 0);
            const std::vector<uint16_t> of_groups(d, d + p.n);
            GemmArgs alone = p.dense(row, group);
            alone.sfa.dtype = alone.sfb.dtype = DType::UE8M0x4;
            run_reencoded(alone, options);
            ASSERT_EQ(of_groups, std::vector<uint16_t>(d, d + p.n)) << masked << ": row " << row;
        }
    }
}

class HopperReencoded : public test::HopperTest {
protected:
    std::vector<std::string> entries(int64_t m, bool of_a, const GemmOptions& options = {}) {
        const Device where{DeviceType::Cuda, 0};
        const int64_t n = 4096, k = 7168, blocks = 56;
        const GemmArgs args{.a = {test::address(0x1000), DType::E4M3, m, k, k, 1, where},
                            .sfa = {test::address(0x2000), of_a ? DType::UE8M0x4 : DType::F32, m, blocks, 1, m, where},
                            .b = {test::address(0x3000), DType::E4M3, n, k, k, 1, where},
                            .sfb = {test::address(0x4000), DType::UE8M0x4, n, blocks, blocks, 1, where},
                            .d = {test::address(0x5000), DType::BF16, m, n, n, 1, where}};
        const size_t before = mock->launches.size();
        hopper_->gemm(Call{args, options});
        std::vector<std::string> entries;
        for (size_t i = before; i < mock->launches.size(); ++i) {
            const mock::Launch& launch = mock->launches[i];
            entries.push_back(launch.entry + (launch.programmatic ? " overlapping" : ""));
        }
        return entries;
    }
    std::unique_ptr<Backend> hopper_ = backend();
};

TEST_F(HopperReencoded, LaunchesPassesBeforeTheProduct) {
    const std::string pass = "FineGEMM_reencode_rows";
    const auto both = entries(4096, true);
    ASSERT_EQ(both.size(), 3u);
    EXPECT_EQ(std::tuple(both[0], both[1]), std::tuple(pass, pass + " overlapping"));
    EXPECT_NE(both[2].find("1d1d overlapping"), std::string::npos) << both[2];
    const auto of_b = entries(4096, false);
    ASSERT_EQ(of_b.size(), 2u) << "scales of A serve 128 already";
    EXPECT_EQ(of_b[0], pass);
    EXPECT_EQ(entries(4096, true, {.pdl = true})[0], pass + " overlapping");
    EXPECT_EQ(entries(64, true).size(), 1u);
    EXPECT_EQ(entries(4096, true, {.batch_invariant = true}).size(), 1u);
    EXPECT_EQ(entries(4096, true, {.config = "m64n64s5w1_x2_mx"}).size(), 1u) << "a kernel that is named is taken";
}

}  // namespace
}  // namespace finegemm
