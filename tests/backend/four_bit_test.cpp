// Packing weights of 4 bits: all conventions of checkpoints, exactly, or an error. Layer tests.
#include <gtest/gtest.h>

#include <finegemm/error.h>

#include "ops/four_bit/cpu_pack.h"
#include "support/four_bit.h"
#include "support/random_cases.h"

namespace finegemm {
namespace {

using test::FourBitMatrix;
using test::Random;

TEST(FourBitPacking, EachWordOfABlockHasEightWeightsOfARowAndNoBitTwice) {
    std::vector<uint32_t> words(kFourBitCodeBytes / 4), rows(words.size(), ~0u);
    for (uint32_t r = 0; r < kScaleBlock; ++r)
        for (uint32_t k = 0; k < kScaleBlock; ++k) {
            const FourBitPlace at = four_bit_place(r, k);
            const uint32_t bits = 7u << at.magnitude | 1u << at.sign, word = at.word / 4;
            ASSERT_EQ(words[word] & bits, 0u) << r << ", " << k;
            words[word] |= bits;
            ASSERT_TRUE(rows[word] == ~0u || rows[word] == r) << r << ", " << k;
            rows[word] = r;
        }
    for (const uint32_t word : words) EXPECT_EQ(word, ~0u);
}

TEST(FourBitPacking, UnpackedFp8TimesScalesAreTheWeightsOfTheCheckpointExactly) {
    for (uint32_t seed = 1; seed <= test::random_cases(40); ++seed) {
        Random r(seed);
        const auto format = r.one_in(2) ? FourBitFormat::Mxfp4 : FourBitFormat::Int4;
        const int64_t n = 8 * r.any(1, 40), k = format == FourBitFormat::Int4 ? 128 * r.any(1, 3) : 32 * r.any(1, 9);
        FourBitMatrix m(r, format, n, k);
        std::vector<uint8_t> packed(static_cast<size_t>(packed_bytes(format, n, k)));
        pack_blocks(m.source(), packed.data());
        const bool mxfp4 = format == FourBitFormat::Mxfp4;
        test::Buffer<uint8_t> q(DType::E4M3, n, k, 3);
        test::Buffer<float> scales(DType::F32, mxfp4 ? (n + 127) / 128 : n, (k + 127) / 128, 1);
        for (int64_t block = 0; block < (n + 127) / 128; ++block)
            unpack_rows({packed.data(), format, 1, n, k}, 0, block, q.view(), scales.view());
        ASSERT_TRUE(q.surroundings_intact() && scales.surroundings_intact());
        for (int64_t row = 0; row < n; ++row)
            for (int64_t col = 0; col < k; ++col) {
                const double value = static_cast<double>(float_of_e4m3(q.at(row, col))) *
                                     static_cast<double>(scales.at(mxfp4 ? row / 128 : row, col / 128));
                ASSERT_EQ(value, m.value(row, col)) << seed << ": " << row << ", " << col;
            }
    }
}

TEST(FourBitPacking, ExponentsThatDifferTooMuchInABlockAreAnErrorThatNamesIt) {
    Random r(3);
    FourBitMatrix m(r, FourBitFormat::Mxfp4, 256, 256);
    for (int64_t row = 0; row < 256; ++row)
        for (int64_t i = 0; i < 8; ++i) {
            m.exponents.at(row, i) = 120;
            m.codes.at(row, i * 16) = 0x11;
        }
    std::vector<uint8_t> packed(static_cast<size_t>(packed_bytes(m.format, 256, 256)));
    m.exponents.at(200, 1) = 131;
    pack_blocks(m.source(), packed.data());
    m.exponents.at(200, 1) = 132;
    try {
        pack_blocks(m.source(), packed.data());
        FAIL() << "it was packed";
    } catch (const Error& error) {
        EXPECT_NE(
            std::string(error.what()).find("exponents: range from 120 to 132 in the block of 128 x 128 at [128, 0]"),
            std::string::npos)
            << error.what();
    }
}

}  // namespace
}  // namespace finegemm
