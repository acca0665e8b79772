// Division by multiplication.
#include <gtest/gtest.h>

#include <random>

#include <finegemm/core/divide.h>

namespace finegemm {
namespace {

constexpr uint32_t kLargest = (1u << 31) - 1;

void expect_divides(uint32_t divisor, uint32_t x) {
    ASSERT_EQ(Divider::by(divisor).quotient(x), x / divisor) << x << " / " << divisor;
}

TEST(Divider, DividesSmallNumbersBySmallOnes) {
    for (uint32_t divisor = 1; divisor <= 300; ++divisor)
        for (uint32_t x = 0; x <= 2000; ++x) expect_divides(divisor, x);
}

TEST(Divider, IsRightAroundMultiplesAndAtTheEnds) {
    std::mt19937 random(1);
    for (int i = 0; i < 20000; ++i) {
        const uint32_t divisor = std::max(1u, static_cast<uint32_t>(random()) >> (1 + random() % 31));
        for (const uint32_t x : {0u, divisor - 1, divisor, kLargest, kLargest / divisor * divisor,
                                 kLargest / divisor * divisor - 1, static_cast<uint32_t>(random()) >> 1})
            if (x <= kLargest) expect_divides(divisor, x);
    }
    for (const uint32_t divisor : {1u << 30, (1u << 30) + 1, kLargest, 1u << 31})
        for (const uint32_t x : {0u, 1u, (1u << 30) - 1, 1u << 30, kLargest}) expect_divides(divisor, x);
}

TEST(Divider, ByOneIsTheDefault) { static_assert(Divider{} == Divider::by(1)); }

}  // namespace
}  // namespace finegemm
