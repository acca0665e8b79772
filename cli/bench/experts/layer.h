// A layer of experts on one device, from a line of text. Layer cli.
#pragma once

#include <finegemm/moe.h>

#include "cli/bench/experts/experts.h"
#include "cli/bench/trial.h"

namespace finegemm::cli {

bool is_layer(const std::string& line);
/// "moe 64x7168x2048 256x8 mxfp4 fp8 biased": tokens, H and I; experts, and how many of them a token chooses; the
/// format of weights of 4 bits, and fp8 where these have their FP8 beside them; biased where experts have biases.
/// Throws Error(InvalidArgument).
MoeShape parse_layer(const std::string& line);

/// Tokens choose at random, an expert once.
class Layer final : public Trial {
public:
    Layer(Context& context, const Target& target, const MoeShape& shape, uint64_t seed);

    double time(int repeats) override;
    Check check() override;
    double operations() const override;
    /// Counts tokens, what comes out, and the weights of experts that a token chooses.
    double bytes() const override;

private:
    /// `count` tokens from `first` on.
    void call(const Matrix& out, bool on_host, int64_t first, int64_t count);

    Context& context_;
    const Target& target_;
    MoeShape shape_;
    Experts experts_;
    Mirrored x_, ids_, weights_, out_;
};

}  // namespace finegemm::cli
