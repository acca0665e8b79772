// Random operands of an indexer on one device. Layer cli.
#include "cli/bench/indexer/operands.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include <fmt/format.h>

#include <finegemm/error.h>

#include "cli/bench/codes.h"
#include "cli/random.h"
#include "cli/text.h"
#include "plan/elements.h"

namespace finegemm::cli {

namespace {

constexpr int64_t kBytesOfNumber = sizeof(float);  // and of a scale

/// `count` rows of it from `first` on.
Matrix some_rows(Matrix x, int64_t first, int64_t count) {
    x.data = static_cast<uint8_t*>(x.data) + first * x.row_stride * size_of(x.dtype);
    x.rows = count;
    return x;
}
/// One of a row of numbers.
Matrix one_number(Matrix x, int64_t at) {
    x.data = static_cast<uint8_t*>(x.data) + at * kBytesOfNumber;
    x.cols = 1;
    return x;
}

}  // namespace

bool take_page(const std::string& word, bool paged, int64_t& page_size, bool& good) {
    if (!paged || !word.starts_with("page")) return false;
    good = (page_size = number_of(std::string_view(word).substr(4))) > 0;
    return true;
}

void check_queries_see(const std::string& line, bool paged, int64_t queries, int64_t keys) {
    if (!paged && queries > keys)
        throw Error(Errc::InvalidArgument, fmt::format("shape '{}': has more queries than keys, of which the first "
                                                       "query would see none; take as many keys",
                                                       line));
}

IndexerOperands::IndexerOperands(Context& context, const Target& target, const MqaShape& shape, uint64_t seed)
    : context_(context), target_(target), shape_(shape), seed_(seed), codes_(random_codes(context)) {
    q_ = mirrored(target, DType::E4M3, shape.rows() * shape.heads, shape.dim);
    make_codes(q_, seed);
    w_ = mirrored(target, DType::F32, shape.rows(), shape.heads);
    std::ranges::copy(random_matrix(shape.rows(), shape.heads, seed + 1).bytes, w_.host.bytes.begin());
    upload(target, w_.host, w_.there);
    shape.paged ? make_pages() : make_rows();
}

void IndexerOperands::make_codes(Mirrored& x, uint64_t seed) const {
    fill_codes(x.host.bytes.data(), static_cast<int64_t>(x.host.bytes.size()), codes_, seed);
    upload(target_, x.host, x.there);
}

void IndexerOperands::make_rows() {
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

void IndexerOperands::make_pages() {
    const int64_t each = (shape_.keys + shape_.page_size - 1) / shape_.page_size, pages = each * shape_.requests;
    const int64_t codes = shape_.page_size * shape_.dim;
    std::mt19937_64 random(seed_);
    keys_ = mirrored(target_, DType::E4M3, pages, codes + shape_.page_size * kBytesOfNumber);
    for (int64_t p = 0; p < pages; ++p) {
        uint8_t* page = keys_.host.bytes.data() + p * keys_.host.cols;
        fill_codes(page, codes, codes_, seed_ + static_cast<uint64_t>(p));
        for (int64_t s = 0; s < shape_.page_size; ++s) {
            const float scale = 0.01f + 0.001f * static_cast<float>((p + s) % 7);
            std::memcpy(page + codes + s * kBytesOfNumber, &scale, sizeof scale);
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

IndexerOperands::Row IndexerOperands::row(int64_t i) const {
    const auto* ends = reinterpret_cast<const int32_t*>(ends_.host.bytes.data());
    if (!shape_.paged) return {0, ends[i]};
    return {0, std::max<int64_t>(ends[i / shape_.queries] - (shape_.queries - 1 - i % shape_.queries), 0)};
}

const uint8_t* IndexerOperands::key(int64_t i, int64_t j, float& scale) const {
    const uint8_t* bytes = keys_.host.bytes.data();
    if (!shape_.paged) {
        std::memcpy(&scale, sfk_.host.bytes.data() + j * kBytesOfNumber, sizeof scale);
        return bytes + j * shape_.dim;
    }
    const auto* table = reinterpret_cast<const int32_t*>(table_.host.bytes.data());
    const int64_t page = table[i / shape_.queries * table_.host.cols + j / shape_.page_size],
                  slot = j % shape_.page_size;
    bytes += page * keys_.host.cols;
    std::memcpy(&scale, bytes + shape_.page_size * shape_.dim + slot * kBytesOfNumber, sizeof scale);
    return bytes + slot * shape_.dim;
}

MqaLogitsArgs IndexerOperands::in_rows() {
    Matrix q = q_.there;
    q.rows = shape_.heads;
    return {.q = {q, shape_.queries, shape_.heads * shape_.dim},
            .k = keys_.there,
            .sfk = sfk_.there,
            .w = w_.there,
            .starts = starts_.there,
            .ends = ends_.there,
            .d = {}};
}

PagedMqaLogitsArgs IndexerOperands::in_pages() {
    Matrix q = q_.there;
    q.rows = shape_.heads;
    return {.q = {q, shape_.rows(), shape_.heads * shape_.dim},
            .cache = keys_.there,
            .w = w_.there,
            .lengths = ends_.there,
            .block_table = table_.there,
            .schedule = {},
            .d = {}};
}

void IndexerOperands::score(const Matrix& d, const MqaOptions& options) {
    if (shape_.paged) {
        PagedMqaLogitsArgs args = in_pages();
        args.d = d;
        return paged_mqa_logits(context_, args, options);
    }
    MqaLogitsArgs args = in_rows();
    args.d = d;
    mqa_logits(context_, args, options);
}

void IndexerOperands::score_on_host(const Matrix& d, const MqaOptions& options, int64_t item) {
    const int64_t each = shape_.paged ? shape_.queries : 1;
    const ConstStack q{some_rows(q_.host.view(), item * each * shape_.heads, shape_.heads), each,
                       shape_.heads * shape_.dim};
    const ConstMatrix w = some_rows(w_.host.view(), item * each, each);
    if (shape_.paged)
        return paged_mqa_logits(context_,
                                {.q = q,
                                 .cache = keys_.host.view(),
                                 .w = w,
                                 .lengths = some_rows(ends_.host.view(), item, 1),
                                 .block_table = some_rows(table_.host.view(), item, 1),
                                 .schedule = {},
                                 .d = d},
                                options);
    mqa_logits(context_,
               {.q = q,
                .k = keys_.host.view(),
                .sfk = sfk_.host.view(),
                .w = w,
                .starts = one_number(starts_.host.view(), item),
                .ends = one_number(ends_.host.view(), item),
                .d = d},
               options);
}

double IndexerOperands::operations() const {
    double pairs = 0;
    for (int64_t i = 0; i < shape_.rows(); ++i) pairs += static_cast<double>(row(i).end - row(i).begin);
    return pairs * 2 * static_cast<double>(shape_.heads * shape_.dim);
}

double IndexerOperands::bytes() const {
    double keys = static_cast<double>(shape_.paged ? 0 : shape_.keys);
    for (int64_t b = 0; shape_.paged && b < shape_.requests; ++b)
        keys += static_cast<double>(row((b + 1) * shape_.queries - 1).end);
    return static_cast<double>(q_.host.bytes.size() + w_.host.bytes.size()) +
           keys * static_cast<double>(shape_.dim + kBytesOfNumber);
}

}  // namespace finegemm::cli
