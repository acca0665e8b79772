// The validation mode's look at scales. Layer backend.
#include "backend/check_scales.h"

#include <cmath>

#include <fmt/format.h>

#include <finegemm/error.h>

namespace finegemm {

void check_scales_host(std::string_view name, const float* data, int64_t rows, int64_t cols, int64_t row_stride,
                       int64_t col_stride) {
    check_scale_rows(fmt::format("{}[", name), data, 0, rows, cols, row_stride, col_stride);
}

void check_scale_rows(std::string_view prefix, const float* data, int64_t begin, int64_t end, int64_t cols,
                      int64_t row_stride, int64_t col_stride, int64_t first_col) {
    for (int64_t r = begin; r < end; ++r)
        for (int64_t c = first_col; c < cols; ++c) {
            const float scale = data[r * row_stride + c * col_stride];
            if (std::isfinite(scale) && scale >= 0) continue;
            throw Error(Errc::InvalidArgument,
                        fmt::format("{}{}, {}] is {}: scales are finite and not negative; look at what computed it "
                                    "(quantize_rows and quantize_blocks never make such a scale)",
                                    prefix, r, c, scale));
        }
}

}  // namespace finegemm
