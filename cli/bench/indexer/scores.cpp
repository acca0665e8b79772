// Scores of an indexer on one device. Layer cli.
#include "cli/bench/indexer/scores.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <sstream>

#include <fmt/format.h>

#include <finegemm/error.h>

#include "plan/elements.h"

namespace finegemm::cli {

namespace {

constexpr const char* kOfRows = "mqa_logits";
constexpr const char* kOfPages = "paged_mqa_logits";

const std::map<std::string, DType> kTypes = {{"f32", DType::F32}, {"bf16", DType::BF16}};

}  // namespace

bool is_scores(const std::string& line) {
    return line.starts_with(std::string(kOfRows) + " ") || line.starts_with(std::string(kOfPages) + " ");
}

MqaShape parse_scores(const std::string& line) {
    std::istringstream words(line);
    std::string name, size, heads;
    words >> name >> size >> heads;
    MqaShape s{.paged = name == kOfPages};
    const std::vector<int64_t> extents = extents_of(size, s.paged ? 3 : 2), of_heads = extents_of(heads, 2);
    bool good = is_scores(line) && !extents.empty() && !of_heads.empty();
    for (std::string word; good && words >> word;) {
        if (!take_page(word, s.paged, s.page_size, good))
            good = take_word(kTypes, word, s.dtype) || take_word(kLogitsForms, word, s.form) ||
                   take_word(kRelus, word, s.relu);
    }
    if (!good)
        throw Error(Errc::InvalidArgument,
                    fmt::format("shape '{}': must be like '{} 2048x8192 64x128 bf16 untouched abs' or '{} "
                                "256x2x8192 64x128 page64': queries and keys, or requests, queries of each and keys; "
                                "then heads and D; then what is not f32, filled and exact",
                                line, kOfRows, kOfPages));
    if (s.paged) s.requests = extents[0];
    s.queries = extents[extents.size() - 2], s.keys = extents.back();
    s.heads = of_heads[0], s.dim = of_heads[1];
    check_queries_see(line, s.paged, s.queries, s.keys);
    return s;
}

Scores::Scores(Context& context, const Target& target, const MqaShape& shape, uint64_t seed)
    : target_(target),
      shape_(shape),
      operands_(context, target, shape, seed),
      d_(mirrored(target, shape.dtype, shape.rows(), shape.keys)) {}

double Scores::time(int repeats) {
    const MqaOptions options{.form = shape_.form, .relu = shape_.relu, .poll = target_.poll};
    return median_time(target_, repeats, [&] { operands_.score(d_.there, options); });
}

namespace {

/// The logit of a query and a key in double, and how far a computed one may be from it, by docs/indexer.md.
struct Truth {
    double logit, bound;
};
Truth truth_of(const uint8_t* q, const float* w, const uint8_t* key, double scale, const MqaShape& s) {
    using E4m3 = Codes<DType::E4M3>;
    const auto magnitude = [](uint8_t c) { return static_cast<double>(E4m3::value(E4m3::magnitude(c))); };
    double sum = 0, absolute = 0, of_key = 0, largest_v = 0;
    for (int64_t k = 0; k < s.dim; ++k) {
        double v = 0;
        for (int64_t h = 0; h < s.heads; ++h) v += static_cast<double>(w[h]) / 2 * E4m3::value(q[h * s.dim + k]);
        largest_v = std::max(largest_v, std::abs(v)), of_key += magnitude(key[k]);
    }
    for (int64_t h = 0; h < s.heads; ++h) {
        double x = 0, of_x = 0;
        for (int64_t k = 0; k < s.dim; ++k) {
            const uint8_t code = q[h * s.dim + k];
            x += static_cast<double>(E4m3::value(code)) * E4m3::value(key[k]),
                of_x += magnitude(code) * magnitude(key[k]);
        }
        sum += std::max(x, 0.0) * w[h], absolute += of_x * std::abs(w[h]);
    }
    const double u = 0x1p-24, loss = (33 * static_cast<double>(s.dim) / 32 - 1) * 0x1p-13;
    const double g = std::expm1((static_cast<double>(s.heads) / 4 + 3) * u);
    double bound = absolute * (loss + g);
    if (s.relu == Relu::Abs) {
        const double of_v = std::expm1(static_cast<double>(s.heads) * u), step = largest_v / 224;
        const double linear = of_v + (1 + of_v) * (0x1p-8 + loss * (1 + 0x1p-4) * (1 + 0x1p-4));
        bound = absolute / 2 * (loss + g + linear) + step * of_key * (0x1p-14 + loss * 0x1p-5) + 3 * u * absolute;
    }
    const double logit = sum * scale;
    bound = bound * scale + (s.dtype == DType::BF16 ? (std::abs(logit) + bound * scale) * 0x1p-8 : 0);
    return {logit, bound};
}

}  // namespace

Trial::Check Scores::check() {
    constexpr double kProducts = 2e7;  // of a head and a key: about a second
    download(target_, d_.host, d_.there);
    const int64_t each = shape_.paged ? shape_.queries : 1, all = shape_.rows() / each;
    const int64_t items =
        std::clamp<int64_t>(static_cast<int64_t>(kProducts / static_cast<double>(shape_.keys * shape_.heads * each)), 1,
                            std::min<int64_t>(all, 8));
    Check result{.by_bits = target_.gpu != nullptr};
    for (int64_t n = 0; n < items; ++n) {
        const int64_t first = items == 1 ? all / 2 : n * (all - 1) / (items - 1);
        HostMatrix by_cpu = make_matrix(shape_.dtype, each, shape_.keys);
        if (target_.gpu) operands_.score_on_host(by_cpu.view(), {.form = shape_.form, .relu = shape_.relu}, first);
        for (int64_t t = 0; t < each; ++t) {
            const int64_t i = first * each + t;
            const auto [begin, end] = operands_.row(i);
            ++result.rows;
            for (int64_t j = 0; j < shape_.keys; ++j) {
                const auto read = [&](const HostMatrix& d, int64_t r, uint32_t& bits) {
                    const uint8_t* at = d.bytes.data() + (r * d.cols + j) * size_of(d.dtype);
                    bits = 0;
                    std::memcpy(&bits, at, d.dtype == DType::BF16 ? 2 : 4);
                    return d.dtype == DType::BF16 ? Codes<DType::BF16>::value(static_cast<uint16_t>(bits))
                                                  : std::bit_cast<float>(bits);
                };
                uint32_t bits = 0, wanted = 0;
                const double found = static_cast<double>(read(d_.host, i, bits));
                static_cast<void>(read(by_cpu, t, wanted));
                if (j < begin || j >= end) {
                    result.wrong_fill +=
                        shape_.form == LogitsForm::Filled && found != -std::numeric_limits<double>::infinity();
                    continue;
                }
                result.wrong_bits += target_.gpu && bits != wanted;
                float scale = 0;
                const uint8_t* codes = operands_.key(i, j, scale);
                const auto [logit, bound] =
                    truth_of(operands_.query(i), operands_.weights(i), codes, static_cast<double>(scale), shape_);
                result.add(found, logit, bound);
            }
        }
    }
    return result;
}

double Scores::operations() const { return operands_.operations(); }

double Scores::bytes() const {
    double logits = 0;
    for (int64_t i = 0; i < shape_.rows(); ++i) {
        const auto [begin, end] = operands_.row(i);
        logits += static_cast<double>(shape_.form == LogitsForm::Filled ? shape_.keys : end - begin);
    }
    return operands_.bytes() + logits * static_cast<double>(size_of(shape_.dtype));
}

}  // namespace finegemm::cli
