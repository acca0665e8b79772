// Numbers as people write them. Layer cli.
#include "cli/text.h"

#include <array>
#include <charconv>

#include <fmt/format.h>

namespace finegemm::cli {

namespace {

/// Three digits are what a measurement is good for.
std::string three_digits(double x) { return fmt::format("{:.{}f}", x, x < 10 ? 2 : x < 100 ? 1 : 0); }

template <size_t N>
std::string scaled(double x, const std::array<const char*, N>& prefixes, std::string_view unit) {
    size_t i = 0;
    while (i + 1 < N && x >= 999.5) x /= 1000, ++i;
    return fmt::format("{} {}{}", three_digits(x), prefixes[i], unit);
}

}  // namespace

std::string time_text(double microseconds) { return scaled(microseconds, std::array{"u", "m", ""}, "s"); }

std::string bytes_text(int64_t bytes) {
    if (bytes < 1000) return fmt::format("{} bytes", bytes);
    return scaled(static_cast<double>(bytes) / 1000, std::array{"K", "M", "G", "T"}, "B");
}

std::string age_text(int64_t seconds) {
    if (seconds < 120) return fmt::format("{} s", seconds);
    if (seconds < 2 * 3600) return fmt::format("{} min", seconds / 60);
    if (seconds < 48 * 3600) return fmt::format("{} h", seconds / 3600);
    return fmt::format("{} days", seconds / 86400);
}

std::string rate_text(double per_us, std::string_view unit) {
    return scaled(per_us, std::array{"M", "G", "T", "P"}, unit);
}

int64_t number_of(std::string_view text) {
    int64_t number = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() && end == text.data() + text.size() && number >= 0 ? number : -1;
}

std::string fault_of_seed(const std::string& text) {
    if (number_of(text) >= 0) return {};
    return fmt::format("is {}, must be a whole number from 0 to {}", text, INT64_MAX);
}

}  // namespace finegemm::cli
