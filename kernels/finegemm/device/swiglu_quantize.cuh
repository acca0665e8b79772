// The kernel of SwiGLU with quantisation: some lanes do some 1x128 blocks of q at a time. Layer device.
#pragma once

#include <finegemm/quantize/swiglu.h>
#include <finegemm/device/either.cuh>
#include <finegemm/device/expert_bias.cuh>
#include <finegemm/device/ptx/report.cuh>
#include <finegemm/device/quantize.cuh>
#include <finegemm/device/swiglu.cuh>

namespace finegemm::device {

/// A vector of x with the biases that are added to it.
template <SwigluConfig C>
struct BiasedValues {
    Values<C.rows()> x;
    BiasVector added;
    const ExpertBias& biases;

    __device__ float at(uint32_t i) const { return x.at(i) + added.at(biases, i); }
};

/// A lane's values of a unit.
template <SwigluConfig C>
struct SwigluValues {
    using Loaded = Values<C.rows()>;
    static constexpr uint32_t kCount = C.vectors() * C.vector(), kBlock = C.block_vectors() * C.vector();
    float value[kCount];

    /// `Plain`: SwigluParams::plain, which saves clamps, and products by one. `Near`: as sigmoid has it.
    template <bool Plain, bool Near, typename Vector>
    __device__ void set(uint32_t v, const Vector& gates, const Vector& ups, const SwigluRule& rule, UpFactor of) {
#pragma unroll
        for (uint32_t i = 0; i < C.vector(); ++i) {
            float gate = gates.at(i), up = ups.at(i);
            if (!Plain) gate = clamped_gate<PtxMath>(gate, rule.limit), up = clamped_up<PtxMath>(up, rule.limit);
            float& to = value[v * C.vector() + i];
            if (Plain) to = gate * sigmoid<PtxMath, Near>(gate) * up;
            else to = swiglu_of_clamped<PtxMath, Near>(gate, up, rule.slope, of);
        }
    }
    /// The bits of the largest finite magnitude of each block, over the lanes that share it. Infinities are rare: then
    /// it is looked for once more.
    __device__ void largest(uint32_t (&most)[C.unit_blocks()]) const {
#pragma unroll
        for (uint32_t b = 0; b < C.unit_blocks(); ++b) most[b] = largest_of(largest(b), C.kLanes);
    }
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

/// Values that are rounded to bf16 where x is BF16: they stay packed.
template <SwigluConfig C>
struct RoundedValues {
    using Loaded = Values<C.rows()>;
    Loaded vectors[C.vectors()];

    __device__ explicit RoundedValues(const SwigluValues<C>& values) {
#pragma unroll
        for (uint32_t i = 0; i < C.vectors() * C.vector(); i += 2)
            vectors[i / C.vector()].words.w[i % C.vector() / 2] = ptx::pack_bf16(values.value[i], values.value[i + 1]);
    }
    /// What SwigluValues finds, of all blocks at once: the first one's in the lower half of a word.
    __device__ void largest(uint32_t (&most)[C.unit_blocks()]) const {
        static_assert(C.unit_blocks() <= 2);
        constexpr uint32_t kOther = C.unit_blocks() - 1;
        uint32_t both[C.unit_blocks()] = {};
#pragma unroll
        for (uint32_t v = 0; v < C.vectors(); ++v)
            both[v / C.block_vectors()] = vectors[v].larger(both[v / C.block_vectors()]);
        uint32_t word = ptx::larger_magnitudes_bf16(ptx::low_halves(both[0], both[kOther]),
                                                    ptx::high_halves(both[0], both[kOther]));
        if (Loaded::number_of(word) == Loaded::kInfinity) {
            uint32_t finite[C.unit_blocks()] = {};
#pragma unroll
            for (uint32_t v = 0; v < C.vectors(); ++v)
                finite[v / C.block_vectors()] = max(finite[v / C.block_vectors()], vectors[v].largest_finite());
            word = ptx::high_halves(finite[0], finite[kOther]);
        }
#pragma unroll
        for (uint32_t mask = 1; mask < C.kLanes; mask *= 2)
            word = ptx::larger_magnitudes_bf16(word, ptx::shuffle_xor(word, mask));
        most[kOther] = word & 0x7fff0000u;
        most[0] = (word & 0x7fffu) << 16;
    }
    __device__ typename Loaded::Codes codes(uint32_t v, float inverse) const { return vectors[v].codes(inverse); }
};

/// Values that are rounded to bf16 where x is F32.
template <SwigluConfig C>
struct RoundedFloats : SwigluValues<C> {
    __device__ explicit RoundedFloats(const SwigluValues<C>& values) {
#pragma unroll
        for (uint32_t i = 0; i < this->kCount; i += 2) {
            const uint32_t both = ptx::pack_bf16(values.value[i], values.value[i + 1]);
            this->value[i] = float_of_bits(both << 16), this->value[i + 1] = float_of_bits(both & 0xffff0000u);
        }
    }
};

/// Where a lane has its part of a unit. Rows of no group have no columns.
struct SwigluPlace {
    uint32_t matrix, row, unit, col, cols;
};

__device__ inline UpFactor up_factor_of(const SwigluParams& p, const SwigluPlace& at) {
    float weight = 1.0f;
    if (p.weights && at.cols > 0) weight = p.weights[at.matrix * p.weight_matrix_stride + at.row * p.weight_stride];
    return up_factor(p.rule, weight);
}

/// A vector of x, zeros where it is not wanted.
template <SwigluConfig C>
__device__ ptx::Words4 load_x_if(bool wanted, const uint8_t* from) {
    return C.awaits ? ptx::load_global_l2_x4_if(wanted, from) : ptx::load_global_x4_if(wanted, from);
}

/// A lane's gates and ups of a unit.
template <SwigluConfig C>
struct SwigluInput {
    using Loaded = Values<C.rows()>;
    Loaded gates[C.vectors()], ups[C.vectors()];

