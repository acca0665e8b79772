// Selections of the largest on one device. Layer cli.
#include "cli/bench/indexer/selection.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <sstream>
#include <vector>

#include <fmt/format.h>

#include <finegemm/error.h>

#include "cli/random.h"
#include "cli/text.h"

namespace finegemm::cli {

namespace {

constexpr const char* kBestOfNumbers = "topk";
constexpr const char* kBestOfRows = "mqa_topk";
constexpr const char* kBestOfPages = "paged_mqa_topk";
constexpr size_t kBins = 256;  // of a histogram

/// A word besides those of an indexer.
bool take_flag(const std::string& word, TopkShape& s) {
    if (word == "sorted") s.sorted = true;
    else if (word == "histogram") s.histogram = true;
    else if (word == "logits" && s.heads > 0) s.logits = true;
    else return false;
    return true;
}

/// The bin that docs/indexer_topk.md says: quarters of octaves by the number's logarithm.
size_t bin_of(float x) {
    if (std::isnan(x)) return kBins - 1;
    int quarters = 0;
    if (const float size = std::abs(x); std::isinf(size)) quarters = 127;
    else if (size > 0) {
        const int octave = std::ilogb(size);
        quarters = 4 * (octave + 15) + static_cast<int>(4 * (std::scalbn(size, -octave) - 1));
    }
    const size_t i = static_cast<size_t>(std::clamp(quarters, 0, 127));
    return x < 0 ? kBins / 2 - 1 - i : kBins / 2 + i;
}

/// The columns that are to be selected, found by sorting; -1 where there are too few numbers.
std::vector<int32_t> sorted_columns(const float* logits, int64_t end, int64_t k, bool sorted) {
    std::vector<int32_t> order(static_cast<size_t>(end));
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](int32_t a, int32_t b) {
        return std::isnan(logits[a]) ? !std::isnan(logits[b]) : logits[a] > logits[b];
    });
    order.resize(static_cast<size_t>(std::min(k, end)));
    if (!sorted) std::ranges::sort(order);
    order.resize(static_cast<size_t>(k), -1);
    return order;
}

template <typename T>
const T* row_of(const Mirrored& x, int64_t row) {
    return reinterpret_cast<const T*>(x.host.bytes.data()) + row * x.host.cols;
}

MqaShape logits_of(const TopkShape& s) {
    return {.paged = s.paged,
            .requests = s.requests,
            .queries = s.queries,
            .keys = s.keys,
            .heads = s.heads,
            .dim = s.dim,
            .page_size = s.page_size,
            .form = s.form,
            .relu = s.relu};
}

}  // namespace

bool is_selection(const std::string& line) {
    return std::ranges::any_of(std::array{kBestOfNumbers, kBestOfRows, kBestOfPages},
                               [&](const char* name) { return line.starts_with(std::string(name) + " "); });
}

TopkShape parse_selection(const std::string& line) {
    std::istringstream words(line);
    std::string name, k, of, size, heads;
    words >> name >> k >> of >> size;
    TopkShape s{.k = number_of(k), .paged = name == kBestOfPages};
    const bool of_indexer = name != kBestOfNumbers;
    const std::vector<int64_t> extents = extents_of(size, s.paged ? 3 : 2);
    bool good = is_selection(line) && s.k >= 0 && of == "of" && !extents.empty();
    if (good && of_indexer) {
        words >> heads;
        const std::vector<int64_t> of_heads = extents_of(heads, 2);
        if (good = !of_heads.empty(); good) s.heads = of_heads[0], s.dim = of_heads[1];
    }
    for (std::string word; good && words >> word;)
        if (!take_page(word, s.paged, s.page_size, good))
            good = take_flag(word, s) ||
                   (of_indexer && (take_word(kLogitsForms, word, s.form) || take_word(kRelus, word, s.relu)));
    if (!good)
        throw Error(Errc::InvalidArgument,
                    fmt::format("shape '{}': must be like '{} 2048 of 4096x32768 sorted histogram', '{} 2048 of "
                                "2048x8192 64x128 abs logits untouched' or '{} 2048 of 256x2x8192 64x128 page64': k, "
                                "rows and columns, or queries and keys, or requests, queries of each and keys; heads "
                                "and D; then what is asked for",
                                line, kBestOfNumbers, kBestOfRows, kBestOfPages));
    if (s.paged) s.requests = extents[0];
    s.queries = extents[extents.size() - 2], s.keys = extents.back();
    if (of_indexer) check_queries_see(line, s.paged, s.queries, s.keys);
    return s;
}

