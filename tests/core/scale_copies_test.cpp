// Which lane copies which scales of rows that are neighbours in memory.
#include <gtest/gtest.h>

#include <map>

#include <finegemm/gemm/scale_copies.h>

namespace finegemm {
namespace {

/// How often each row's scale is copied, and that all of them go where the math warps look for them.
template <uint32_t Rows>
std::map<uint32_t, int> copies(const ScaleCopyPlan<Rows>& plan) {
    std::map<uint32_t, int> times;
    for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
        for (uint32_t i = 0; i < plan.kPieces; ++i) {
            const uint32_t offset = plan.offset(i, lane), count = plan.count(offset);
            EXPECT_EQ(offset % kScalePiece, 0u) << "a piece has sixteen aligned bytes";
            EXPECT_LE(count, kScalePiece);
            for (uint32_t j = 0; j < count; ++j) ++times[offset + j - plan.shift];
        }
        if (const uint32_t row = plan.single(lane); row < plan.existing) ++times[row];
    }
    return times;
}

template <uint32_t Rows>
void expect_each_once() {
    for (uint32_t shift = 0; shift < kScalePiece; ++shift)
        for (uint32_t existing = 1; existing <= Rows; ++existing) {
            const std::map<uint32_t, int> times = copies(ScaleCopyPlan<Rows>{existing, shift});
            ASSERT_EQ(times.size(), existing) << Rows << " rows, " << existing << " exist, shift " << shift;
            EXPECT_EQ(times.rbegin()->first, existing - 1);
            for (const auto& [row, count] : times) EXPECT_EQ(count, 1) << "row " << row;
        }
}

TEST(ScaleCopies, EachRowThatExistsIsCopiedOnceAndNoOther) {
    expect_each_once<64>();
    expect_each_once<128>();
    expect_each_once<192>();
    expect_each_once<256>();
}

TEST(ScaleCopies, ShiftIsTheDistanceFromSixteenBytes) {
    alignas(16) const float scales[8] = {};
    for (uint32_t i = 0; i < 8; ++i) EXPECT_EQ(scale_shift(scales + i), i % 4);
}

}  // namespace
}  // namespace finegemm
