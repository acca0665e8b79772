// The kernel of SwiGLU with quantisation: some lanes do some 1x128 blocks of q at a time. Layer device.
#pragma once

#include <finegemm/quantize/swiglu.h>
#include <finegemm/device/either.cuh>
#include <finegemm/device/expert_bias.cuh>
#include <finegemm/device/quantize.cuh>
#include <finegemm/device/swiglu.cuh>

namespace finegemm::device {

/// A vector of x with the biases that are added to it.
template <SwigluConfig C>
struct BiasedValues {
    Values<C.rows()> x;
    BiasVector added;
    const ExpertBias& biases;

    __device__ static BiasedValues of(const Values<C.rows()>& x, const BiasVector& added, const ExpertBias& biases) {
        static_assert(C.vector() == 8);
        return {x, added, biases};
    }
    __device__ float at(uint32_t i) const { return x.at(i) + added.at(biases, i); }
};
/// A vector of x alone.
template <SwigluConfig C>
struct PlainValues {
    __device__ static const Values<C.rows()>& of(const Values<C.rows()>& x, const BiasVector&, const ExpertBias&) {
        return x;
    }
};

/// A lane's values of a unit.
template <SwigluConfig C>
struct SwigluValues {
    using Loaded = Values<C.rows()>;
    static constexpr uint32_t kCount = C.vectors() * C.vector(), kBlock = C.block_vectors() * C.vector();
    float value[kCount];