    __device__ void load(const SwigluParams& p, const SwigluPlace& at, uint32_t /*group*/) {
        const uint8_t* from =
            static_cast<const uint8_t*>(p.x) +
            (at.matrix * p.x_stride + at.row * p.x_row_stride + gate_column(p.interleaved, at.col)) * Loaded::kBytes;
        const uint32_t to_up = up_distance(p.interleaved, p.cols) * Loaded::kBytes;
        if (!C.biased && !C.awaits && p.whole &&
            ptx::ballot(at.cols > 0) == ~0u) {  // addresses are known, and nothing is zero
            const uint8_t* const from_up = from + to_up;
#pragma unroll
            for (uint32_t v = 0; v < C.vectors(); ++v) {
                gates[v].load(from + v * C.step() * Loaded::kBytes);
                ups[v].load(from_up + v * C.step() * Loaded::kBytes);
            }
            return;
        }
        const uint32_t step = gate_column(p.interleaved, C.step()) * Loaded::kBytes;
#pragma unroll
        for (uint32_t v = 0; v < C.vectors(); ++v, from += step) {
            const bool wanted = at.col + v * C.step() < at.cols;
            gates[v].words = load_x_if<C>(wanted, from);
            ups[v].words = load_x_if<C>(wanted, from + to_up);
        }
    }
    /// Does no sigmoid need clamps?
    __device__ bool is_near(float slope) const {
        uint32_t most = 0;
#pragma unroll
        for (uint32_t v = 0; v < C.vectors(); ++v) most = gates[v].larger(most);
        return slope * float_of_bits(Loaded::number_of(most)) <= kNearZero;
    }
    __device__ void activate(const SwigluParams& p, const SwigluPlace& at, SwigluValues<C>& values) const {
        const bool near = is_near(p.rule.slope);
        if (near && p.plain) activate<true, true>(p.rule, {}, values);
        else if (near) activate<false, true>(p.rule, up_factor_of(p, at), values);
        else activate<false, false>(p.rule, up_factor_of(p, at), values);
    }

private:
    template <bool Plain, bool Near>
    __device__ void activate(const SwigluRule& rule, UpFactor of, SwigluValues<C>& values) const {
#pragma unroll
        for (uint32_t v = 0; v < C.vectors(); ++v) values.template set<Plain, Near>(v, gates[v], ups[v], rule, of);
    }
};

/// A lane's gates and ups of a unit with the biases that are added to them.
template <SwigluConfig C>
struct BiasedInput : SwigluInput<C> {
    BiasVector of_gates[C.vectors()], of_ups[C.vectors()];

