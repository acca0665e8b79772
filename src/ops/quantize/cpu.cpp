// Quantisation on the CPU: the rule of quantize/quantize.h for a vector at a time. Layer engine.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/quantize/cpu.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>

#include <finegemm/quantize/quantize.h>

#include "engine/any_address.h"
#include "ops/quantize/cpu.h"

HWY_BEFORE_NAMESPACE();
namespace finegemm::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 16>;  // a number of lanes that divides the columns
using Ints = hn::RebindToSigned<Floats>;
using FloatVector = hn::Vec<Floats>;
using IntVector = hn::Vec<Ints>;

struct FromF32 {
    using Element = float;
    static FloatVector load(const float* from) { return hn::LoadU(Floats(), from); }
};

/// Sixteen bits in each lane.
IntVector load_halves(const uint16_t* from) {
    return hn::PromoteTo(Ints(), hn::LoadU(hn::Rebind<uint16_t, Ints>(), from));
}

struct FromBF16 {
    using Element = uint16_t;
    static FloatVector load(const uint16_t* from) {
        return hn::BitCast(Floats(), hn::ShiftLeft<16>(load_halves(from)));
    }
};

struct FromF16 {
    using Element = uint16_t;
    static FloatVector load(const uint16_t* from) {
        const Ints d;
        const IntVector bits = load_halves(from), magnitude = hn::And(bits, hn::Set(d, 0x7fff));
        // The exponent's bias changes by a multiplication, which is right for subnormals too.
        const FloatVector finite =
            hn::Mul(hn::BitCast(Floats(), hn::ShiftLeft<13>(magnitude)), hn::Set(Floats(), 0x1p112f));
        const IntVector special = hn::IfThenElseZero(hn::Gt(magnitude, hn::Set(d, 0x7bff)), hn::Set(d, 0x7f800000));
        const IntVector sign = hn::ShiftLeft<16>(hn::Sub(bits, magnitude));
        return hn::BitCast(Floats(), hn::Or(hn::Or(hn::BitCast(d, finite), special), sign));
    }
};

/// finite_magnitude of each lane.
HWY_INLINE IntVector finite_magnitudes(FloatVector x) {
    const Ints d;
    const IntVector bits = hn::And(hn::BitCast(d, x), hn::Set(d, 0x7fffffff));
    return hn::IfThenElseZero(hn::Lt(bits, hn::Set(d, 0x7f800000)), bits);
}

struct ToE4m3 {
    static constexpr int kBits = 3, kBias = 7;
    static constexpr float kMost = kE4m3Max, kLeastNormal = 0x1p-6f;
    static constexpr float kUnit = 0x1p14f;  // its last bit is the subnormals' step: an addition rounds
};
struct ToE5m2 {
    static constexpr int kBits = 2, kBias = 15;
    static constexpr float kMost = kE5m2Max, kLeastNormal = 0x1p-14f, kUnit = 0x1p7f;
};

/// e4m3_of_float or e5m2_of_float of each lane.
template <typename To>
HWY_INLINE IntVector codes_of_floats(FloatVector x) {
    constexpr int kDropped = 23 - To::kBits;
    const Ints d;
    const IntVector bits = hn::BitCast(d, x), magnitude = hn::And(bits, hn::Set(d, 0x7fffffff));
    const IntVector sign = hn::And(hn::ShiftRight<24>(bits), hn::Set(d, 0x80));
    const IntVector most = hn::Min(magnitude, hn::Set(d, static_cast<int32_t>(float_bits(To::kMost))));
    const FloatVector unit = hn::Set(Floats(), To::kUnit);
    const IntVector subnormal =
        hn::Sub(hn::BitCast(d, hn::Add(hn::BitCast(Floats(), most), unit)), hn::BitCast(d, unit));
    const IntVector odd = hn::And(hn::ShiftRight<kDropped>(most), hn::Set(d, 1));
    const IntVector rounded = hn::Add(hn::Add(most, hn::Set(d, (1 << (kDropped - 1)) - 1)), odd);
    const IntVector normal = hn::Sub(hn::ShiftRight<kDropped>(rounded), hn::Set(d, (127 - To::kBias) << To::kBits));
    const IntVector code =
        hn::IfThenElse(hn::Lt(most, hn::Set(d, static_cast<int32_t>(float_bits(To::kLeastNormal)))), subnormal, normal);
    return hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, 0x7f800000)), hn::Set(d, 0x7f), hn::Or(code, sign));
}

struct ToI8;
/// i8_of_float of each lane.
template <>
HWY_INLINE IntVector codes_of_floats<ToI8>(FloatVector x) {
    const Floats d;
    const FloatVector inside =
        hn::Min(hn::Max(hn::IfThenZeroElse(hn::IsNaN(x), x), hn::Set(d, -kI8Max)), hn::Set(d, kI8Max));
    return hn::And(hn::NearestInt(inside), hn::Set(Ints(), 0xff));
}

