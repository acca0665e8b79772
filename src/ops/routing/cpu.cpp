// Routing on the CPU. Layer engine.
#include "ops/routing/cpu.h"

#include <algorithm>
#include <array>
#include <vector>

#include "engine/any_address.h"
#include "ops/expert_bias.h"
#include "ops/quantize/cpu.h"

namespace finegemm {

namespace {

/// Where an expert's next row is, from the first one on. Writes the numbers of groups, and marks padding.
std::array<uint32_t, kMostExperts> place_experts(const RouteCall& call, const RoutePlaces& places,
                                                 const std::array<uint32_t, kMostExperts + 1>& choices) {
    const bool indices = places.form == RouteForm::Indices, offsets = places.form == RouteForm::Offsets;
    const auto mark = [&](uint32_t row) {
        if (call.wants_permutation()) store(call.permutation.data, row, kNoRow);
        if (indices) store(call.numbers.data, row, kNoRow);
    };
    std::array<uint32_t, kMostExperts> next{};
    uint32_t taken = 0, behind = 0;
    for (uint32_t e = 0; e < places.experts; ++e) {
        const ExpertRows rows = places.of(e, taken, choices[e]);
        next[e] = places.masked() ? rows.begin : taken;
        taken += places.taken(choices[e]);
        behind = rows.next;
        const uint32_t number = places.masked() ? rows.end - rows.begin : offsets ? rows.begin : rows.end;
        if (!indices) store(call.numbers.data, e, number);
        if (offsets) store(call.numbers.data, e + 1, rows.end);
        for (uint32_t row = rows.end; row < rows.next && !places.masked(); ++row) mark(row);
    }
    for (uint32_t row = behind; row < places.rows && !places.masked(); ++row) mark(row);
    return next;
}

/// Bytes of a row's part that is done at once: what a block of scales has, or all.
constexpr int64_t kBlock = kScaleBlock;

void quantize_token(const PermuteCall& call, int64_t t, std::vector<uint8_t>& codes, std::vector<float>& scales) {
    for (int64_t col = 0; col < call.x.cols; col += kBlock) {
        const CpuQuantizeBlock block{
            .x = static_cast<const uint8_t*>(call.x.data) + (t * call.x.row_stride + col) * size_of(call.x.dtype),
            .q = codes.data() + col,
            .dtype = call.x.dtype,
            .codes = QuantizeCodes::E4M3,
            .rows = 1,
            .cols = std::min(kBlock, call.x.cols - col),
            .x_row_stride = 0,
            .q_row_stride = 0};
        scales[static_cast<size_t>(col / kBlock)] = cpu_quantize_block(block, call.options.power_of_two_scales);
    }
}

void copy_token(const PermuteCall& call, int64_t t, std::vector<uint8_t>& codes, std::vector<float>& scales) {
    const auto* row = static_cast<const uint8_t*>(call.x.data) + t * call.x.row_stride * size_of(call.x.dtype);
    std::copy_n(row, codes.size(), codes.begin());
    const ConstMatrix& s = call.x_scales;
    if (s.data)
        for (size_t b = 0; b < scales.size(); ++b)
            scales[b] = load<float>(s.data, t * s.row_stride + static_cast<int64_t>(b) * s.col_stride);
}

/// Calls visit(choice, row) for those of a token that have a row.
template <typename Visit>
void for_rows(const ConstMatrix& inverse, int64_t t, const RowStack& rows, const Visit& visit) {
    for (int64_t c = 0; c < inverse.cols; ++c) {
        const auto row = load<int32_t>(inverse.data, t * inverse.row_stride + c);
        if (rows.has(row)) visit(c, static_cast<uint32_t>(row));
    }
}

/// As many tokens at once as take at most about 0.1 s: a call ends between them.
template <typename Body>
void for_tokens(ThreadPool& pool, int64_t tokens, int64_t work_of_each, const Poll& poll, const Body& body) {
    const int64_t at_once = std::clamp<int64_t>((int64_t{1} << 22) / (work_of_each + 1), 1, 256);
    pool.parallel_for((tokens + at_once - 1) / at_once,
                      [&](int64_t i) { body(i * at_once, std::min(tokens, (i + 1) * at_once)); }, poll);
}

int64_t expert_of(const CombineCall& call, int64_t t, int64_t c) {
    return call.route->places().expert(id_of(call.route->ids, t, c), call.route->first);
}

}  // namespace

void run_on_cpu(const RouteCall& call, ThreadPool&) {
    const RoutePlaces places = call.places();
    const auto expert_of = [&](int64_t t, int64_t c) { return places.expert(id_of(call.ids, t, c), call.first); };
    std::array<uint32_t, kMostExperts + 1> choices{};
    for (int64_t t = 0; t < call.ids.rows; ++t)
        for (int64_t c = 0; c < call.ids.cols; ++c) ++choices[expert_of(t, c)];
    std::array<uint32_t, kMostExperts> next = place_experts(call, places, choices);
    for (int64_t t = 0; t < call.ids.rows; ++t)
        for (int64_t c = 0; c < call.ids.cols; ++c) {
            const uint32_t e = expert_of(t, c);
            const uint32_t row = e < places.experts ? next[e]++ : 0;
            const bool fits = e < places.experts && row < places.limit(e);
            store(call.inverse.data, t * call.inverse.row_stride + c, fits ? static_cast<int32_t>(row) : kNoRow);
            if (!fits) continue;
            if (call.wants_permutation())
                store(call.permutation.data, row, static_cast<int32_t>(t * call.ids.cols + c));
            if (places.form == RouteForm::Indices) store(call.numbers.data, row, e);
        }
}

void run_on_cpu(const PermuteCall& call, ThreadPool& pool) {
    if (call.route) run_on_cpu(*call.route, pool);
    const int64_t bytes = size_of(call.q.matrix.dtype);
    const RowStack q = rows_of(call.q, bytes), of_scales = rows_of(call.scales, 1);
    const auto tokens = [&](int64_t first, int64_t last) {
        std::vector<uint8_t> codes(static_cast<size_t>(call.x.cols * bytes));
        std::vector<float> scales(static_cast<size_t>((call.x.cols + kBlock - 1) / kBlock));
        for (int64_t t = first; t < last; ++t) {
            bool known = false;
            for_rows(call.inverse, t, q, [&](int64_t c, uint32_t row) {
                if (call.weights_of_rows.data)
                    store(call.weights_of_rows.data, row,
                          load<float>(call.weights.data, t * call.weights.row_stride + c));
                if (!known)
                    call.quantizes() ? quantize_token(call, t, codes, scales) : copy_token(call, t, codes, scales);
                known = true;
                std::ranges::copy(codes, static_cast<uint8_t*>(call.q.matrix.data) + q.offset(row));
                if (!call.scales.matrix.data) return;
                for (size_t b = 0; b < scales.size(); ++b)
                    store(call.scales.matrix.data,
                          of_scales.offset(row) + static_cast<int64_t>(b) * call.scales.matrix.col_stride, scales[b]);
            });
            if (call.sums.data && !known)
                std::fill_n(static_cast<uint16_t*>(call.sums.data) + t * call.sums.row_stride, call.x.cols, 0);
        }
    };
    for_tokens(pool, call.x.rows, call.x.cols * call.inverse.cols, call.options.poll, tokens);
}

void run_on_cpu(const CombineCall& call, ThreadPool& pool) {
    const RowStack y = rows_of(call.y, 1);
    const auto tokens = [&](int64_t first, int64_t last) {
        std::vector<float> sums(static_cast<size_t>(call.out.cols));
        for (int64_t t = first; t < last; ++t) {
            std::ranges::fill(sums, 0.0f);
            for_rows(call.inverse, t, y, [&](int64_t c, uint32_t row) {
                const float weight =
                    call.has_weights() ? load<float>(call.weights.data, t * call.weights.row_stride + c) : 1.0f;
                const float of_bias = call.bias_weights.data
                                          ? load<float>(call.bias_weights.data, t * call.bias_weights.row_stride + c)
                                          : 1.0f;
                const int64_t at = y.offset(row), expert = call.has_bias() ? expert_of(call, t, c) : 0;
                for (int64_t i = 0; i < call.out.cols; ++i) {
                    float value = float_of_bf16(load<uint16_t>(call.y.matrix.data, at + i));
                    if (call.has_bias()) {
                        const float added = of_bias * bias_at(call.biases, expert, i);
                        value += added;
                    }
                    const float product = weight * value;
                    sums[static_cast<size_t>(i)] += product;
                }
            });
            for (int64_t i = 0; i < call.out.cols; ++i)
                store(call.out.data, t * call.out.row_stride + i, bf16_of_float(sums[static_cast<size_t>(i)]));
        }
    };
    for_tokens(pool, call.out.rows, call.out.cols * call.inverse.cols, call.options.poll, tokens);
}

}  // namespace finegemm
