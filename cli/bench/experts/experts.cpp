// Random weights of experts on one device, and what tokens choose of them. Layer cli.
#include "cli/bench/experts/experts.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "cli/bench/codes.h"
#include "cli/bench/four_bit/trial.h"
#include "cli/random.h"

namespace finegemm::cli {

Matrix rows_of(Matrix m, int64_t first, int64_t count) {
    m.data = static_cast<uint8_t*>(m.data) + first * m.row_stride * size_of(m.dtype);
    m.rows = count;
    return m;
}

Experts::Experts(const Target& target, const MoeShape& shape, const HostMatrix& codes, uint64_t seed)
    : target_(target), shape_(shape), count_(shape.experts) {
    const int64_t hidden = shape.hidden, pairs = shape.intermediate;
    if (shape.biased) make_biases(seed + 2);
    if (shape.four_bit) {
        pack(2 * pairs, hidden, seed, gate_up_packed_, gate_up_, gate_up_scales_);
        pack(hidden, pairs, seed + 1, down_packed_, down_, down_scales_);
        return;
    }
    gate_up_ = weights(2 * pairs, hidden, codes, seed);
    gate_up_scales_ = scales(2 * pairs, hidden);
    down_ = weights(hidden, pairs, codes, seed + 1);
    down_scales_ = scales(hidden, pairs);
}

void Experts::make_biases(uint64_t seed) {
    const HostMatrix values = random_bf16(seed);
    gate_up_bias_ = mirrored(target_, DType::F32, count_, 2 * shape_.intermediate);
    down_bias_ = mirrored(target_, DType::BF16, count_, shape_.hidden);
    fill(down_bias_.host, values, 0);
    for (int64_t i = 0; i < count_ * 2 * shape_.intermediate; ++i)
        floats(gate_up_bias_)[i] = element_of(values.view(), i / values.cols % values.rows, i % values.cols);
    for (Mirrored* x : {&gate_up_bias_, &down_bias_}) upload(target_, x->host, x->there);
}

void Experts::add_biases(MoeOptions& options, bool on_host) {
    if (!shape_.biased) return;
    options.gate_up_bias = on_host ? gate_up_bias_.host.view() : gate_up_bias_.there;
    options.down_bias = on_host ? down_bias_.host.view() : down_bias_.there;
}

void Experts::pack(int64_t rows, int64_t cols, uint64_t seed, Mirrored& packed, Mirrored& codes,
                   Mirrored& scales) const {
    constexpr int64_t kDistinct = 4;
    std::vector<RandomFourBit> all;
    for (int64_t e = 0; e < std::min(kDistinct, count_); ++e)
        all.push_back(random_four_bit(*shape_.four_bit, rows, cols, seed + 3 * static_cast<uint64_t>(e)));
    const auto fill = [&](Mirrored& x, DType dtype, int64_t of_one, int64_t x_cols, bool there, const auto& bytes_of) {
        if (there) x = mirrored(target_, dtype, count_ * of_one, x_cols);
        else x.host = make_matrix(dtype, count_ * of_one, x_cols);
        uint8_t* to = x.host.bytes.data();
        for (int64_t e = 0; e < count_; ++e)
            to = std::ranges::copy(bytes_of(all[static_cast<size_t>(e) % all.size()]), to).out;
        if (there) upload(target_, x.host, x.there);
    };
    const auto bytes = static_cast<int64_t>(all[0].packed.size());
    fill(packed, DType::E4M3, 1, bytes, true, [](const RandomFourBit& w) -> const auto& { return w.packed; });
    const bool fp8 = !shape_.four_bit_alone;  // where the target computes, too
    fill(codes, DType::E4M3, rows, cols, fp8, [](const RandomFourBit& w) -> const auto& { return w.codes.bytes; });
    fill(scales, DType::F32, all[0].scales.rows, all[0].scales.cols, fp8,
         [](const RandomFourBit& w) -> const auto& { return w.scales.bytes; });
}

Mirrored Experts::weights(int64_t rows, int64_t cols, const HostMatrix& codes, uint64_t seed) const {
    Mirrored w = mirrored(target_, DType::E4M3, count_ * rows, cols);
    fill_codes(w.host.bytes.data(), static_cast<int64_t>(w.host.bytes.size()), codes, seed);
    upload(target_, w.host, w.there);
    return w;
}

/// So that sums over a row have the magnitude of what they multiply.
Mirrored Experts::scales(int64_t rows, int64_t cols) const {
    constexpr double kCode = 165;  // in root mean square
    Mirrored s = mirrored(target_, DType::F32, count_ * blocks_of(rows), blocks_of(cols));
    const auto scale = static_cast<float>(1 / (kCode * std::sqrt(static_cast<double>(cols))));
    for (size_t i = 0; i < s.host.bytes.size() / sizeof scale; ++i)
        floats(s)[i] = scale * (1 + 0.01f * static_cast<float>(i % 7));
    upload(target_, s.host, s.there);
    return s;
}

MoeArgs Experts::args(const Matrix& x, const Matrix& ids, const Matrix& weights, const Matrix& out, bool on_host) {
    const auto whole = [&](Mirrored& w) { return on_host ? w.host.view() : w.there; };
    const auto stack = [&](Mirrored& w) -> ConstStack {
        const Matrix all = whole(w), one = rows_of(all, 0, all.rows / count_);
        return {one, count_, one.rows * one.row_stride};
    };
    const auto packed = [&](Mirrored& w, int64_t rows, int64_t cols) {
        const Matrix bytes = whole(w);
        return FourBitWeights{bytes.data, *shape_.four_bit, count_, rows, cols, bytes.device};
    };
    MoeArgs args{};
    args.x = x, args.ids = ids, args.weights = weights, args.out = out;
    if (!shape_.four_bit_alone) {
        args.gate_up = stack(gate_up_), args.gate_up_scales = stack(gate_up_scales_);
        args.down = stack(down_), args.down_scales = stack(down_scales_);
    }
    if (shape_.four_bit) {
        args.gate_up_packed = packed(gate_up_packed_, 2 * shape_.intermediate, shape_.hidden);
        args.down_packed = packed(down_packed_, shape_.hidden, shape_.intermediate);
    }
    return args;
}

Matrix Experts::of_expert(Mirrored& x, int64_t expert) const {
    const int64_t rows = x.host.rows / count_;
    return rows_of(x.host.view(), expert * rows, rows);
}

void Experts::add(LayerTruth& truth, int64_t expert, double weight) {
    LayerTruth::Biases biases{};
    if (shape_.biased) biases = {of_expert(gate_up_bias_, expert), of_expert(down_bias_, expert)};
    truth.add({of_expert(gate_up_, expert), of_expert(gate_up_scales_, expert)},
              {of_expert(down_, expert), of_expert(down_scales_, expert)}, weight, biases);
}

double Experts::bytes() const {
    double bytes = 0;
    const auto add = [&](const Mirrored& x) { bytes += static_cast<double>(x.host.bytes.size()); };
    if (shape_.four_bit) add(gate_up_packed_), add(down_packed_);
    else add(gate_up_), add(gate_up_scales_), add(down_), add(down_scales_);
    if (shape_.biased) add(gate_up_bias_), add(down_bias_);
    return bytes;
}

void choose(const Target& target, Mirrored& ids, Mirrored& weights, int64_t experts, uint64_t seed, double zipf) {
    const int64_t choices = ids.host.cols;
    std::vector<int32_t> order(static_cast<size_t>(experts));
    std::iota(order.begin(), order.end(), 0);
    std::ranges::shuffle(order, std::mt19937_64(1));
    std::vector<double> odds(order.size());
    for (size_t place = 0; place < order.size(); ++place)
        odds[static_cast<size_t>(order[place])] = std::pow(static_cast<double>(place + 1), -zipf);
    std::mt19937_64 random(seed);
    // The first of clocks that tick at random, each as often as its odds say, are draws without a second of any.
    std::vector<double> ticks(order.size());
    for (int64_t t = 0; t < ids.host.rows; ++t) {
        for (size_t e = 0; e < ticks.size(); ++e)
            ticks[e] = -std::log((static_cast<double>(random() >> 11) + 0.5) * 0x1p-53) / odds[e];
        std::ranges::partial_sort(order, order.begin() + choices, {},
                                  [&](int32_t e) { return ticks[static_cast<size_t>(e)]; });
        for (int64_t c = 0; c < choices; ++c) {
            integers(ids)[t * choices + c] = order[static_cast<size_t>(c)];
            floats(weights)[t * choices + c] = 0.25f + 0.0625f * static_cast<float>(random() % 16);
        }
    }
    for (Mirrored* x : {&ids, &weights}) upload(target, x->host, x->there);
}

}  // namespace finegemm::cli
