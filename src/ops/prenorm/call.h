// A call of the product before a norm as everything behind the public functions sees it. Layer engine.
#pragma once

#include <string>

#include <fmt/format.h>

#include <finegemm/prenorm.h>

namespace finegemm {

/// The options are borrowed.
struct PrenormCall {
    ConstMatrix a, b;
    Stack d;
    Matrix sqrsum;
    const PrenormOptions& options;

    int64_t rows() const { return a.rows; }
    int64_t cols() const { return b.rows; }
    int64_t k() const { return a.cols; }
    int64_t slices() const { return d.count; }
};

/// "prenorm_gemm 4096x24x7168 slices=16": M, N and K, and S where it is not 1.
inline std::string text_of(const PrenormCall& call) {
    return fmt::format("prenorm_gemm {}x{}x{}{}", call.rows(), call.cols(), call.k(),
                       call.slices() > 1 ? fmt::format(" slices={}", call.slices()) : "");
}

}  // namespace finegemm
