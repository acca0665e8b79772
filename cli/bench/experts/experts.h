// Random weights of experts on one device, and what tokens choose of them. Layer cli.
#pragma once

#include <finegemm/moe.h>

#include "cli/bench/experts/layer_truth.h"
#include "cli/target.h"

namespace finegemm::cli {

/// Rows of a matrix.
Matrix rows_of(Matrix m, int64_t first, int64_t count);

class Experts {
public:
    /// Experts of a shape. `codes`: that their weights are made of, where these are not of 4 bits.
    Experts(const Target& target, const MoeShape& shape, const HostMatrix& codes, uint64_t seed);

    /// Theirs is the layer, of tokens with choices and weights of these.
    MoeArgs args(const Matrix& x, const Matrix& ids, const Matrix& weights, const Matrix& out, bool on_host);
    /// Adds biases of experts where the shape has such: f32 of gate_up, bf16 of down.
    void add_biases(MoeOptions& options, bool on_host);
    /// Adds what one of them makes of a token.
    void add(LayerTruth& truth, int64_t expert, double weight);
    /// All of their weights and scales: of 4 bits where there are such.
    double bytes() const;

private:
    /// Weights of 4 bits, and the FP8 that they are.
    void pack(int64_t rows, int64_t cols, uint64_t seed, Mirrored& packed, Mirrored& codes, Mirrored& scales) const;
    Mirrored weights(int64_t rows, int64_t cols, const HostMatrix& codes, uint64_t seed) const;
    Mirrored scales(int64_t rows, int64_t cols) const;
    void make_biases(uint64_t seed);
    Matrix of_expert(Mirrored& x, int64_t expert) const;

    const Target& target_;
    MoeShape shape_;
    int64_t count_;
    Mirrored gate_up_, gate_up_scales_, down_, down_scales_, gate_up_packed_, down_packed_, gate_up_bias_, down_bias_;
};

/// Fills ids [T, k] with different experts and weights [T, k], and uploads them. The odds of an expert are
/// 1 / place^zipf, in an order that is the same whatever the seed; 0: all the same.
void choose(const Target& target, Mirrored& ids, Mirrored& weights, int64_t experts, uint64_t seed, double zipf = 0);

}  // namespace finegemm::cli
