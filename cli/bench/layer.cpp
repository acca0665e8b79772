// A layer of experts on one device. Layer cli.
#include "cli/bench/layer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include <finegemm/error.h>

#include "cli/bench/codes.h"
#include "cli/bench/four_bit/trial.h"
#include "cli/bench/layer_truth.h"
#include "cli/random.h"
#include "workbench/accuracy.h"

namespace finegemm::cli {

namespace {

constexpr const char* kLayer = "moe ";

/// Rows of a matrix.
Matrix rows_of(Matrix m, int64_t first, int64_t count) {
    m.data = static_cast<uint8_t*>(m.data) + first * m.row_stride * size_of(m.dtype);
    m.rows = count;
    return m;
}

}  // namespace

bool is_layer(const std::string& line) { return line.starts_with(kLayer); }

MoeShape parse_layer(const std::string& line) {
    std::istringstream words(line);
    std::string name, sizes, experts, rest;
    words >> name >> sizes >> experts;
    const std::vector<int64_t> extents = extents_of(sizes, 3), chosen = extents_of(experts, 2);
    std::optional<FourBitFormat> four_bit;
    bool fp8 = false, good = is_layer(line) && !extents.empty() && !chosen.empty();
    while (good && words >> rest) {
        if (!four_bit) good = (four_bit = format_of(rest)).has_value();
        else good = !fp8 && (fp8 = rest == "fp8");
    }
    if (!good)
        throw Error(
            Errc::InvalidArgument,
            fmt::format("shape '{}': must be like '{}64x7168x2048 256x8': tokens, columns of a token and pairs "
                        "of a gate and an up; experts, and how many of them a token chooses; then mxfp4 or int4 "
                        "for weights of 4 bits, and fp8 where their FP8 lies beside them",
                        line, kLayer));
    const MoeShape shape{.tokens = extents[0],
                         .choices = chosen[1],
                         .hidden = extents[1],
                         .intermediate = extents[2],
                         .experts = chosen[0],
                         .four_bit = four_bit,
                         .four_bit_alone = four_bit && !fp8};
    try {
        static_cast<void>(moe_workspace_bytes(shape));
    } catch (const Error& e) {
        throw Error(e.code(), fmt::format("shape '{}': {}", line, e.what()));
    }
    if (shape.choices > shape.experts)
        throw Error(Errc::InvalidArgument,
                    fmt::format("shape '{}': a token chooses {} experts, but there are {}; name more experts", line,
                                shape.choices, shape.experts));
    return shape;
}

Layer::Layer(Context& context, const Target& target, const MoeShape& shape, uint64_t seed)
    : context_(context), target_(target), shape_(shape), codes_(random_codes(context)) {
    x_ = mirrored(target, DType::BF16, shape.tokens, shape.hidden);
    fill(x_.host, random_bf16(seed), 0);
    upload(target, x_.host, x_.there);
    choose(seed);
    out_ = mirrored(target, DType::BF16, shape.tokens, shape.hidden);
    if (shape.four_bit) {
        pack_experts(2 * shape.intermediate, shape.hidden, seed + 1, gate_up_packed_, gate_up_, gate_up_scales_);
        pack_experts(shape.hidden, shape.intermediate, seed + 2, down_packed_, down_, down_scales_);
        return;
    }
    gate_up_ = weights_of_experts(2 * shape.intermediate, shape.hidden, seed + 1);
    gate_up_scales_ = scales_of_experts(2 * shape.intermediate, shape.hidden);
    down_ = weights_of_experts(shape.hidden, shape.intermediate, seed + 2);
    down_scales_ = scales_of_experts(shape.hidden, shape.intermediate);
}

void Layer::choose(uint64_t seed) {
    ids_ = mirrored(target_, DType::I32, shape_.tokens, shape_.choices);
    weights_ = mirrored(target_, DType::F32, shape_.tokens, shape_.choices);
    std::mt19937_64 random(seed);
    std::vector<int32_t> experts(static_cast<size_t>(shape_.experts));
    std::iota(experts.begin(), experts.end(), 0);
    for (int64_t t = 0; t < shape_.tokens; ++t)
        for (int64_t c = 0; c < shape_.choices; ++c) {
            const auto left = static_cast<uint64_t>(shape_.experts - c);
            std::swap(experts[static_cast<size_t>(c)], experts[static_cast<size_t>(c) + random() % left]);
            integers(ids_)[t * shape_.choices + c] = experts[static_cast<size_t>(c)];
            floats(weights_)[t * shape_.choices + c] = 0.25f + 0.0625f * static_cast<float>(random() % 16);
        }
    for (Mirrored* x : {&ids_, &weights_}) upload(target_, x->host, x->there);
}

void Layer::pack_experts(int64_t rows, int64_t cols, uint64_t seed, Mirrored& packed, Mirrored& codes,
                         Mirrored& scales) const {
    constexpr int64_t kDistinct = 4;
    std::vector<RandomFourBit> all;
    for (int64_t e = 0; e < std::min(kDistinct, shape_.experts); ++e)
        all.push_back(random_four_bit(*shape_.four_bit, rows, cols, seed + 3 * static_cast<uint64_t>(e)));
    const auto fill = [&](Mirrored& x, DType dtype, int64_t of_one, int64_t x_cols, bool there, const auto& bytes_of) {
        if (there) x = mirrored(target_, dtype, shape_.experts * of_one, x_cols);
        else x.host = make_matrix(dtype, shape_.experts * of_one, x_cols);
        uint8_t* to = x.host.bytes.data();
        for (int64_t e = 0; e < shape_.experts; ++e)
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

Mirrored Layer::weights_of_experts(int64_t rows, int64_t cols, uint64_t seed) const {
    Mirrored w = mirrored(target_, DType::E4M3, shape_.experts * rows, cols);
    fill_codes(w.host.bytes.data(), static_cast<int64_t>(w.host.bytes.size()), codes_, seed);
    upload(target_, w.host, w.there);
    return w;
}

/// So that sums over a row have the magnitude of what they multiply.
Mirrored Layer::scales_of_experts(int64_t rows, int64_t cols) const {
    constexpr double kCode = 165;  // in root mean square
    Mirrored s = mirrored(target_, DType::F32, shape_.experts * blocks_of(rows), blocks_of(cols));
    const auto scale = static_cast<float>(1 / (kCode * std::sqrt(static_cast<double>(cols))));
    for (size_t i = 0; i < s.host.bytes.size() / sizeof scale; ++i)
        floats(s)[i] = scale * (1 + 0.01f * static_cast<float>(i % 7));
    upload(target_, s.host, s.there);
    return s;
}

void Layer::call(const Matrix& out, bool on_host, int64_t first, int64_t count) {
    const auto whole = [&](Mirrored& x) { return on_host ? x.host.view() : x.there; };
    const auto part = [&](Mirrored& x) { return rows_of(whole(x), first, count); };
    const auto stack = [&](Mirrored& x) -> ConstStack {
        const Matrix one = rows_of(whole(x), 0, x.host.rows / shape_.experts);
        return {one, shape_.experts, one.rows * one.row_stride};
    };
    MoeArgs args{};
    args.x = part(x_), args.ids = part(ids_), args.weights = part(weights_), args.out = out;
    if (!shape_.four_bit_alone) {
        args.gate_up = stack(gate_up_), args.gate_up_scales = stack(gate_up_scales_);
        args.down = stack(down_), args.down_scales = stack(down_scales_);
    }
    if (shape_.four_bit) {
        const auto packed = [&](Mirrored& x, int64_t rows, int64_t cols) {
            const Matrix bytes = whole(x);
            return FourBitWeights{bytes.data, *shape_.four_bit, shape_.experts, rows, cols, bytes.device};
        };
        args.gate_up_packed = packed(gate_up_packed_, 2 * shape_.intermediate, shape_.hidden);
        args.down_packed = packed(down_packed_, shape_.hidden, shape_.intermediate);
    }
    moe(context_, args, {.numerics = on_host && target_.gpu ? Numerics::Hopper : Numerics::Fast, .poll = target_.poll});
}

double Layer::time(int repeats) {
    return median_time(target_, repeats, [&] { call(out_.there, false, 0, shape_.tokens); });
}

Trial::Check Layer::check() {
    constexpr double kProducts = 5e7;  // about a second
    const auto [tokens, choices, hidden, intermediate] =
        std::tuple(shape_.tokens, shape_.choices, shape_.hidden, shape_.intermediate);
    download(target_, out_.host, out_.there);
    const double each = 3 * static_cast<double>(choices * hidden * intermediate);
    Check result{.rows = std::clamp<int64_t>(static_cast<int64_t>(kProducts / each), 1, std::min<int64_t>(tokens, 16)),
                 .by_bits = target_.gpu != nullptr};
    const auto expert = [&](Mirrored& x, int64_t id) {
        const int64_t rows = x.host.rows / shape_.experts;
        return rows_of(x.host.view(), id * rows, rows);
    };
    for (int64_t i = 0; i < result.rows; ++i) {
        const int64_t t = result.rows == 1 ? tokens / 2 : i * (tokens - 1) / (result.rows - 1);
        LayerTruth truth(rows_of(x_.host.view(), t, 1));
        for (int64_t c = 0; c < choices; ++c) {
            const int64_t at = t * choices + c, id = integers(ids_)[at];
            truth.add({expert(gate_up_, id), expert(gate_up_scales_, id)},
                      {expert(down_, id), expert(down_scales_, id)}, static_cast<double>(floats(weights_)[at]));
        }
        const Matrix found = rows_of(out_.host.view(), t, 1);
        result.add(truth.relative_error(found), 0, kLayerError);
        if (!target_.gpu) continue;
        HostMatrix by_cpu = make_matrix(DType::BF16, 1, hidden);
        call(by_cpu.view(), true, t, 1);
        result.wrong_bits += differing_elements(found, by_cpu.view());
    }
    return result;
}

double Layer::operations() const {
    return 6.0 * static_cast<double>(shape_.tokens * shape_.choices) *
           static_cast<double>(shape_.hidden * shape_.intermediate);
}

double Layer::bytes() const {
    const auto* ids = reinterpret_cast<const int32_t*>(ids_.host.bytes.data());
    const std::set<int32_t> chosen(ids, ids + shape_.tokens * shape_.choices);
    double bytes = 0, of_experts = 0;
    for (const Mirrored* x : {&x_, &ids_, &weights_, &out_}) bytes += static_cast<double>(x->host.bytes.size());
    const auto add = [&](const Mirrored& x) { of_experts += static_cast<double>(x.host.bytes.size()); };
    if (shape_.four_bit) add(gate_up_packed_), add(down_packed_);
    else add(gate_up_), add(gate_up_scales_), add(down_), add(down_scales_);
    return bytes + of_experts * static_cast<double>(chosen.size()) / static_cast<double>(shape_.experts);
}

}  // namespace finegemm::cli