    __device__ void load(const SwigluParams& p, const SwigluPlace& at, uint32_t group) {
        SwigluInput<C>::load(p, at, group);
#pragma unroll
        for (uint32_t v = 0; v < C.vectors(); ++v) {
            const bool wanted = at.col + v * C.step() < at.cols;
            const uint32_t column = gate_column(p.interleaved, at.col + v * C.step());
            of_gates[v] = BiasVector::load(wanted, p.biases, group, column);
            of_ups[v] = BiasVector::load(wanted, p.biases, group, column + up_distance(p.interleaved, p.cols));
        }
    }
    __device__ void activate(const SwigluParams& p, const SwigluPlace& at, SwigluValues<C>& values) const {
        const UpFactor of = up_factor_of(p, at);
#pragma unroll
        for (uint32_t v = 0; v < C.vectors(); ++v)
            values.template set<false, false>(v, BiasedValues<C>{this->gates[v], of_gates[v], p.biases},
                                              BiasedValues<C>{this->ups[v], of_ups[v], p.biases}, p.rule, of);
    }
};

/// Quantises a unit: `values` are SwigluValues or RoundedValues.
template <SwigluConfig C, typename Computed>
__device__ void store_unit(const SwigluParams& p, const SwigluPlace& at, const Computed& values) {
    uint8_t* const q = p.q + at.matrix * p.q_stride + at.row * p.q_row_stride + at.col;
    const uint32_t lane = threadIdx.x % C.kLanes, block = at.unit * C.unit_blocks() + lane;
    float of_lane = 1.0f;  // its block's scale: as many lanes as there are blocks store one each
    uint32_t most[C.unit_blocks()];
    values.largest(most);
#pragma unroll
    for (uint32_t b = 0; b < C.unit_blocks(); ++b) {
        const float scale = block_scale_of(float_of_bits(most[b]), p.power_of_two);
        const float inverse = PtxMath::reciprocal(scale);
#pragma unroll
        for (uint32_t v = b * C.block_vectors(); v < (b + 1) * C.block_vectors(); ++v)
            Values<C.rows()>::store_if(at.col + v * C.step() < at.cols, q + v * C.step(), values.codes(v, inverse));
        if (lane == b) of_lane = scale;
    }
    float* const scales = p.scales + at.matrix * p.scale_stride + at.row * p.scale_row_stride;
    ptx::store_global_if(lane < C.unit_blocks() && block * kScaleBlock < at.cols, scales + block * p.scale_col_stride,
                         float_bits(of_lane));
}

/// All lanes of a warp come here, those without a unit, too. `group`: of the row, where there is a bias.
template <SwigluConfig C>
__device__ void swiglu_unit(const SwigluParams& p, const SwigluPlace& at, uint32_t group) {
    using Rounded = Either<C.input == QuantizeInput::BF16, RoundedValues<C>, RoundedFloats<C>>;
    Either<C.biased, BiasedInput<C>, SwigluInput<C>> input;
    input.load(p, at, group);
    SwigluValues<C> values;
    input.activate(p, at, values);
    if (p.rule.to_bf16) store_unit<C>(p, at, Rounded(values));
    else store_unit<C>(p, at, values);
}

/// Until the kernel before this one has stored the groups that have rows from `first` to `last`, by all threads. Where
/// groups end is there since before that kernel let this one begin, but L1 may have it from an earlier one.
__device__ inline void await_rows(const SwigluParams& p, uint32_t first, uint32_t last) {
    constexpr uint32_t kPause = 100;
    const auto end_of = [&](int64_t g) { return static_cast<int32_t>(ptx::load_acquire(p.groups.ends + g)); };
    for (uint32_t g = threadIdx.x; threadIdx.x < kWarpSize && g < p.groups.groups; g += kWarpSize) {
        const RowRange rows = p.groups.range({end_of(int64_t{g} - 1), end_of(g), g});
        if (rows.begin > last || rows.end <= first) continue;
        const uint32_t pieces = rows.size() * (2 * p.cols / 8);
        while (ptx::load_acquire(p.stored + g) != pieces) ptx::pause(kPause);
    }
    __syncthreads();
}

template <SwigluConfig C>
__device__ void swiglu_quantize(const SwigluParams& p) {
    const bool early = C.few || (C.biased && p.early);
    if (early) ptx::grid_launch_dependents();
    if (!C.awaits) ptx::grid_dependency_wait();  // the kernel before this one may still write x, or read q
    const uint32_t ctas = p.matrix_ctas.divisor, matrix = p.matrix_ctas.quotient(blockIdx.x);
    const uint32_t rows = p.groups.stacked ? p.groups.span(matrix).end : p.rows, units = rows * p.across.divisor;
    for (uint32_t first = (blockIdx.x - matrix * ctas) * C.cta_units(); first < units; first += ctas * C.cta_units()) {
        if (C.awaits) await_rows(p, p.across.quotient(first), p.across.quotient(min(first + C.cta_units(), units) - 1));
        const uint32_t i = first + threadIdx.x / C.kLanes, row = p.across.quotient(i);
        const uint32_t group = C.biased ? group_behind(p.groups, row) : 0;
        const bool exists = i < units && (C.biased ? group < p.groups.groups && row >= p.groups.span(group).begin
                                                   : p.groups.stacked || holds_row(p.groups, matrix, row));
        const uint32_t unit = i - row * p.across.divisor;
        const uint32_t col = unit * C.unit_cols() + threadIdx.x % C.kLanes * C.vector();
        swiglu_unit<C>(p, {matrix, row, unit, col, exists ? p.cols : 0}, group);
    }
    if (!early) ptx::grid_launch_dependents();
    // Kernels that wait for this one rely on all before it.
    if (C.awaits && blockIdx.x + 1 == gridDim.x) ptx::grid_dependency_wait();
}

}  // namespace finegemm::device