    /// `Plain`: SwigluParams::plain, which saves clamps, and products by one.
    template <bool Plain, typename Vector>
    __device__ void set(uint32_t v, const Vector& gates, const Vector& ups, const SwigluRule& rule, UpFactor of) {
#pragma unroll
        for (uint32_t i = 0; i < C.vector(); ++i) {
            float gate = gates.at(i), up = ups.at(i);
            if (!Plain) gate = clamped_gate<PtxMath>(gate, rule.limit), up = clamped_up<PtxMath>(up, rule.limit);
            float& to = value[v * C.vector() + i];
            if (Plain) to = gate * sigmoid<PtxMath>(gate) * up;
            else to = swiglu_of_clamped<PtxMath>(gate, up, rule.slope, of);
        }
    }
    __device__ void round_to_bf16() {
#pragma unroll
        for (uint32_t i = 0; i < kCount; i += 2) {
            const uint32_t both = ptx::pack_bf16(value[i], value[i + 1]);
            value[i] = float_of_bits(both << 16), value[i + 1] = float_of_bits(both & 0xffff0000u);
        }
    }
    /// The bits of the largest finite magnitude of a block. Infinities are rare: then it is looked for once more.
    __device__ uint32_t largest(uint32_t block) const {
        const float* const of = value + block * kBlock;
        float most = 0.0f;
#pragma unroll
        for (uint32_t i = 0; i < kBlock; ++i) most = ptx::max_magnitude(most, of[i]);
        uint32_t bits = float_bits(most);
        if (bits == 0x7f800000u) {
            bits = 0;
#pragma unroll
            for (uint32_t i = 0; i < kBlock; ++i) bits = max(bits, finite_magnitude(of[i]));
        }
        return bits;
    }
    __device__ typename Loaded::Codes codes(uint32_t v, float inverse) const {
        typename Loaded::Codes codes;
#pragma unroll
        for (uint32_t i = 0; i < C.vector(); i += 4) {
            const float* const of = value + v * C.vector() + i;
            codes.w[i / 4] =
                pack_codes<QuantizeCodes::E4M3>(of[0] * inverse, of[1] * inverse, of[2] * inverse, of[3] * inverse);
        }
        return codes;
    }
};

/// All lanes of a warp come here, those without a unit, too. `group`: of the row, where there is a bias.
template <SwigluConfig C>
__device__ void swiglu_unit(const SwigluParams& p, uint32_t matrix, uint32_t row, uint32_t unit, bool exists,
                            uint32_t group) {
    using Loaded = Values<C.rows()>;
    using Sums = Either<C.biased, BiasedValues<C>, PlainValues<C>>;
    const uint32_t first = unit * C.unit_cols(), col = first + threadIdx.x % C.kLanes * C.vector();
    const uint32_t cols = exists ? p.cols : 0;
    const uint8_t* from =
        static_cast<const uint8_t*>(p.x) +
        (matrix * p.x_stride + row * p.x_row_stride + gate_column(p.interleaved, col)) * Loaded::kBytes;
    const uint32_t to_up = up_distance(p.interleaved, p.cols) * Loaded::kBytes;
    const uint32_t step = gate_column(p.interleaved, C.step()) * Loaded::kBytes;
    Loaded gates[C.vectors()], ups[C.vectors()];
#pragma unroll
    for (uint32_t v = 0; v < C.vectors(); ++v, from += step) {
        const bool wanted = col + v * C.step() < cols;
        gates[v].words = ptx::load_global_x4_if(wanted, from);
        ups[v].words = ptx::load_global_x4_if(wanted, from + to_up);
    }
    BiasVector of_gates[C.biased ? C.vectors() : 1], of_ups[C.biased ? C.vectors() : 1];
#pragma unroll
    for (uint32_t v = 0; C.biased && v < C.vectors(); ++v) {
        const bool wanted = col + v * C.step() < cols;
        const uint32_t at = gate_column(p.interleaved, col + v * C.step());
        of_gates[v] = BiasVector::load(wanted, p.biases, group, at);
        of_ups[v] = BiasVector::load(wanted, p.biases, group, at + up_distance(p.interleaved, p.cols));
    }
    SwigluValues<C> values;
    if (!C.biased && p.plain) {
#pragma unroll
        for (uint32_t v = 0; v < C.vectors(); ++v) values.template set<true>(v, gates[v], ups[v], p.rule, {});
    } else {
        float weight = 1.0f;
        if (p.weights && exists) weight = p.weights[matrix * p.weight_matrix_stride + row * p.weight_stride];
        const UpFactor of = up_factor(p.rule, weight);
#pragma unroll
        for (uint32_t v = 0; v < C.vectors(); ++v) {
            const uint32_t b = C.biased ? v : 0;
            values.template set<false>(v, Sums::of(gates[v], of_gates[b], p.biases),
                                       Sums::of(ups[v], of_ups[b], p.biases), p.rule, of);
        }
    }
    if (p.rule.to_bf16) values.round_to_bf16();
    uint8_t* const q = p.q + matrix * p.q_stride + row * p.q_row_stride + col;
    float* const scales = p.scales + matrix * p.scale_stride + row * p.scale_row_stride;
#pragma unroll
    for (uint32_t b = 0; b < C.unit_blocks(); ++b) {
        const uint32_t most = largest_of(values.largest(b), C.kLanes);
        const float scale = block_scale_of(float_of_bits(most), p.power_of_two), inverse = PtxMath::reciprocal(scale);
#pragma unroll
        for (uint32_t v = b * C.block_vectors(); v < (b + 1) * C.block_vectors(); ++v)
            Loaded::store_if(col + v * C.step() < cols, q + v * C.step(), values.codes(v, inverse));
        if (threadIdx.x % C.kLanes == 0 && first + b * kScaleBlock < cols)
            ptx::store_global(scales + (unit * C.unit_blocks() + b) * p.scale_col_stride, scale);
    }
}

template <SwigluConfig C>
__device__ void swiglu_quantize(const SwigluParams& p) {
    const bool early = C.few || (C.biased && p.early);
    if (early) ptx::grid_launch_dependents();
    ptx::grid_dependency_wait();  // the kernel before this one may still write x, or read q
    const uint32_t matrix = blockIdx.x / p.matrix_ctas, cta = blockIdx.x % p.matrix_ctas;
    const uint32_t rows = p.groups.stacked ? p.groups.span(matrix).end : p.rows, units = rows * p.across.divisor;
    for (uint32_t first = cta * C.cta_units(); first < units; first += p.matrix_ctas * C.cta_units()) {
        const uint32_t i = first + threadIdx.x / C.kLanes, row = p.across.quotient(i);
        const uint32_t group = C.biased ? group_behind(p.groups, row) : 0;
        const bool exists = i < units && (C.biased ? group < p.groups.groups && row >= p.groups.span(group).begin
                                                   : p.groups.stacked || holds_row(p.groups, matrix, row));
        swiglu_unit<C>(p, matrix, row, i - row * p.across.divisor, exists, group);
    }
    if (!early) ptx::grid_launch_dependents();
}

}  // namespace finegemm::device
