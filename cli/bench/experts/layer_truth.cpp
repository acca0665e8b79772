// What experts add to a token in double. Layer cli.
#include "cli/bench/experts/layer_truth.h"

#include <cmath>

#include "cli/random.h"

namespace finegemm::cli {

namespace {

double product(const std::vector<double>& x, const Values& w, int64_t row) {
    double sum = 0;
    const int64_t scale_row = w.scales.rows == w.x.rows ? row : row / kScaleBlock;
    for (size_t k = 0; k < x.size(); ++k) {
        const auto col = static_cast<int64_t>(k);
        sum += x[k] * static_cast<double>(element_of(w.x, row, col)) *
               static_cast<double>(element_of(w.scales, scale_row, col / kScaleBlock));
    }
    return sum;
}

}  // namespace

LayerTruth::LayerTruth(const ConstMatrix& x) : out_(static_cast<size_t>(x.cols)) {
    for (int64_t k = 0; k < x.cols; ++k) x_.push_back(static_cast<double>(element_of(x, 0, k)));
}

void LayerTruth::add(const Values& gate_up, const Values& down, double weight, const Biases& biases) {
    const auto bias_of = [](const ConstMatrix& of, int64_t col) {
        return of.data ? static_cast<double>(element_of(of, 0, col)) : 0;
    };
    const int64_t pairs = gate_up.x.rows / 2;
    std::vector<double> activation;
    for (int64_t i = 0; i < pairs; ++i) {
        const double gate = product(x_, gate_up, i) + bias_of(biases.gate_up, i);
        const double up = product(x_, gate_up, pairs + i) + bias_of(biases.gate_up, pairs + i);
        activation.push_back(gate / (1 + std::exp(-gate)) * up);
    }
    for (size_t h = 0; h < out_.size(); ++h) {
        const auto col = static_cast<int64_t>(h);
        out_[h] += weight * (product(activation, down, col) + bias_of(biases.down, col));
    }
}

double LayerTruth::relative_error(const ConstMatrix& out) const {
    double error = 0, length = 0;
    for (size_t h = 0; h < out_.size(); ++h) {
        const double off = static_cast<double>(element_of(out, 0, static_cast<int64_t>(h))) - out_[h];
        error += off * off, length += out_[h] * out_[h];
    }
    return std::sqrt(error / length);
}

}  // namespace finegemm::cli
