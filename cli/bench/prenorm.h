// The product before a norm on one device, from a line of text. Layer cli.
#pragma once

#include <finegemm/prenorm.h>

#include "cli/bench/trial.h"

namespace finegemm::cli {

bool is_prenorm(const std::string& line);
/// "prenorm_gemm 4096x24x7168 slices=16": M, N and K, and S where it is not 1. Throws Error(InvalidArgument).
PrenormShape parse_prenorm(const std::string& line);

class Prenorm final : public Trial {
public:
    Prenorm(Context& context, const Target& target, const PrenormShape& shape, uint64_t seed);

    double time(int repeats) override;
    Check check() override;
    double operations() const override;
    double bytes() const override;

private:
    Context& context_;
    const Target& target_;
    PrenormShape shape_;
    Mirrored a_, b_, d_, sqrsum_;
};

}  // namespace finegemm::cli
