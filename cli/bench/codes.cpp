// Random codes of e4m3, which operands are made of. Layer cli.
#include "cli/bench/codes.h"

#include <algorithm>
#include <cstring>

#include <finegemm/quantize.h>

#include "cli/random.h"

namespace finegemm::cli {

namespace {

constexpr int64_t kRows = 8191, kCols = 128;

}  // namespace

HostMatrix random_codes(Context& context) {
    HostMatrix values = random_matrix(kRows, kCols, 1), codes = make_matrix(DType::E4M3, kRows, kCols);
    HostMatrix scales = make_matrix(DType::F32, kRows, 1);
    quantize_rows(context, values.view(), codes.view(), scales.view());
    return codes;
}

void fill_codes(uint8_t* to, int64_t count, const HostMatrix& codes, uint64_t seed) {
    const auto period = static_cast<int64_t>(codes.bytes.size());
    int64_t at = static_cast<int64_t>(seed * 7919 % kRows) * kCols;
    for (int64_t done = 0; done < count; at = 0) {
        const int64_t part = std::min(count - done, period - at);
        std::memcpy(to + done, codes.bytes.data() + at, static_cast<size_t>(part));
        done += part;
    }
}

}  // namespace finegemm::cli
