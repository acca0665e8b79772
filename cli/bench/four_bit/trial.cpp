// A product with weights of 4 bits on one device. Layer cli.
#include "cli/bench/four_bit/trial.h"

#include <algorithm>
#include <random>
#include <sstream>

#include <fmt/format.h>

#include <finegemm/error.h>

#include "cli/bench/codes.h"
#include "cli/random.h"
#include "cli/text.h"
#include "ops/four_bit/checks.h"
#include "workbench/accuracy.h"

namespace finegemm::cli {

namespace {

constexpr const char* kFourBitGemm = "four_bit_gemm ";

/// So many rows from a row on.
Matrix rows_from(Matrix m, int64_t first, int64_t count) {
    m.data = static_cast<uint8_t*>(m.data) + first * m.row_stride * size_of(m.dtype);
    m.rows = count;
    return m;
}

/// "groups=8" and the like. Is it such a word?
bool take_field(const std::string& word, FourBitShape& s) {
    if (word == "fp8") return s.fp8 = true;
    const size_t equals = std::min(word.find('='), word.size());
    const std::string name = word.substr(0, equals);
    const int64_t value = number_of(word.substr(std::min(equals + 1, word.size())));
    if (value < 1 || value > INT32_MAX) return false;
    if (name == "groups") return s.groups = value, true;
    if (name == "expected_m") return s.expected_m = value, true;
    if (name == "alignment") return s.alignment = value, true;
    if (name == "num_sms") return s.num_sms = static_cast<int32_t>(value), true;
    return false;
}

}  // namespace

bool is_four_bit(const std::string& line) { return line.starts_with(kFourBitGemm); }

FourBitShape parse_four_bit(const std::string& line) {
    std::istringstream words(line);
    std::string name, size, format;
    words >> name >> size >> format;
    const std::vector<int64_t> extents = extents_of(size, 3);
    FourBitShape shape;
    bool good = is_four_bit(line) && !extents.empty() && format_of(format);
    for (std::string word; good && words >> word;) good = take_field(word, shape);
    if (!good)
        throw Error(Errc::InvalidArgument,
                    fmt::format("shape '{}': must be like '{}128x4096x7168 mxfp4 groups=8 expected_m=16 fp8': M of all "
                                "groups, N and K; mxfp4 or int4; then what is not left out",
                                line, kFourBitGemm));
    shape.format = *format_of(format);
    shape.m = extents[0], shape.n = extents[1], shape.k = extents[2];
    try {
        check_four_bit(shape);
    } catch (const Error& e) {
        throw Error(e.code(), fmt::format("shape '{}': {}", line, e.what()));
    }
    return shape;
}

FourBit::FourBit(Context& context, const Target& target, const FourBitShape& shape, uint64_t seed)
    : context_(context), target_(target), shape_(shape) {
    make_rows(seed);
    make_weights(seed);
    d_ = mirrored(target, DType::BF16, rows_, shape.n);
}

void FourBit::make_rows(uint64_t seed) {
    sizes_ = shape_.groups ? ragged_sizes(shape_.m, *shape_.groups, seed) : std::vector<int64_t>{shape_.m};
    rows_ = shape_.m;
    if (shape_.groups) {
        const bool aligned = shape_.alignment > 0;
        const RaggedRows ragged = rows_in_form(aligned ? "prefix-sums" : "offsets", sizes_, shape_.alignment);
        rows_ = ragged.rows;
        numbers_ = mirrored(target_, ragged.numbers);
        groups_ = {.form = ragged.form,
                   .data = static_cast<const int32_t*>(numbers_.there.data),
                   .size = static_cast<int64_t>(ragged.numbers.size()),
                   .expected_m = shape_.expected_m,
                   .device = numbers_.there.device};
        if (aligned) groups_.alignment = shape_.alignment;
    }
    const int64_t alignment = std::max<int64_t>(shape_.alignment, 1);
    for (int64_t begin = 0; const int64_t size : sizes_) {
        begins_.push_back(begin);
        begin = (begin + size + alignment - 1) / alignment * alignment;
    }
    a_ = mirrored(target_, DType::E4M3, rows_, shape_.k);
    fill_codes(a_.host.bytes.data(), static_cast<int64_t>(a_.host.bytes.size()), random_codes(context_), seed);
    sfa_ = mirrored(target_, DType::F32, rows_, blocks_of(shape_.k));
    for (size_t i = 0; i < sfa_.host.bytes.size() / sizeof(float); ++i)
        floats(sfa_)[i] = 0.001f * (1 + 0.1f * static_cast<float>(i % 7));
    for (Mirrored* x : {&a_, &sfa_}) upload(target_, x->host, x->there);
}

std::optional<FourBitFormat> format_of(const std::string& word) {
    if (word == "mxfp4") return FourBitFormat::Mxfp4;
    if (word == "int4") return FourBitFormat::Int4;
    return {};
}

RandomFourBit random_four_bit(FourBitFormat format, int64_t n, int64_t k, uint64_t seed) {
    const bool mxfp4 = format == FourBitFormat::Mxfp4;
    HostMatrix codes = make_matrix(DType::E4M3, n, k / 2);
    HostMatrix given = mxfp4 ? make_matrix(DType::E4M3, n, k / 32) : make_matrix(DType::BF16, n, k / kScaleBlock);
    std::mt19937_64 random(seed);
    for (uint8_t& code : codes.bytes) code = static_cast<uint8_t>(random());
    for (size_t at = 0; at < given.bytes.size(); ++at) {
        const auto noise = static_cast<uint8_t>(random());
        // Exponents from -11 to 0, or scales from 2^-7 to 2^-6.
        given.bytes[at] = static_cast<uint8_t>(mxfp4 ? 116 + noise % 12 : at % 2 == 0 ? noise & 0x7f : 0x3c);
    }
    RandomFourBit made{.packed = std::vector<uint8_t>(static_cast<size_t>(four_bit_bytes(format, n, k))),
                       .codes = make_matrix(DType::E4M3, n, k),
                       .scales = make_matrix(DType::F32, mxfp4 ? blocks_of(n) : n, blocks_of(k))};
    pack_four_bit({.format = format, .codes = codes.view(), .scales = given.view()}, made.packed.data());
    unpack_four_bit({made.packed.data(), format, 1, n, k}, 0, made.codes.view(), made.scales.view());
    return made;
}

void FourBit::make_weights(uint64_t seed) {
    constexpr int64_t kBytes = int64_t{1} << 25;  // of weights that are not alike: about a second
    const int64_t groups = shape_.groups.value_or(1), n = shape_.n, k = shape_.k;
    const int64_t bytes = four_bit_bytes(shape_.format, n, k);
    distinct_ = std::clamp<int64_t>(kBytes / bytes, 1, groups);
    for (int64_t i = 0; i < distinct_; ++i)
        weights_.push_back(random_four_bit(shape_.format, n, k, seed + 1 + static_cast<uint64_t>(i)));
    const int64_t scale_rows = weights_[0].scales.rows;
    const auto repeat = [&](Mirrored& x, const auto& bytes_of) {
        uint8_t* to = x.host.bytes.data();
        for (int64_t g = 0; g < groups; ++g) to = std::ranges::copy(bytes_of(weights_[g % distinct_]), to).out;
        upload(target_, x.host, x.there);
    };
    packed_ = mirrored(target_, DType::E4M3, groups, bytes);
    repeat(packed_, [](const RandomFourBit& w) -> const auto& { return w.packed; });
    if (!shape_.fp8) return;
    fp8_ = mirrored(target_, DType::E4M3, groups * n, k);
    fp8_scales_ = mirrored(target_, DType::F32, groups * scale_rows, blocks_of(k));
    repeat(fp8_, [](const RandomFourBit& w) -> const auto& { return w.codes.bytes; });
    repeat(fp8_scales_, [](const RandomFourBit& w) -> const auto& { return w.scales.bytes; });
}

FourBitArgs FourBit::args() {
    const int64_t groups = shape_.groups.value_or(1);
    FourBitArgs args{.a = {a_.there},
                     .sfa = {sfa_.there},
                     .b = {packed_.there.data, shape_.format, groups, shape_.n, shape_.k, packed_.there.device},
                     .d = {d_.there},
                     .groups = groups_};
    const auto stack = [&](const Mirrored& x) -> ConstStack {
        const int64_t rows = x.there.rows / groups;
        return {rows_from(x.there, 0, rows), groups, rows * x.there.cols};
    };
    if (shape_.fp8) args.fp8 = stack(fp8_), args.fp8_scales = stack(fp8_scales_);
    return args;
}

FourBitArgs FourBit::args_of_row(int64_t row, int64_t group, const Matrix& d) {
    const uint8_t* const packed = packed_.host.bytes.data() + group * packed_.host.cols;
    return {.a = {rows_from(a_.host.view(), row, 1)},
            .sfa = {rows_from(sfa_.host.view(), row, 1)},
            .b = {packed, shape_.format, 1, shape_.n, shape_.k},
            .d = {d}};
}

void FourBit::call(const FourBitArgs& args, Numerics numerics) {
    four_bit_gemm(context_, args, {.numerics = numerics, .num_sms = shape_.num_sms, .poll = target_.poll});
}

double FourBit::time(int repeats) {
    return median_time(target_, repeats, [&] { call(args(), Numerics::Fast); });
}

Trial::Check FourBit::check() {
    constexpr int64_t kMostRows = 16;
    download(target_, d_.host, d_.there);
    Check result{.by_bits = target_.gpu != nullptr};
    const auto busy = std::max<int64_t>(busy_groups(sizes_), 1), step = (busy + kMostRows - 1) / kMostRows;
    const GemmOptions options{.batch_invariant = true};
    int64_t nth = 0;  // of groups that have rows
    for (int64_t g = 0; g < static_cast<int64_t>(sizes_.size()); ++g) {
        const auto at = static_cast<size_t>(g);
        if (sizes_[at] == 0 || nth++ % step != 0) continue;
        const int64_t row = begins_[at] + static_cast<int64_t>(nth * 7919 % sizes_[at]);
        const Matrix found = rows_from(d_.host.view(), row, 1);
        const RandomFourBit& w = weights_[static_cast<size_t>(g % distinct_)];
        const GemmArgs exact{.a = rows_from(a_.host.view(), row, 1),
                             .sfa = rows_from(sfa_.host.view(), row, 1),
                             .b = w.codes.view(),
                             .sfb = w.scales.view(),
                             .d = found};
        result.of_bound = std::max(result.of_bound, accuracy_of(Call(exact, options), 1).of_bound);
        ++result.rows;
        if (!target_.gpu) continue;
        HostMatrix by_cpu = make_matrix(DType::BF16, 1, shape_.n);
        call(args_of_row(row, g, by_cpu.view()), Numerics::Hopper);
        result.wrong_bits += differing_elements(found, by_cpu.view());
    }
    return result;
}

double FourBit::operations() const {
    return 2.0 * static_cast<double>(shape_.m) * static_cast<double>(shape_.n) * static_cast<double>(shape_.k);
}

double FourBit::bytes() const {
    const double m = static_cast<double>(shape_.m);
    return static_cast<double>(busy_groups(sizes_) * packed_.host.cols) +
           m * (static_cast<double>(shape_.k + 4 * blocks_of(shape_.k)) + 2 * static_cast<double>(shape_.n));
}

}  // namespace finegemm::cli
