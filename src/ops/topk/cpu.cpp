// Selection on the CPU. Layer engine.
#include "ops/topk/cpu.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <vector>

#include "engine/any_address.h"

namespace finegemm {

namespace {

/// The numbers of a row that it is selected from, as topk_ranked has them.
std::vector<uint64_t> ranked_of(const TopkParams& p, uint32_t row) {
    const TopkWindow window = p.window(row);
    std::vector<uint64_t> ranked;
    ranked.reserve(window.end - window.begin);
    for (uint32_t column = window.begin; column < window.end; ++column)
        ranked.push_back(topk_ranked(topk_key(load<uint32_t>(p.logits, row * p.logits_stride + column)), column));
    return ranked;
}

void write_histogram(const TopkParams& p, uint32_t row, const std::vector<uint64_t>& ranked) {
    std::array<int32_t, kTopkHistogramBins> bins{};
    for (const uint64_t x : ranked) ++bins[topk_histogram_bin(topk_digit(static_cast<uint32_t>(x >> 32), 0))];
    for (uint32_t i = 0; i < kTopkHistogramBins; ++i) store(p.histogram, row * p.histogram_stride + i, bins[i]);
}

void write_selected(const TopkParams& p, uint32_t row, std::vector<uint64_t> ranked) {
    const auto k = static_cast<std::ptrdiff_t>(std::min<size_t>(p.k, ranked.size()));
    if (k < static_cast<std::ptrdiff_t>(ranked.size()))
        std::ranges::nth_element(ranked, ranked.begin() + k, std::greater<>());
    ranked.resize(static_cast<size_t>(k));
    if (p.sorted) std::ranges::sort(ranked, std::greater<>());
    else std::ranges::sort(ranked, std::less<>(), &topk_column);
    for (uint32_t i = 0; i < p.k; ++i) {
        const bool none = i >= ranked.size();
        const uint32_t column = none ? 0 : topk_column(ranked[i]);
        store(p.indices, row * p.indices_stride + i, none ? kTopkNone : static_cast<int32_t>(column));
        if (p.values)
            store(
                p.values, row * p.values_stride + i,
                none ? -std::numeric_limits<float>::infinity() : load<float>(p.logits, row * p.logits_stride + column));
    }
}

}  // namespace

void run_on_cpu(const TopkCall& call, ThreadPool& pool) {
    const TopkParams p = topk_params(call);
    const auto task = [&](int64_t i) {
        const auto row = static_cast<uint32_t>(i);
        std::vector<uint64_t> ranked = ranked_of(p, row);
        if (p.histogram) write_histogram(p, row, ranked);
        if (p.k > 0) write_selected(p, row, std::move(ranked));
    };
    pool.parallel_for(call.rows(), task, call.options.poll);
}

}  // namespace finegemm