/// Calls `use` with the position of each vector of a block.
template <typename Use>
HWY_INLINE void for_each_vector(const CpuQuantizeBlock& b, const Use& use) {
    for (int64_t r = 0; r < b.rows; ++r)
        for (int64_t c = 0; c < b.cols; c += static_cast<int64_t>(hn::Lanes(Floats()))) use(r, c);
}

template <typename From, typename To>
float quantize_block_as(const CpuQuantizeBlock& b, bool power_of_two) {
    const auto* const x = static_cast<const typename From::Element*>(b.x);
    IntVector largest = hn::Zero(Ints());
    for_each_vector(b, [&](int64_t r, int64_t c) {
        largest = hn::Max(largest, finite_magnitudes(From::load(x + r * b.x_row_stride + c)));
    });
    const auto most = static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(Ints(), largest)));
    const float scale = block_scale(most, power_of_two, b.codes);
    const FloatVector inverse = hn::Set(Floats(), inverse_scale(scale));
    for_each_vector(b, [&](int64_t r, int64_t c) {
        const IntVector codes = codes_of_floats<To>(hn::Mul(From::load(x + r * b.x_row_stride + c), inverse));
        const hn::Rebind<uint8_t, Ints> bytes;
        hn::StoreU(hn::DemoteTo(bytes, codes), bytes, b.q + r * b.q_row_stride + c);
    });
    return scale;
}

template <typename From>
float quantize_block_of(const CpuQuantizeBlock& b, bool power_of_two) {
    switch (b.codes) {
        case QuantizeCodes::I8: return quantize_block_as<From, ToI8>(b, power_of_two);
        case QuantizeCodes::E5M2: return quantize_block_as<From, ToE5m2>(b, power_of_two);
        default: return quantize_block_as<From, ToE4m3>(b, power_of_two);
    }
}

float QuantizeBlock(const CpuQuantizeBlock& b, bool power_of_two) {
    switch (b.dtype) {
        case DType::BF16: return quantize_block_of<FromBF16>(b, power_of_two);
        case DType::F16: return quantize_block_of<FromF16>(b, power_of_two);
        default: return quantize_block_of<FromF32>(b, power_of_two);
    }
}

}  // namespace finegemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace finegemm {

HWY_EXPORT(QuantizeBlock);

float cpu_quantize_block(const CpuQuantizeBlock& block, bool power_of_two) {
    return HWY_DYNAMIC_DISPATCH(QuantizeBlock)(block, power_of_two);
}

void run_on_cpu(const QuantizeCall& call, ThreadPool& pool) {
    constexpr int64_t kTaskRows = 16;  // of 1x128 blocks: enough work to be worth a turn of a thread
    const ConstMatrix& x = call.x.matrix;
    const Matrix &q = call.q.matrix, &scales = call.scales.matrix, &transposed = call.transposed.matrix;
    const int64_t height = call.shape == ScaleShape::Blocks ? kScaleBlock : 1, task = std::max(height, kTaskRows);
    const int64_t width = call.shape == ScaleShape::WholeRows ? x.cols : kScaleBlock;
    const auto quantize_band = [&](int64_t g, int64_t row) {
        for (int64_t col = 0; col < x.cols; col += width) {
            const int64_t first = g * call.x.stride + row * x.row_stride + col;
            const CpuQuantizeBlock block{
                .x = static_cast<const uint8_t*>(x.data) + first * size_of(x.dtype),
                .q = static_cast<uint8_t*>(q.data) + g * call.q.stride + row * q.row_stride + col,
                .dtype = x.dtype,
                .codes = codes_of(q),
                .rows = std::min(height, x.rows - row),
                .cols = std::min(width, x.cols - col),
                .x_row_stride = x.row_stride,
                .q_row_stride = q.row_stride};
            store(scales.data,
                  g * call.scales.stride + row / height * scales.row_stride + col / width * scales.col_stride,
                  cpu_quantize_block(block, call.options.power_of_two_scales));
            if (!call.has_transposed()) continue;
            uint8_t* const to = static_cast<uint8_t*>(transposed.data) + g * call.transposed.stride + row;
            for (int64_t c = 0; c < block.cols; ++c)
                for (int64_t r = 0; r < block.rows; ++r)
                    to[(col + c) * transposed.row_stride + r] = block.q[r * q.row_stride + c];
        }
    };
    const int64_t tasks = (x.rows + task - 1) / task;  // of a matrix
    const auto quantize_task = [&](int64_t i) {
        const int64_t first = i % tasks * task;
        for (int64_t row = first; row < std::min(x.rows, first + task); row += height) quantize_band(i / tasks, row);
    };
    pool.parallel_for(call.x.count * tasks, quantize_task, call.options.poll);
}

}  // namespace finegemm
#endif
