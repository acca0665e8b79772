// Scores of an indexer on one device. Layer cli.
#include "cli/bench/scores.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <sstream>

#include <fmt/format.h>

#include <finegemm/error.h>

#include "cli/bench/codes.h"
#include "cli/random.h"
#include "cli/text.h"
#include "plan/elements.h"

namespace finegemm::cli {

namespace {

constexpr const char* kOfRows = "mqa_logits";
constexpr const char* kOfPages = "paged_mqa_logits";
constexpr int64_t kBytesOfScale = sizeof(float);

const std::map<std::string, DType> kTypes = {{"f32", DType::F32}, {"bf16", DType::BF16}};
const std::map<std::string, LogitsForm> kLogitsForms = {
    {"filled", LogitsForm::Filled}, {"untouched", LogitsForm::Untouched}, {"compressed", LogitsForm::Compressed}};
const std::map<std::string, Relu> kRelus = {{"exact", Relu::Exact}, {"abs", Relu::Abs}};

template <typename T>
bool take(const std::map<std::string, T>& names, const std::string& word, T& to) {
    const auto found = names.find(word);
    if (found == names.end()) return false;
    to = found->second;
    return true;
}

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
        if (s.paged && word.starts_with("page")) good = (s.page_size = number_of(word.substr(4))) > 0;
        else good = take(kTypes, word, s.dtype) || take(kLogitsForms, word, s.form) || take(kRelus, word, s.relu);
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
    if (!s.paged && s.queries > s.keys)
        throw Error(Errc::InvalidArgument, fmt::format("shape '{}': has more queries than keys, of which the first "
                                                       "query would see none; take as many keys",
                                                       line));
    return s;
}

Scores::Scores(Context& context, const Target& target, const MqaShape& shape, uint64_t seed)
    : context_(context), target_(target), shape_(shape), seed_(seed), codes_(random_codes(context)) {
    q_ = mirrored(target, DType::E4M3, shape.rows() * shape.heads, shape.dim);
    make_codes(q_, seed);
    w_ = mirrored(target, DType::F32, shape.rows(), shape.heads);
    std::ranges::copy(random_matrix(shape.rows(), shape.heads, seed + 1).bytes, w_.host.bytes.begin());
    upload(target, w_.host, w_.there);
    shape.paged ? make_pages() : make_rows();
    d_ = mirrored(target, shape.dtype, shape.rows(), shape.keys);
}

void Scores::make_codes(Mirrored& x, uint64_t seed) const {
    fill_codes(x.host.bytes.data(), static_cast<int64_t>(x.host.bytes.size()), codes_, seed);
    upload(target_, x.host, x.there);
}

void Scores::make_rows() {
    keys_ = mirrored(target_, DType::E4M3, shape_.keys, shape_.dim);
    make_codes(keys_, seed_ + 2);
    sfk_ = mirrored(target_, DType::F32, 1, shape_.keys);
    for (int64_t j = 0; j < shape_.keys; ++j) floats(sfk_)[j] = 0.01f + 0.001f * static_cast<float>(j % 7);
    starts_ = mirrored(target_, DType::I32, 1, shape_.queries);
    ends_ = mirrored(target_, DType::I32, 1, shape_.queries);
    for (int64_t i = 0; i < shape_.queries; ++i)
        integers(ends_)[i] = static_cast<int32_t>(shape_.keys - shape_.queries + 1 + i);
    for (Mirrored* x : {&sfk_, &starts_, &ends_}) upload(target_, x->host, x->there);
}

void Scores::make_pages() {
    const int64_t each = (shape_.keys + shape_.page_size - 1) / shape_.page_size, pages = each * shape_.requests;
    const int64_t codes = shape_.page_size * shape_.dim;
    std::mt19937_64 random(seed_);
    keys_ = mirrored(target_, DType::E4M3, pages, codes + shape_.page_size * kBytesOfScale);
    for (int64_t p = 0; p < pages; ++p) {
        uint8_t* page = keys_.host.bytes.data() + p * keys_.host.cols;
        fill_codes(page, codes, codes_, seed_ + static_cast<uint64_t>(p));
        for (int64_t s = 0; s < shape_.page_size; ++s) {
            const float scale = 0.01f + 0.001f * static_cast<float>((p + s) % 7);
            std::memcpy(page + codes + s * kBytesOfScale, &scale, sizeof scale);
        }
    }
    table_ = mirrored(target_, DType::I32, shape_.requests, each);
    std::iota(integers(table_), integers(table_) + pages, 0);
    std::shuffle(integers(table_), integers(table_) + pages, random);
    ends_ = mirrored(target_, DType::I32, shape_.requests, 1);
    for (int64_t b = 0; b < shape_.requests; ++b)
        integers(ends_)[b] = static_cast<int32_t>(
            shape_.keys - static_cast<int64_t>(random() % (static_cast<uint64_t>(shape_.keys) / 2 + 1)));
    for (Mirrored* x : {&keys_, &table_, &ends_}) upload(target_, x->host, x->there);
}

Scores::Row Scores::row(int64_t i) const {
    const auto* ends = reinterpret_cast<const int32_t*>(ends_.host.bytes.data());
    if (!shape_.paged) return {0, ends[i]};
    return {0, std::max<int64_t>(ends[i / shape_.queries] - (shape_.queries - 1 - i % shape_.queries), 0)};
}

/// Requests, or queries, from `first` on.
void Scores::call(const Matrix& d, bool on_host, int64_t first, int64_t count) {
    const auto part = [&](Mirrored& x, int64_t rows_each) {
        Matrix m = on_host ? x.host.view() : x.there;
        m.data = static_cast<uint8_t*>(m.data) + first * rows_each * m.row_stride * size_of(m.dtype);
        m.rows = count * rows_each;
        return m;
    };
    const auto whole = [&](Mirrored& x) { return on_host ? x.host.view() : x.there; };
    const auto numbers = [&](Mirrored& x) {
        Matrix m = whole(x);
        m.data = static_cast<uint8_t*>(m.data) + first * kBytesOfScale;
        m.cols = count;
        return m;
    };
    const MqaOptions options{.form = shape_.form, .relu = shape_.relu, .poll = target_.poll};
    const int64_t each = shape_.paged ? shape_.queries : 1;
    Matrix q = part(q_, each * shape_.heads);
    q.rows = shape_.heads;
    const ConstStack queries{q, count * each, shape_.heads * shape_.dim};
    if (shape_.paged)
        return paged_mqa_logits(context_,
                                {.q = queries,
                                 .cache = whole(keys_),
                                 .w = part(w_, each),
                                 .lengths = part(ends_, 1),
                                 .block_table = part(table_, 1),
                                 .schedule = {},
                                 .d = d},
                                options);
    mqa_logits(context_,
               {.q = queries,
                .k = whole(keys_),
                .sfk = whole(sfk_),
                .w = part(w_, each),
                .starts = numbers(starts_),
                .ends = numbers(ends_),
                .d = d},
               options);
}

double Scores::time(int repeats) {
    const int64_t count = shape_.paged ? shape_.requests : shape_.queries;
    return median_time(target_, repeats, [&] { call(d_.there, false, 0, count); });
}

const uint8_t* Scores::key(int64_t i, int64_t j, float& scale) const {
    const uint8_t* bytes = keys_.host.bytes.data();
    if (!shape_.paged) {
        std::memcpy(&scale, sfk_.host.bytes.data() + j * kBytesOfScale, sizeof scale);
        return bytes + j * shape_.dim;
    }
    const auto* table = reinterpret_cast<const int32_t*>(table_.host.bytes.data());
    const int64_t page = table[i / shape_.queries * table_.host.cols + j / shape_.page_size],
                  slot = j % shape_.page_size;
    bytes += page * keys_.host.cols;
    std::memcpy(&scale, bytes + shape_.page_size * shape_.dim + slot * kBytesOfScale, sizeof scale);
    return bytes + slot * shape_.dim;
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
        if (target_.gpu) call(by_cpu.view(), true, first, 1);
        for (int64_t t = 0; t < each; ++t) {
            const int64_t i = first * each + t;
            const auto [begin, end] = row(i);
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
                const uint8_t* codes = key(i, j, scale);
                const auto [logit, bound] =
                    truth_of(q_.host.bytes.data() + i * shape_.heads * shape_.dim, floats(w_) + i * shape_.heads, codes,
                             static_cast<double>(scale), shape_);
                result.add(found, logit, bound);
            }
        }
    }
    return result;
}

double Scores::operations() const {
    double pairs = 0;
    for (int64_t i = 0; i < shape_.rows(); ++i) pairs += static_cast<double>(row(i).end - row(i).begin);
    return pairs * 2 * static_cast<double>(shape_.heads * shape_.dim);
}

double Scores::bytes() const {
    double keys = static_cast<double>(shape_.keys), logits = 0;
    if (shape_.paged) {
        keys = 0;
        for (int64_t b = 0; b < shape_.requests; ++b)
            keys += static_cast<double>(row((b + 1) * shape_.queries - 1).end);
    }
    for (int64_t i = 0; i < shape_.rows(); ++i)
        logits += static_cast<double>(shape_.form == LogitsForm::Filled ? shape_.keys : row(i).end - row(i).begin);
    return static_cast<double>(q_.host.bytes.size() + w_.host.bytes.size()) +
           keys * static_cast<double>(shape_.dim + kBytesOfScale) + logits * static_cast<double>(size_of(shape_.dtype));
}

}  // namespace finegemm::cli
