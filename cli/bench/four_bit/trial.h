// A product with weights of 4 bits on one device, from a line of text. Layer cli.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <finegemm/four_bit.h>

#include "cli/bench/trial.h"

namespace finegemm::cli {

bool is_four_bit(const std::string& line);
/// "four_bit_gemm 128x4096x7168 mxfp4 groups=8 expected_m=16 fp8", as logs have it: M of all groups, N and K; mxfp4 or
/// int4; then, in any order, groups, expected_m, alignment and num_sms, where they are not left out, and fp8 where the
/// weights have their FP8 beside them. Throws Error(InvalidArgument).
FourBitShape parse_four_bit(const std::string& line);

/// Random weights, packed, and the FP8 that they are, with scales; all of the host. Seeds of 1 and more.
struct RandomFourBit {
    std::vector<uint8_t> packed;
    HostMatrix codes, scales;
};
RandomFourBit random_four_bit(FourBitFormat format, int64_t n, int64_t k, uint64_t seed);
/// "mxfp4" or "int4"; nothing for another word.
std::optional<FourBitFormat> format_of(const std::string& word);

/// Random weights, the first few matrices of which are repeated; rows are divided among groups at random.
class FourBit final : public Trial {
public:
    FourBit(Context& context, const Target& target, const FourBitShape& shape, uint64_t seed);

    double time(int repeats) override;
    Check check() override;
    double operations() const override;
    /// Counts the weights of groups that have rows, of 4 bits.
    double bytes() const override;

private:
    void make_rows(uint64_t seed);
    void make_weights(uint64_t seed);
    void call(const FourBitArgs& args, Numerics numerics);
    FourBitArgs args();
    /// One row, on the host, as a product of its own.
    FourBitArgs args_of_row(int64_t row, int64_t group, const Matrix& d);

    Context& context_;
    const Target& target_;
    FourBitShape shape_;
    int64_t rows_ = 0, distinct_ = 1;  // of A; matrices of weights that are not alike
    Groups groups_{.form = GroupForm::Whole};
    std::vector<int64_t> begins_, sizes_;  // of groups' rows
    Mirrored a_, sfa_, packed_, fp8_, fp8_scales_, numbers_, d_;
    std::vector<RandomFourBit> weights_;  // the distinct ones
};

}  // namespace finegemm::cli
