// Numbers as people write them. Layer cli.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace finegemm::cli {

/// "12.3 us", "4.56 ms", "7.89 s"
std::string time_text(double microseconds);
/// "512 bytes", "12.3 KB", "268 MB"
std::string bytes_text(int64_t bytes);
/// "12 s", "3 min", "5 h", "2 days"
std::string age_text(int64_t seconds);
/// `per_us` operations in a microsecond: "123 GFLOP/s", "1.23 PFLOP/s"
std::string rate_text(double per_us, std::string_view unit);

/// A decimal number that is all of `text` and not negative; -1 for anything else.
int64_t number_of(std::string_view text);

/// What is wrong with a number for --seed; empty when nothing is. CLI11 by itself would take -1 for 2^64 - 1.
std::string fault_of_seed(const std::string& text);

}  // namespace finegemm::cli
