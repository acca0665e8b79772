// A layer of experts on one device, from a line of text. Layer cli.
#pragma once

#include <finegemm/moe.h>

#include "cli/bench/trial.h"

namespace finegemm::cli {

bool is_layer(const std::string& line);
/// "moe 64x7168x2048 256x8 mxfp4 fp8": tokens, H and I; experts, and how many of them a token chooses; the format of
/// weights of 4 bits, and fp8 where these have their FP8 beside them. Throws Error(InvalidArgument).
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
    /// Weights of 4 bits, and the FP8 that they are.
    void pack_experts(int64_t rows, int64_t cols, uint64_t seed, Mirrored& packed, Mirrored& codes,
                      Mirrored& scales) const;
    Mirrored weights_of_experts(int64_t rows, int64_t cols, uint64_t seed) const;
    Mirrored scales_of_experts(int64_t rows, int64_t cols) const;
    /// `count` tokens from `first` on.
    void call(const Matrix& out, bool on_host, int64_t first, int64_t count);
    void choose(uint64_t seed);

    Context& context_;
    const Target& target_;
    MoeShape shape_;
    HostMatrix codes_;  // that weights of experts are made of
    Mirrored x_, ids_, weights_, gate_up_, gate_up_scales_, down_, down_scales_, out_, gate_up_packed_, down_packed_;
};

}  // namespace finegemm::cli
