// Random matrices and ragged groups, the same on every machine for the same seed. Layer cli.
#include "cli/random.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <numeric>
#include <random>

#include <finegemm/error.h>
#include <fmt/format.h>

#include "workbench/accuracy.h"

namespace finegemm::cli {

namespace {

int64_t rounded_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

/// Uniform in (0, 1], by the counter alone. (Weyl steps through the finaliser of MurmurHash3.)
double uniform(uint64_t seed, uint64_t counter) {
    uint64_t x = (seed << 32 ^ counter) * 0x9e3779b97f4a7c15;
    x = (x ^ x >> 33) * 0xff51afd7ed558ccd;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53;
    return (static_cast<double>((x ^ x >> 33) >> 11) + 1) * 0x1p-53;
}

/// Box and Muller's way to two normal numbers.
std::vector<float> normal_numbers(size_t count, uint64_t seed) {
    std::vector<float> numbers(count + 1);
    for (size_t i = 0; i < count; i += 2) {
        const double radius = std::sqrt(-2 * std::log(uniform(seed, i))),
                     angle = 2 * std::numbers::pi * uniform(seed, i + 1);
        numbers[i] = static_cast<float>(radius * std::cos(angle));
        numbers[i + 1] = static_cast<float>(radius * std::sin(angle));
    }
    numbers.resize(count);
    return numbers;
}

}  // namespace

HostMatrix random_matrix(int64_t rows, int64_t cols, uint64_t seed) {
    HostMatrix matrix = make_matrix(DType::F32, rows, cols);
    const size_t bytes = matrix.bytes.size();
    const auto numbers = normal_numbers(std::min(static_cast<size_t>(kRandomPeriod), bytes / sizeof(float)), seed);
    const size_t period = numbers.size() * sizeof(float);
    for (size_t at = 0; at < bytes; at += period)
        std::memcpy(&matrix.bytes[at], numbers.data(), std::min(period, bytes - at));
    return matrix;
}

HostMatrix random_bf16(uint64_t seed) {
    HostMatrix values = random_matrix(1, kRandomPeriod, seed), rounded = make_matrix(DType::BF16, 1, kRandomPeriod);
    round_to(rounded.view(), values.view());
    return rounded;
}

void fill(HostMatrix& to, const HostMatrix& random, int64_t first) {
    const size_t period = random.bytes.size();
    size_t from = static_cast<size_t>(first * size_of(random.dtype)) % period;
    for (size_t at = 0; at < to.bytes.size();) {
        const size_t part = std::min(to.bytes.size() - at, period - from);
        std::memcpy(&to.bytes[at], &random.bytes[from], part);
        at += part;
        from = 0;
    }
}

std::vector<int64_t> ragged_sizes(int64_t m, int64_t groups, uint64_t seed) {
    // The standard says what the engine gives, but not what its distributions make of it.
    std::mt19937_64 engine(seed);
    constexpr uint64_t kLargest = 1 << 20, kOneInEmpty = 8;
    std::vector<uint64_t> ends;  // of shares that are not rounded to rows yet
    for (int64_t g = 0; g < groups; ++g) {
        const bool empty = engine() % kOneInEmpty == 0;
        const uint64_t share = 1 + engine() % kLargest;
        ends.push_back((ends.empty() ? 0 : ends.back()) + (empty ? 0 : share));
    }
    std::vector<int64_t> sizes;
    int64_t before = 0;
    for (const uint64_t end : ends) {
        const double part = ends.back() > 0 ? static_cast<double>(end) / static_cast<double>(ends.back()) : 1;
        const auto row = static_cast<int64_t>(part * static_cast<double>(m));
        sizes.push_back(row - before);
        before = row;
    }
    if (groups > 1 && std::ranges::min(sizes) > 0) {
        const auto i = static_cast<size_t>(engine() % static_cast<uint64_t>(groups));
        sizes[(i + 1) % sizes.size()] += sizes[i];
        sizes[i] = 0;
    }
    return sizes;
}

std::vector<int32_t> any_numbers(int64_t count, int64_t all, uint64_t seed) {
    std::mt19937_64 engine(seed);
    constexpr uint64_t kOneInNone = 16;
    std::vector<int32_t> numbers(static_cast<size_t>(count));
    for (int32_t& x : numbers)
        x = engine() % kOneInNone == 0 ? -1 : static_cast<int32_t>(engine() % static_cast<uint64_t>(all));
    return numbers;
}

std::vector<int32_t> different_numbers(int64_t count, int64_t all, uint64_t seed) {
    std::mt19937_64 engine(seed);
    std::vector<int32_t> numbers(static_cast<size_t>(all));
    std::iota(numbers.begin(), numbers.end(), 0);
    for (size_t i = 0; i < static_cast<size_t>(count); ++i)
        std::swap(numbers[i], numbers[i + engine() % (numbers.size() - i)]);
    numbers.resize(static_cast<size_t>(count));
    return numbers;
}

int64_t busy_groups(const std::vector<int64_t>& sizes) {
    return std::ranges::count_if(sizes, [](int64_t size) { return size > 0; });
}

std::vector<int64_t> equal_sizes(int64_t m, int64_t groups) {
    if (m % groups != 0)
        throw Error(Errc::InvalidArgument, fmt::format("M is {}, must be a multiple of {} groups that are whole; round "
                                                       "it up",
                                                       m, groups));
    return std::vector<int64_t>(static_cast<size_t>(groups), m / groups);
}

RaggedRows rows_in_form(const std::string& form, const std::vector<int64_t>& sizes, int64_t alignment) {
    RaggedRows r{.form = kForms.at(form)};
    if (r.form == GroupForm::Masked || r.form == GroupForm::Whole) {
        r.stacks = static_cast<int64_t>(sizes.size());
        r.rows = std::ranges::max(sizes);
        if (r.form == GroupForm::Masked) r.numbers.assign(sizes.begin(), sizes.end());
        return r;
    }
    if (r.form == GroupForm::Offsets) r.numbers.push_back(0);
    for (size_t g = 0; g < sizes.size(); ++g) {
        const int64_t begin = r.form == GroupForm::Offsets ? r.rows : rounded_up(r.rows, alignment);
        r.rows = begin + sizes[g];
        if (r.form == GroupForm::Indices) {
            r.numbers.resize(static_cast<size_t>(begin), -1);
            r.numbers.resize(static_cast<size_t>(r.rows), static_cast<int32_t>(g));
        } else {
            r.numbers.push_back(static_cast<int32_t>(r.rows));
        }
    }
    return r;
}

std::vector<int64_t> ragged_k(int64_t k, int64_t groups, uint64_t seed) {
    if (k % kScaleBlock != 0)
        throw Error(Errc::InvalidArgument,
                    fmt::format("K is {}, must be a multiple of {} with k_groups; round it up", k, kScaleBlock));
    std::vector<int64_t> sizes = ragged_sizes(k / kScaleBlock, groups, seed);
    for (int64_t& size : sizes) size *= kScaleBlock;
    return sizes;
}

}  // namespace finegemm::cli
