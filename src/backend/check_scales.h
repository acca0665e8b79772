// The validation mode's look at scales. Layer backend.
#pragma once

#include <cstdint>
#include <string_view>

namespace finegemm {

/// Throws Error(InvalidArgument) that names the first scale, row by row, that is NaN, infinite or negative, and its
/// place. `name`: of the argument, for the message. Strides count elements.
void check_scales_host(std::string_view name, const float* data, int64_t rows, int64_t cols, int64_t row_stride,
                       int64_t col_stride);

/// Checks the scales of rows `begin` to `end` and columns `first_col` to `cols`. `prefix`: what the message has before
/// the row: "sfa[", or "sfb[3, ".
void check_scale_rows(std::string_view prefix, const float* data, int64_t begin, int64_t end, int64_t cols,
                      int64_t row_stride, int64_t col_stride, int64_t first_col = 0);

}  // namespace finegemm
