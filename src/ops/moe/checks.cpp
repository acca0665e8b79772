// Argument checks of a layer of experts. Layer api.
#include "ops/moe/checks.h"

#include <algorithm>
#include <array>

#include <finegemm/routing/routing.h>

#include "api/argument.h"
#include "ops/four_bit/call.h"
#include "ops/swiglu/checks.h"
#include "plan/elements.h"
#include "plan/fields.h"

namespace finegemm {

namespace {

constexpr int64_t kMostOfAll = int64_t{1} << 23;  // choices
constexpr int64_t kUnit = 16;                     // of H and I: e4m3 in 16 bytes
constexpr int64_t kMostUnits = int64_t{1} << 20;  // as much, so that bytes of all rows fit 63 bits

void check_range(const char* name, int64_t x, int64_t least, int64_t most, const char* way_out) {
    if (x < least || x > most) reject(name, "is {}, must be from {} to {}; {}", x, least, most, way_out);
}

void check_unit(const char* name, int64_t x) {
    if (x < kUnit || x % kUnit != 0 || x > kMostUnits)
        reject(name, "is {}, must be a multiple of 16 from 16 to 2^20; pad the weights with zeros", x);
}

/// The memory that either way to compute a layer needs.
int64_t bytes_of(const MoeShape& s) { return std::max(memory_of(s, false).bytes, memory_of(s, true).bytes); }

/// What has no argument of its own.
void check_options(const MoeShape& s) {
    check_range("rows", s.rows, 0, INT32_MAX, "pass 0 for as many as all choices take");
    check_range("expected_m", s.expected_m, 0, INT32_MAX, "pass 0 for as many as there may be");
    plan::check_num_sms(s.num_sms);
    if (s.f32_between && s.fused == false)
        reject("f32_between",
               "is set, but fused is not, and launches apart have gates and ups in bf16; leave one of them out");
    for (const auto& [name, given] : {std::pair{"f32_between", s.f32_between}, {"fused", s.fused.value_or(false)}})
        if (given && s.intermediate % kScaleBlock != 0)
            reject(name, "is set, but I is {}, must be a multiple of 128 for that; pad the weights with zeros",
                   s.intermediate);
        else if (given && s.biased)
            reject(name,
                   "is set, but there are biases, which leave the activation to a launch of its own; leave it out");
}

bool is_left_out(const Argument& x) { return !x.x.data && x.x.rows == 0 && x.x.cols == 0; }

void check_shape(const Argument& x, int64_t rows, int64_t cols, const char* meaning) {
    x.check_extents();
    if (!x.has_shape(rows, cols))
        reject(x.name, "has shape [{}, {}], must be [{}, {}] ({}); pass it so", x.x.rows, x.x.cols, rows, cols,
               meaning);
}

void check_tokens(const Argument& x, const Argument& x_scales) {
    if (x.x.dtype != DType::BF16 && x.x.dtype != DType::E4M3)
        reject("x", "has dtype {}, must be bf16, or e4m3 with x_scales; convert it", name_of(x.x.dtype));
    x.check_extents();
    if (x.x.cols < kUnit || x.x.cols % kUnit != 0 || x.x.cols > kMostUnits)
        reject("x", "has H = {} columns, must be a multiple of 16 from 16 to 2^20; pad them with zeros", x.x.cols);
    if (x.x.rows > INT32_MAX / (x.x.cols / 256 + 1))  // pieces of rows are counted by 31 bits
        reject("x", "has shape [{}, {}], which is too large for one call; split the tokens", x.x.rows, x.x.cols);
    const bool scaled = x.x.dtype == DType::E4M3;
    if (!scaled && !is_left_out(x_scales)) reject("x_scales", "is given, but x is bf16, which has none; leave it out");
    if (scaled && is_left_out(x_scales))
        reject("x_scales", "is left out, but x is e4m3; pass those that it was quantised with");
    if (scaled) check_scales(x_scales, scales_of_rows(x.x, "one for each row and 128 columns of x", "quantize_rows"));
}

void check_choices(const Argument& ids, const Argument& weights, int64_t tokens) {
    if (ids.x.dtype != DType::I32 && ids.x.dtype != DType::I64)
        reject("ids", "has dtype {}, must be i32 or i64; convert it", name_of(ids.x.dtype));
    ids.check_extents();
    if (ids.x.rows != tokens)
        reject("ids", "has {} rows, but x has {}; pass those of these tokens", ids.x.rows, tokens);
    if (ids.x.cols < 1 || ids.x.cols > kMostChoices)
        reject("ids", "has {} columns, must have from 1 to {}, a token's choices; pass [T, k]", ids.x.cols,
               kMostChoices);
    if (tokens * ids.x.cols > kMostOfAll)
        reject("ids", "has shape [{}, {}], which are {} choices, must be at most 2^23; split the tokens", tokens,
               ids.x.cols, tokens * ids.x.cols);
    if (is_left_out(weights)) return;
    weights.check_dtype(DType::F32, "convert it");
    check_shape(weights, tokens, ids.x.cols, "as ids");
}

/// Experts' weights. Without a number of rows or of experts it is the weights' to say.
void check_weights(const Argument& w, const Argument& scales, int64_t experts, int64_t cols) {
    w.check_dtype(DType::E4M3, "quantize_weights makes it");
    w.check_extents();
    if (w.count < 1 || w.count > kMostExperts)
        reject(w.name, "has {} matrices, must have from 1 to {}; pass one for each expert", w.count, kMostExperts);
    if (w.count != experts)
        reject(w.name, "has {} matrices, but gate_up has {}; pass one for each expert", w.count, experts);
    if (w.x.cols != cols)
        reject(w.name, "has {} columns, must have {}: gate_up is [E, 2 I, H], down [E, H, I]; pass it so", w.x.cols,
               cols);
    check_scales(scales,
                 scales_of_blocks(w.x, "one for each 128x128 block of an expert's weights", "quantize_weights"));
    if (scales.count != w.count)
        reject(scales.name, "has {} matrices, but {} has {}; pass as many", scales.count, w.name, w.count);
}

/// An expert's weights, for both products.
struct BothWeights {
    const Argument &gate_up, &gate_up_scales, &down, &down_scales;
};
void check_both(const MoeCall& call, int64_t hidden, const BothWeights& w) {
    const Argument &gate_up = w.gate_up, &down = w.down;
    check_weights(gate_up, w.gate_up_scales, gate_up.count, hidden);
    if (gate_up.x.rows < 2 * kUnit || gate_up.x.rows % (2 * kUnit) != 0 || gate_up.x.rows > 2 * kMostUnits)
        reject("gate_up",
               "has {} rows, must have a multiple of 32, up to 2^21: gates above ups, each a multiple of 16; pad both "
               "with zeros",
               gate_up.x.rows);
    check_weights(down, w.down_scales, gate_up.count, gate_up.x.rows / 2);
    if (down.x.rows != hidden)
        reject("down", "has {} rows, but x has H = {} columns; down is [E, H, I]: pass it so", down.x.rows, hidden);
    if (call.has_four_bit() &&
        (gate_up.count != call.gate_up_packed.groups || gate_up.x.rows != call.gate_up_packed.rows))
        reject("gate_up", "has {} matrices of {} rows, but gate_up_packed {} of {}; pass the FP8 of the same weights",
               gate_up.count, gate_up.x.rows, call.gate_up_packed.groups, call.gate_up_packed.rows);
}

/// Biases of experts, both or neither.
void check_biases(const MoeShape& s, const Argument& gate_up_bias, const Argument& down_bias) {
    if (is_left_out(gate_up_bias) && is_left_out(down_bias)) return;
    for (const auto& [given, other] : {std::pair(gate_up_bias, down_bias), {down_bias, gate_up_bias}}) {
        if (is_left_out(given)) reject(given.name, "is left out, but {} is given; pass both or neither", other.name);
        if (given.x.dtype != DType::F32 && given.x.dtype != DType::BF16)
            reject(given.name, "has dtype {}, must be f32 or bf16; convert it", name_of(given.x.dtype));
    }
    check_shape(gate_up_bias, s.experts, 2 * s.intermediate, "for each expert the gates' before the ups'");
    check_shape(down_bias, s.experts, s.hidden, "as rows of down, for each expert");
}

/// Bytes of weights of 4 bits, as a matrix; none where they are not given.
struct PackedBytes {
    ConstMatrix matrix{};
    explicit PackedBytes(const FourBitWeights& w) {
        if (!w.data) return;
        const int64_t bytes = four_bit_bytes(w.format, w.rows, w.cols);
        matrix = {w.data, DType::E4M3, w.groups, bytes, bytes, 1, w.device};
    }
};

/// Where all are: `read` have their alignment in bytes beside them.
struct Place {
    Argument argument;
    int64_t alignment;
    bool any_strides = false;
};

void check_places(std::span<const Place> read, const Argument& out, const Argument& workspace) {
    const Device device = out.x.device;
    const int64_t alignment = alignment_on(device);
    for (const Argument& x : {out, workspace}) {
        x.check_pointer(alignment);
        x.check_rows(alignment);
    }
    for (const auto& [x, unit, any_strides] : read) {
        if (is_left_out(x)) continue;
        x.check_device(device, "out");
        x.check_pointer(std::min(alignment, unit));
        any_strides ? x.check_span() : x.check_rows(std::min(alignment, unit));
        x.check_apart_from(out);
        x.check_apart_from(workspace);
    }
    out.check_apart_from(workspace);
}

constexpr const char* kPacked[] = {"gate_up_packed", "down_packed"};

/// What weights of 4 bits ask of a layer.
void check_four_bit(const MoeShape& s) {
    if (!s.four_bit) {
        if (s.four_bit_alone) reject("four_bit_alone", "is set, but four_bit is not; pass the format, or leave it out");
        return;
    }
    static_cast<void>(four_bit_bytes(*s.four_bit, 2 * s.intermediate, s.hidden));
    static_cast<void>(four_bit_bytes(*s.four_bit, s.hidden, s.intermediate));
    if (!s.four_bit_alone && *s.four_bit == FourBitFormat::Int4)
        reject("gate_up",
               "is given beside weights of int4, which are FP8 with scales of rows, and a layer multiplies those of "
               "blocks; leave gate_up and down out");
    for (const auto& [name, given] : {std::pair{"f32_between", s.f32_between}, {"fused", s.fused.value_or(false)}})
        if (given && s.four_bit_alone)
            reject(name,
                   "is set, but weights are of 4 bits, whose products leave the activation to a launch of its "
                   "own; leave it out, or pass their FP8, too");
}

/// Weights of 4 bits, both or neither, as FP8 of these shapes would be.
void check_packed(const MoeCall& call, int64_t hidden) {
    const std::array<const FourBitWeights*, 2> both{&call.gate_up_packed, &call.down_packed};
    for (size_t i = 0; i < 2; ++i) {
        const FourBitWeights &w = *both[i], &other = *both[1 - i];
        if (!w.data && other.data) reject(kPacked[i], "is null, but {} is not; pass both or neither", kPacked[1 - i]);
        if (!w.data) return;
        check_range(kPacked[i], w.groups, 1, kMostExperts, "pass one matrix for each expert");
        if (w.format != call.gate_up_packed.format)
            reject(kPacked[i], "is of {}, but {} of {}; pack both alike", name_of(w.format), kPacked[0],
                   name_of(call.gate_up_packed.format));
        static_cast<void>(four_bit_bytes(w.format, w.rows, w.cols));
    }
    const FourBitWeights &gate_up = *both[0], &down = *both[1];
    if (gate_up.cols != hidden || gate_up.rows % (2 * kUnit) != 0)
        reject(kPacked[0], "has shape [{}, {}], must be [2 I, {}], I a multiple of 16: gates above ups; pack it so",
               gate_up.rows, gate_up.cols, hidden);
    if (down.rows != hidden || down.cols != gate_up.rows / 2 || down.groups != gate_up.groups)
        reject(kPacked[1], "has {} matrices [{}, {}], must have {} [{}, {}], by gate_up_packed; pack it so",
               down.groups, down.rows, down.cols, gate_up.groups, hidden, gate_up.rows / 2);
}

}  // namespace

void check_moe(const MoeShape& s) {
    check_range("tokens", s.tokens, 0, INT32_MAX, "pass how many there may be");
    check_range("choices", s.choices, 1, kMostChoices, "pass how many a token has");
    if (s.tokens * s.choices > kMostOfAll)
        reject("tokens", "is {} of {} choices, which are {}, must be at most 2^23; split the tokens", s.tokens,
               s.choices, s.tokens * s.choices);
    check_unit("hidden", s.hidden);
    check_unit("intermediate", s.intermediate);
    check_range("experts", s.experts, 1, kMostExperts, "pass how many are on the device");
    check_options(s);
    check_four_bit(s);
}

void check_moe(const MoeCall& call) {
    const MoeArgs& args = call;
    const MoeOptions& options = call.options;
    const ConstMatrix result = args.out;
    const Argument x{"x", args.x}, x_scales{"x_scales", args.x_scales}, ids{"ids", args.ids},
        weights{"weights", args.weights}, out{"out", result};
    const auto stack = [](const char* name, const ConstStack& s) {
        return Argument{name, s.matrix, s.count, s.stride};
    };
    const Argument gate_up = stack("gate_up", args.gate_up), down = stack("down", args.down),
                   gate_up_scales = stack("gate_up_scales", args.gate_up_scales),
                   down_scales = stack("down_scales", args.down_scales);
    check_tokens(x, x_scales);
    check_choices(ids, weights, x.x.rows);
    check_packed(call, x.x.cols);
    const bool only_packed = call.has_four_bit() && is_left_out(gate_up) && is_left_out(down);
    if (!only_packed) check_both(call, x.x.cols, {gate_up, gate_up_scales, down, down_scales});
    out.check_dtype(DType::BF16, "pass memory of bf16");
    check_shape(out, x.x.rows, x.x.cols, "as x");
    check_activation(options.gate_limit, options.gate_alpha, options.up_offset);
    check_gemm_options({.numerics = options.numerics, .num_sms = options.num_sms}, true);
    const MoeShape shape = call.shape();
    const Argument gate_up_bias{"gate_up_bias", options.gate_up_bias}, down_bias{"down_bias", options.down_bias};
    check_biases(shape, gate_up_bias, down_bias);
    check_options(shape);
    check_four_bit(shape);

    const ConstMatrix memory{args.workspace,       DType::E4M3, args.workspace ? 1 : 0, args.workspace_bytes,
                             args.workspace_bytes, 1,           result.device};
    const Argument workspace{"workspace", memory};
    const int64_t needed = bytes_of(shape);
    if (args.workspace && args.workspace_bytes < needed)
        reject("workspace", "has {} bytes, must have {}; moe_workspace_bytes tells", args.workspace_bytes, needed);
    out.check_device(result.device, "out");
    const PackedBytes gate_up_bytes(call.gate_up_packed), down_bytes(call.down_packed);
    check_places(std::array<Place, 12>{{{x, 16},
                                        {x_scales, 4, true},
                                        {ids, size_of(ids.x.dtype)},
                                        {weights, 4},
                                        {gate_up, 16},
                                        {gate_up_scales, 4, true},
                                        {down, 16},
                                        {down_scales, 4, true},
                                        {gate_up_bias, 16},
                                        {down_bias, 16},
                                        {{kPacked[0], gate_up_bytes.matrix}, 16},
                                        {{kPacked[1], down_bytes.matrix}, 16}}},
                 out, workspace);
}

int64_t moe_workspace_bytes(const MoeShape& shape) {
    check_moe(shape);
    return bytes_of(shape);
}

}  // namespace finegemm
