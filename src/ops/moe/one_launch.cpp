// A layer of experts of few tokens as one launch. Layer engine.
#include "ops/moe/one_launch.h"

#include <algorithm>

#include "cuda/tensor_map.h"
#include "ops/routing/hopper.h"

namespace finegemm {

namespace {

constexpr int64_t kLine = 256;    // bytes: parts begin at multiples of it
constexpr int64_t kAligned = 16;  // bytes: what TMA copies

int64_t choices_of(const MoeShape& s) { return s.tokens * s.choices; }
int64_t blocks(int64_t extent) { return extent / kScaleBlock; }

/// Codes of experts as one matrix.
TensorMap map_of(const void* codes, int64_t rows, int64_t cols, uint32_t box_rows, const cuda::Driver& driver) {
    return cuda::encode(driver,
                        {.data = codes,
                         .rows = static_cast<uint64_t>(rows),
                         .cols = static_cast<uint64_t>(cols),
                         .row_stride_bytes = static_cast<uint64_t>(cols)},
                        {.rows = box_rows, .cols = kScaleBlock, .swizzle = Swizzle::B128});
}

bool is_whole(const ConstStack& x) {
    const ConstMatrix& m = x.matrix;
    return m.row_stride == m.cols && m.col_stride == 1 && (x.count == 1 || x.stride == m.rows * m.cols) &&
           reinterpret_cast<uintptr_t>(m.data) % kAligned == 0;
}

template <typename T>
T* at(void* memory, int64_t offset) {
    return reinterpret_cast<T*>(first_line(memory) + offset);
}

}  // namespace

LayerMemory layer_memory_of(const MoeShape& s) {
    int64_t end = 0;
    const auto take = [&](int64_t bytes) {
        const int64_t begin = end;
        end += (bytes + kLine - 1) / kLine * kLine;
        return begin;
    };
    const int64_t rows = choices_of(s);
    LayerMemory m;
    m.rows = take(rows * s.hidden);
    m.row_scales = take(rows * blocks(s.hidden) * 4);
    m.between = take(rows * s.intermediate * 2);
    m.codes = take(rows * s.intermediate);
    m.code_scales = take(rows * blocks(s.intermediate) * 4);
    m.y = take(rows * s.hidden * 2);
    m.bytes = end + kLine - 1;
    return m;
}

bool can_be_one_launch(const MoeShape& s) {
    constexpr int64_t kStep = 4 * kScaleBlock;  // scales of a row are whole pieces of 16 bytes
    const int64_t choices = choices_of(s);
    const auto fits = [](int64_t cols) { return cols > 0 && cols % kStep == 0 && cols <= kLayerMostColumns; };
    if (choices < 1 || choices > int64_t{LayerConfig::kMostChoices} || !fits(s.hidden) || !fits(s.intermediate))
        return false;
    if (s.four_bit || s.biased || s.f32_between || s.fused || rows_of(s) < choices) return false;
    const auto most = static_cast<uint32_t>(std::min(choices, s.experts));
    // Groups that an expert's rows make besides its first one take words, too.
    const auto groups = most + static_cast<uint32_t>(choices) / 16;
    return LayerCounters::words(groups, static_cast<uint32_t>(blocks(s.intermediate)),
                                static_cast<uint32_t>(s.hidden / LayerConfig::kTileRows)) <= LayerCounters::kWords;
}

bool can_be_one_launch(const MoeCall& call) {
    const MoeOptions& o = call.options;
    return can_be_one_launch(call.shape()) && !call.elsewhere && !call.check_values && !o.weights_first &&
           call.x.dtype == DType::BF16 && call.weights.data && is_whole(call.gate_up) &&
           is_whole(call.gate_up_scales) && is_whole(call.down) && is_whole(call.down_scales);
}

LayerLaunch one_launch_of(const MoeCall& call, void* memory, uint32_t slot, const cuda::Driver& driver, uint32_t sms) {
    const MoeShape s = call.shape();
    const LayerMemory m = layer_memory_of(s);
    const MoeOptions& o = call.options;
    const int64_t rows = choices_of(s);
    // An expert has more rows than 16 only where there are so many choices of it; half as many again are expected.
    const LayerConfig config{rows * 3 > s.experts * 2 * 16 && s.tokens > 16 ? 32u : 16u};
    LayerParams p{};
    p.gate_up = map_of(call.gate_up.matrix.data, s.experts * 2 * s.intermediate, s.hidden, LayerConfig::kHalf, driver);
    p.down = map_of(call.down.matrix.data, s.experts * s.hidden, s.intermediate, LayerConfig::kHalf, driver);
    p.rows = map_of(at<void>(memory, m.rows), rows, s.hidden, LayerConfig::kBoxRows, driver);
    p.codes = map_of(at<void>(memory, m.codes), rows, s.intermediate, LayerConfig::kBoxRows, driver);
    const RouteOptions of_route{};
    const RouteArgs found{
        .ids = call.ids, .inverse = {}, .numbers = {}, .experts = s.experts, .first = call.first, .rows = rows};
    p.route = route_params({found, of_route, false});
    p.x = static_cast<const uint8_t*>(call.x.data);
    p.weights = static_cast<const float*>(call.weights.data);
    p.gate_up_scales = static_cast<const float*>(call.gate_up_scales.matrix.data);
    p.down_scales = static_cast<const float*>(call.down_scales.matrix.data);
    p.out = static_cast<uint8_t*>(call.out.data);
    p.q = at<uint8_t>(memory, m.rows), p.z = at<uint8_t>(memory, m.codes);
    p.q_scales = at<float>(memory, m.row_scales), p.z_scales = at<float>(memory, m.code_scales);
    p.between = at<uint16_t>(memory, m.between), p.y = at<uint16_t>(memory, m.y);
    p.x_row_stride = call.x.row_stride * 2, p.out_row_stride = call.out.row_stride * 2;
    p.weight_row_stride = call.weights.row_stride;
    p.tokens = static_cast<uint32_t>(s.tokens), p.k = static_cast<uint32_t>(s.choices);
    p.hidden = static_cast<uint32_t>(s.hidden), p.pairs = static_cast<uint32_t>(s.intermediate);
    p.power_of_two = o.power_of_two_scales;
    p.rule = {.slope = o.gate_alpha, .offset = o.up_offset};
    if (o.gate_limit > 0) p.rule.limit = o.gate_limit;
    p.slot = slot;
    const uint32_t chunks = ceil_div(p.hidden, LayerParams::kChunk);
    p.tasks = p.tokens * chunks, p.by_chunks = Divider::by(chunks);
    p.copies = std::min(p.k, config.rows);
    const auto budget = static_cast<uint32_t>(o.num_sms);
    return {config, p, budget > 0 ? std::min(budget, sms) : sms};
}

}  // namespace finegemm
