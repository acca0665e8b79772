// The product before a norm on one device. Layer cli.
#include "cli/bench/prenorm.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>

#include <fmt/format.h>

#include <finegemm/error.h>

#include "cli/random.h"
#include "cli/text.h"
#include "ops/prenorm/checks.h"
#include "workbench/prenorm_bound.h"

namespace finegemm::cli {

namespace {

constexpr const char* kName = "prenorm_gemm ";
constexpr const char* kSlices = "slices=";

template <typename T>
T element(const HostMatrix& x, int64_t index) {
    T value;
    std::memcpy(&value, x.bytes.data() + index * static_cast<int64_t>(sizeof value), sizeof value);
    return value;
}

}  // namespace

bool is_prenorm(const std::string& line) { return line.starts_with(kName); }

PrenormShape parse_prenorm(const std::string& line) {
    std::istringstream words(line);
    std::string name, size, rest;
    words >> name >> size;
    const std::vector<int64_t> extents = extents_of(size, 3);
    bool good = is_prenorm(line) && !extents.empty();
    PrenormShape shape;
    if (good && words >> rest) {
        shape.slices = rest.starts_with(kSlices) ? number_of(rest.substr(std::strlen(kSlices))) : 0;
        good = shape.slices >= 1 && !(words >> rest);
    }
    if (!good)
        throw Error(Errc::InvalidArgument,
                    fmt::format("shape '{}': must be like '{}4096x24x7168 {}16': M, N and K; then the slices that are "
                                "added up, where there are several",
                                line, kName, kSlices));
    shape.m = extents[0], shape.n = extents[1], shape.k = extents[2];
    try {
        check_prenorm(shape);
    } catch (const Error& e) {  // whose a and b are no options
        throw Error(e.code(), fmt::format("shape '{}': {}", line, e.what()));
    }
    return shape;
}

Prenorm::Prenorm(Context& context, const Target& target, const PrenormShape& shape, uint64_t seed)
    : context_(context), target_(target), shape_(shape) {
    a_ = mirrored(target, DType::BF16, shape.m, shape.k);
    fill(a_.host, random_bf16(seed), 0);
    b_ = mirrored(target, DType::F32, shape.n, shape.k);
    fill(b_.host, random_matrix(1, kRandomPeriod, seed + 1), 0);
    for (Mirrored* x : {&a_, &b_}) upload(target, x->host, x->there);
    d_ = mirrored(target, DType::F32, shape.slices * shape.m, shape.n);
    sqrsum_ = mirrored(target, DType::F32, shape.slices, shape.m);
}

double Prenorm::time(int repeats) {
    Matrix slice = d_.there;
    slice.rows = shape_.m;
    const PrenormArgs args{
        .a = a_.there, .b = b_.there, .d = {slice, shape_.slices, shape_.m * shape_.n}, .sqrsum = sqrsum_.there};
    return median_time(target_, repeats, [&] { prenorm_gemm(context_, args, {.poll = target_.poll}); });
}

Trial::Check Prenorm::check() {
    constexpr double kProducts = 2e7;  // about a second
    const auto [m, n, k, slices, num_sms] = shape_;
    download(target_, d_.host, d_.there);
    download(target_, sqrsum_.host, sqrsum_.there);
    Check result{.rows = std::clamp<int64_t>(static_cast<int64_t>(kProducts / static_cast<double>(n * k)), 1,
                                             std::min<int64_t>(m, 64))};
    for (int64_t i = 0; i < result.rows; ++i) {
        const int64_t row = result.rows == 1 ? m / 2 : i * (m - 1) / (result.rows - 1);
        for (int64_t col = 0; col <= n; ++col) {  // the last one is that of squares
            double exact = 0, absolute = 0, found = 0;
            for (int64_t at = 0; at < k; ++at) {
                const double x = float_of_bf16(element<uint16_t>(a_.host, row * k + at));
                const double y = col < n ? tf32_of_float(element<float>(b_.host, col * k + at)) : x;
                exact += x * y, absolute += std::abs(x * y);
            }
            for (int64_t s = 0; s < slices; ++s)
                found += static_cast<double>(col < n ? element<float>(d_.host, (s * m + row) * n + col)
                                                     : element<float>(sqrsum_.host, s * m + row));
            result.add(found, exact, col < n ? prenorm_bound(absolute, k) : prenorm_squares_bound(exact, k));
        }
    }
    return result;
}

double Prenorm::operations() const { return 2.0 * static_cast<double>(shape_.m * shape_.k * (shape_.n + 1)); }

double Prenorm::bytes() const {
    double bytes = 0;
    for (const Mirrored* x : {&a_, &b_, &d_, &sqrsum_}) bytes += static_cast<double>(x->host.bytes.size());
    return bytes;
}

}  // namespace finegemm::cli
