// Finish::Gated: the check of its arguments, and bounds of errors. Layer engine.
#include "ops/gemm/finish/gated.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "engine/any_address.h"
#include "plan/reject.h"

namespace finegemm {

void Gated::check(const Call& call) {
    const Epilogue& x = call.epilogue();
    for (const auto& [name, factor] : {std::pair{"gate_limit", limit(x)}, {"gate_alpha", slope(x)}})
        if (!(factor > 0)) reject(name, "is {}, must be above 0; leave it out for a SwiGLU without it", factor);
    for (const auto& [name, number] : {std::pair{"gate_alpha", slope(x)}, {"up_offset", x.up_offset}})
        if (!std::isfinite(number)) reject(name, "is {}, must be finite; look at what computed it", number);
    if (!call.scaled())
        reject("sfd", "is given, but a is of {}, must be of e4m3 where d is quantised; leave it out",
               name_of(call.a.matrix.dtype));
    if (!plan::is_given(x.sfd, {}))
        reject("sfd", "is left out, but d is quantised, as {} is given; pass memory for its scales",
               plan::first_given(x));
    if (call.options.accumulate) reject("accumulate", "is set, but so is sfd; leave it out");
    const int64_t n = call.b.matrix.rows;
    if (n % (2 * kScaleBlock) != 0)
        reject("b",
               "has {} rows, must have a multiple of 256 where sfd is given: gates above ups, each a multiple of "
               "128; pad both with rows of zeros",
               n);
    if (2 * call.d_width != n)
        reject("d", "has {} columns, must have {}, half of the {} rows of b, as gates and ups are pairs; pass it so",
               call.d_width, n / 2, n);
}

namespace {

/// A number in double, and a bound for the error of the float.
struct Bounded {
    double value = 0, bound = 0;

    Bounded rounded_to_bf16() const { return {value, bound + (std::abs(value) + bound) * 0x1p-8}; }
};

Bounded swiglu_of(Bounded gate, Bounded up, const Epilogue& x, double weight) {
    if (x.bf16_between) gate = gate.rounded_to_bf16(), up = up.rounded_to_bf16();
    constexpr double kSteepest = 1.1, kOfSigmoid = 0x1p-16, kOfSums = 0x1p-22, kLeast = 0x1p-120;
    const double limit = double{Gated::limit(x)}, slope = double{Gated::slope(x)};
    gate.value = std::min(gate.value, limit), up.value = std::clamp(up.value, -limit, limit);
    const double half = gate.value / (1 + std::exp(-slope * gate.value));
    const double off = kSteepest * gate.bound + std::abs(half) * kOfSigmoid + std::abs(gate.value) * kLeast;
    const double offset = weight * double{x.up_offset}, factor = weight * up.value + offset;
    const double factor_off = std::abs(weight) * up.bound + (std::abs(weight * up.value) + std::abs(offset)) * kOfSums;
    const double value = half * factor;
    const Bounded exact{value, std::abs(half) * factor_off + std::abs(factor) * off + off * factor_off +
                                   std::abs(value) * kOfSums + kLeast};
    return x.bf16_between ? exact.rounded_to_bf16() : exact;
}

/// As e4m3 times the scale of a block, whose numbers are at most `largest` far from zero.
Bounded quantized(const Bounded& x, double largest, bool power_of_two) {
    const double scale = std::max(largest / 448 * (power_of_two ? 2 : 1), 0x1p-100);
    return {x.value, x.bound + (std::abs(x.value) + x.bound) * (0x1p-4 + 0x1p-20) + scale * 0x1p-10};
}

}  // namespace

double scale_of_pair(const Epilogue& x, int64_t row, int64_t col) {
    const Matrix& s = x.sfd.matrix;
    return load<float>(s.data, row * s.row_stride + col / kScaleBlock * s.col_stride);
}

void activate(const Epilogue& x, int64_t cols, std::vector<double>& exact, std::vector<double>& bounds) {
    const ConstMatrix& weights = x.row_weights.rows.matrix;
    const auto n = static_cast<size_t>(cols), pairs = n / 2;
    for (size_t row = 0; row < exact.size() / n; ++row) {
        const double weight =
            weights.data ? double{load<float>(weights.data, static_cast<int64_t>(row) * weights.row_stride)} : 1;
        const size_t from = row * n, to = row * pairs;
        for (size_t first = 0; first < pairs; first += kScaleBlock) {
            Bounded block[kScaleBlock];
            double largest = 0;
            for (size_t c = 0; c < kScaleBlock; ++c) {
                const size_t gate = from + first + c, up = gate + pairs;
                block[c] = swiglu_of({exact[gate], bounds[gate]}, {exact[up], bounds[up]}, x, weight);
                largest = std::max(largest, std::abs(block[c].value) + block[c].bound);
            }
            for (size_t c = 0; c < kScaleBlock; ++c) {
                const Bounded d = quantized(block[c], largest, x.power_of_two_sfd);
                exact[to + first + c] = d.value, bounds[to + first + c] = d.bound;
            }
        }
    }
    exact.resize(exact.size() / 2), bounds.resize(exact.size());
}

}  // namespace finegemm