Selection::Selection(Context& context, const Target& target, const TopkShape& shape, uint64_t seed)
    : context_(context), target_(target), shape_(shape) {
    const int64_t rows = shape.rows();
    if (shape.heads > 0) operands_.emplace(context, target, logits_of(shape), seed);
    if (!operands_ || shape.logits) logits_ = mirrored(target, DType::F32, rows, shape.keys);
    if (!operands_) {
        fill(logits_.host, random_matrix(1, kRandomPeriod, seed), 0);
        upload(target, logits_.host, logits_.there);
    }
    if (shape.k > 0) indices_ = mirrored(target, DType::I32, rows, shape.k);
    if (shape.histogram) histogram_ = mirrored(target, DType::I32, rows, kBins);
}

void Selection::call() {
    const TopkOptions options{.sorted = shape_.sorted, .form = shape_.form, .relu = shape_.relu, .poll = target_.poll};
    const TopkOutputs out{.indices = indices_.there, .values = {}, .histogram = histogram_.there};
    if (!operands_) return topk(context_, {.logits = logits_.there, .starts = {}, .ends = {}, .out = out}, options);
    if (shape_.paged) {
        const PagedMqaLogitsArgs of = operands_->in_pages();
        return paged_mqa_topk(context_,
                              {.q = of.q,
                               .cache = of.cache,
                               .w = of.w,
                               .lengths = of.lengths,
                               .block_table = of.block_table,
                               .keys = shape_.logits ? 0 : shape_.keys,
                               .out = out,
                               .logits = logits_.there},
                              options);
    }
    const MqaLogitsArgs of = operands_->in_rows();
    mqa_topk(context_,
             {.q = of.q,
              .k = of.k,
              .sfk = of.sfk,
              .w = of.w,
              .starts = of.starts,
              .ends = of.ends,
              .out = out,
              .logits = logits_.there},
             options);
}

double Selection::time(int repeats) {
    return median_time(target_, repeats, [&] { call(); });
}

void Selection::check_row(Check& result, int64_t row, const float* logits, int64_t end) {
    ++result.rows;
    if (shape_.k > 0) {
        const std::vector<int32_t> wanted = sorted_columns(logits, end, shape_.k, shape_.sorted);
        const auto* found = row_of<int32_t>(indices_, row);
        for (int64_t i = 0; i < shape_.k; ++i) result.wrong_places += found[i] != wanted[static_cast<size_t>(i)];
    }
    if (shape_.histogram) {
        std::array<int32_t, kBins> wanted{};
        for (int64_t j = 0; j < end; ++j) ++wanted[bin_of(logits[j])];
        const auto* found = row_of<int32_t>(histogram_, row);
        for (size_t b = 0; b < kBins; ++b) result.wrong_places += found[b] != wanted[b];
    }
    if (!shape_.logits) return;
    const auto* found = row_of<float>(logits_, row);
    for (int64_t j = 0; j < end; ++j)
        result.wrong_bits += std::bit_cast<uint32_t>(found[j]) != std::bit_cast<uint32_t>(logits[j]);
    for (int64_t j = end; j < shape_.keys && shape_.form == LogitsForm::Filled; ++j)
        result.wrong_fill += found[j] != -std::numeric_limits<float>::infinity();
}

/// The rows' logits are computed again on the CPU, unless they were given.
Trial::Check Selection::check() {
    constexpr double kProducts = 2e7;  // of a head and a key, which take longer than their sort: about a second
    for (Mirrored* x : {&indices_, &histogram_, &logits_})
        if (x->there.data) download(target_, x->host, x->there);
    const int64_t each = shape_.paged ? shape_.queries : 1, all = shape_.rows() / each;
    const double of_item = static_cast<double>(shape_.keys * std::max<int64_t>(shape_.heads, 8) * each);
    const int64_t items = std::clamp<int64_t>(static_cast<int64_t>(kProducts / of_item), 1, std::min<int64_t>(all, 8));
    Check result{.by_bits = target_.gpu && operands_, .sorted = true};
    for (int64_t n = 0; n < items; ++n) {
        const int64_t first = items == 1 ? all / 2 : n * (all - 1) / (items - 1);
        HostMatrix by_cpu = make_matrix(DType::F32, operands_ ? each : 0, shape_.keys);
        if (operands_) operands_->score_on_host(by_cpu.view(), {.relu = shape_.relu}, first);
        for (int64_t t = 0; t < each; ++t) {
            const int64_t row = first * each + t;
            const float* logits = operands_ ? reinterpret_cast<const float*>(by_cpu.bytes.data()) + t * shape_.keys
                                            : row_of<float>(logits_, row);
            check_row(result, row, logits, operands_ ? operands_->row(row).end : shape_.keys);
        }
    }
    return result;
}

double Selection::operations() const { return operands_ ? operands_->operations() : 0; }

double Selection::bytes() const {
    double bytes = operands_ ? operands_->bytes() : 0;
    for (const Mirrored* x : {&logits_, &indices_, &histogram_}) bytes += static_cast<double>(x->host.bytes.size());
    return bytes;
}

}  // namespace finegemm::cli
