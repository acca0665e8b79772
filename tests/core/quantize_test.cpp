// Quantisation: the rule of the scale, and who of a GPU's threads takes what.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <finegemm/quantize/quantize.h>

namespace finegemm {
namespace {

constexpr QuantizeConfig kConfigs[] = {{QuantizeInput::F32, false},  {QuantizeInput::F16, false},
                                       {QuantizeInput::BF16, false}, {QuantizeInput::F32, true},
                                       {QuantizeInput::F16, true},   {QuantizeInput::BF16, true}};

struct Shape {
    uint32_t rows, cols;
};
constexpr Shape kShapes[] = {{1, 16},   {1, 128},  {5, 144},  {130, 272}, {128, 128},
                             {3, 1024}, {2, 1040}, {7, 7168}, {257, 2112}};

/// Calls visit(position) for each vector that lies in the matrix, as the kernels do.
template <typename Visit>
void for_each_vector(const QuantizeConfig& c, Shape s, const Visit& visit) {
    for (uint64_t task = 0; task < quantize_tasks(c, s.rows, s.cols); ++task) {
        const RowCol first = quantize_origin(c, s.cols, task);
        for (uint32_t thread = 0; thread < (c.square_blocks ? c.threads() : 32); ++thread)
            for (uint32_t u = 0; u < c.unroll(); ++u) {
                const RowCol inside = quantize_vector(c, thread, u);
                if (first.row + inside.row < s.rows && first.col + inside.col < s.cols)
                    visit(RowCol{first.row + inside.row, first.col + inside.col});
            }
    }
}

TEST(QuantizeWork, EveryElementBelongsToOneVectorOfOneThread) {
    for (const QuantizeConfig& c : kConfigs)
        for (const Shape s : kShapes) {
            std::vector<int> visits(s.rows * s.cols);
            for_each_vector(c, s, [&](RowCol at) {
                ASSERT_EQ(at.col % c.vector(), 0u) << "loads are aligned to their 16 bytes";
                ASSERT_LE(at.col + c.vector(), s.cols) << "nothing is read past the row's end";
                for (uint32_t i = 0; i < c.vector(); ++i) ++visits[at.row * s.cols + at.col + i];
            });
            for (const int count : visits) ASSERT_EQ(count, 1);
        }
}

TEST(QuantizeWork, LanesThatFindAMaximumTogetherHaveTheSameBlock) {
    for (const QuantizeConfig& c : kConfigs)
        for (uint32_t u = 0; u < c.unroll(); ++u)
            for (uint32_t thread = 0; thread < (c.square_blocks ? c.threads() : 32); ++thread) {
                const uint32_t partner = thread / c.lanes() * c.lanes();  // where the butterfly of lanes() begins
                EXPECT_EQ(quantize_vector(c, thread, u).col / kScaleBlock,
                          quantize_vector(c, partner, u).col / kScaleBlock);
                EXPECT_EQ(quantize_vector(c, thread, u).row, quantize_vector(c, partner, u).row);
            }
}

TEST(QuantizeWork, NeighbouringLanesReadNeighbouringBytes) {
    for (const QuantizeConfig& c : kConfigs)
        for (uint32_t u = 0; u < c.unroll(); ++u)
            for (uint32_t lane = 1; lane < 32; ++lane) {
                const RowCol left = quantize_vector(c, lane - 1, u), right = quantize_vector(c, lane, u);
                if (left.row != right.row) continue;
                EXPECT_EQ(right.col, left.col + c.vector());
            }
}

TEST(QuantizeWork, CountsAndOriginsAreRightBeyondThirtyTwoBits) {
    const QuantizeConfig rows{QuantizeInput::BF16, false};
    const uint32_t m = 1u << 30, k = 16384, cols = rows.warp_blocks() * kScaleBlock;
    EXPECT_EQ(quantize_tasks(rows, m, k), static_cast<uint64_t>(m) * (k / cols));
    EXPECT_EQ(quantize_origin(rows, k, quantize_tasks(rows, m, k) - 1), (RowCol{m - 1, k - cols}));
    const QuantizeConfig blocks{QuantizeInput::BF16, true};
    EXPECT_EQ(quantize_origin(blocks, k, quantize_tasks(blocks, m, k) - 1), (RowCol{m - 128, k - 128}));
}

TEST(QuantizeWholeRows, AsManyWarpsTakeARowAsHoldIt) {
    for (const QuantizeInput input : {QuantizeInput::F32, QuantizeInput::F16, QuantizeInput::BF16}) {
        const QuantizeConfig c{.input = input, .whole_rows = true};
        for (uint32_t cols = 16; cols < 40000; cols += 16) {
            const uint32_t warps = c.row_warps(cols);
            ASSERT_EQ(c.warps() % warps, 0u);
            ASSERT_TRUE(c.held(warps) >= cols || warps == c.warps()) << cols;
            ASSERT_TRUE(warps == 1 || c.held(warps / 2) < cols) << cols;
            ASSERT_EQ(c.whole_rows_at_once(cols) * warps, c.warps());
        }
    }
    const QuantizeConfig c{.whole_rows = true};
    EXPECT_EQ(c.held(c.warps()), 16384u) << "so long a row of halves is read once";
    EXPECT_EQ(quantize_ctas(c, 1u << 31, 16384), uint64_t{1} << 31);
}

float scale_of(float largest, bool power_of_two) { return block_scale(finite_magnitude(largest), power_of_two); }

TEST(BlockScale, MapsTheLargestValueTo448) {
    static_assert(block_scale(finite_magnitude(448.0f), false) == 1.0f);
    static_assert(block_scale(finite_magnitude(-896.0f), false) == 2.0f);
    std::mt19937 random(1);
    for (int i = 0; i < 100000; ++i) {
        const float largest =
            std::ldexp(1 + static_cast<float>(random() % 1000000) / 1e6f, static_cast<int>(random() % 240) - 112);
        const float scale = scale_of(largest, false);
        ASSERT_EQ(scale, largest / 448.0f);
        ASSERT_EQ(quantize_element(largest, inverse_scale(scale)), 0x7e) << largest;
        ASSERT_EQ(quantize_element(-largest, inverse_scale(scale)), 0xfe) << largest;
    }
}

TEST(BlockScale, OfZerosIsOne) { static_assert(block_scale(0, false) == 1.0f && block_scale(0, true) == 1.0f); }

TEST(BlockScale, IsNeverSoSmallThatItsReciprocalOverflows) {
    for (const float largest :
         {std::numeric_limits<float>::denorm_min(), 1e-40f, 0x1p-126f, 0x1p-119f, 448 * 0x1p-126f})
        for (const bool power_of_two : {false, true}) {
            EXPECT_EQ(scale_of(largest, power_of_two), kLeastScale);
            EXPECT_EQ(inverse_scale(kLeastScale), 0x1p126f);
        }
    const float most = std::numeric_limits<float>::max();
    for (const bool power_of_two : {false, true})
        EXPECT_TRUE(std::isnormal(inverse_scale(scale_of(most, power_of_two))));
}

TEST(BlockScale, RoundsUpToAPowerOfTwoAndLeavesOneAlone) {
    for (int exponent = -126; exponent <= 119; ++exponent) {
        const float exact = std::ldexp(448.0f, exponent);
        EXPECT_EQ(scale_of(exact, true), std::ldexp(1.0f, exponent));
        if (exponent == 119) break;  // the largest there is
        EXPECT_EQ(scale_of(exact * (1 + 0x1p-22f), true), std::ldexp(1.0f, exponent + 1));
    }
}

TEST(FiniteMagnitude, OrdersAsTheValuesDoAndIgnoresWhatIsNotFinite) {
    const float values[] = {0.0f, std::numeric_limits<float>::denorm_min(), 0x1p-126f, 1.0f,
                            1.5f, std::numeric_limits<float>::max()};
    for (size_t i = 0; i + 1 < std::size(values); ++i)
        EXPECT_LT(finite_magnitude(-values[i]), finite_magnitude(values[i + 1]));
    EXPECT_EQ(finite_magnitude(std::numeric_limits<float>::infinity()), 0u);
    EXPECT_EQ(finite_magnitude(-std::numeric_limits<float>::infinity()), 0u);
    EXPECT_EQ(finite_magnitude(std::numeric_limits<float>::quiet_NaN()), 0u);
}

}  // namespace
}  // namespace finegemm
