// A layer of experts on one device. Layer cli.
#include "cli/bench/experts/layer.h"

#include <algorithm>
#include <optional>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include <finegemm/error.h>

#include "cli/bench/codes.h"
#include "cli/bench/experts/layer_truth.h"
#include "cli/bench/four_bit/trial.h"
#include "cli/random.h"
#include "workbench/accuracy.h"

namespace finegemm::cli {

namespace {

constexpr const char* kLayer = "moe ";

}  // namespace

bool is_layer(const std::string& line) { return line.starts_with(kLayer); }

MoeShape parse_layer(const std::string& line) {
    std::istringstream words(line);
    std::string name, sizes, experts, rest;
    words >> name >> sizes >> experts;
    const std::vector<int64_t> extents = extents_of(sizes, 3), chosen = extents_of(experts, 2);
    std::optional<FourBitFormat> four_bit;
    bool fp8 = false, biased = false, good = is_layer(line) && !extents.empty() && !chosen.empty();
    while (good && words >> rest) {
        if (biased) good = false;
        else if (rest == "biased") biased = true;
        else if (!four_bit) good = (four_bit = format_of(rest)).has_value();
        else good = !fp8 && (fp8 = rest == "fp8");
    }
    if (!good)
        throw Error(
            Errc::InvalidArgument,
            fmt::format("shape '{}': must be like '{}64x7168x2048 256x8': tokens, columns of a token and pairs "
                        "of a gate and an up; experts, and how many of them a token chooses; then mxfp4 or int4 "
                        "for weights of 4 bits, and fp8 where their FP8 lies beside them; then biased for biases",
                        line, kLayer));
    const MoeShape shape{.tokens = extents[0],
                         .choices = chosen[1],
                         .hidden = extents[1],
                         .intermediate = extents[2],
                         .experts = chosen[0],
                         .four_bit = four_bit,
                         .four_bit_alone = four_bit && !fp8,
                         .biased = biased};
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
    : context_(context),
      target_(target),
      shape_(shape),
      experts_(target, shape, random_codes(context), seed + 1),
      x_(mirrored(target, DType::BF16, shape.tokens, shape.hidden)),
      ids_(mirrored(target, DType::I32, shape.tokens, shape.choices)),
      weights_(mirrored(target, DType::F32, shape.tokens, shape.choices)),
      out_(mirrored(target, DType::BF16, shape.tokens, shape.hidden)) {
    fill(x_.host, random_bf16(seed), 0);
    upload(target, x_.host, x_.there);
    choose(target, ids_, weights_, shape.experts, seed);
}

void Layer::call(const Matrix& out, bool on_host, int64_t first, int64_t count) {
    const auto whole = [&](Mirrored& x) { return on_host ? x.host.view() : x.there; };
    const auto part = [&](Mirrored& x) { return rows_of(whole(x), first, count); };
    MoeOptions options{.numerics = on_host && target_.gpu ? Numerics::Hopper : Numerics::Fast, .poll = target_.poll};
    experts_.add_biases(options, on_host);
    moe(context_, experts_.args(part(x_), part(ids_), part(weights_), out, on_host), options);
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
    for (int64_t i = 0; i < result.rows; ++i) {
        const int64_t t = result.rows == 1 ? tokens / 2 : i * (tokens - 1) / (result.rows - 1);
        LayerTruth truth(rows_of(x_.host.view(), t, 1));
        for (int64_t c = 0; c < choices; ++c) {
            const int64_t at = t * choices + c;
            experts_.add(truth, integers(ids_)[at], static_cast<double>(floats(weights_)[at]));
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
    double bytes = 0;
    for (const Mirrored* x : {&x_, &ids_, &weights_, &out_}) bytes += static_cast<double>(x->host.bytes.size());
    return bytes + experts_.bytes() * static_cast<double>(chosen.size()) / static_cast<double>(shape_.experts);
}

}  // namespace finegemm::cli
