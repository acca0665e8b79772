// A call of the product before a norm as everything behind the public functions sees it. Layer engine.
#pragma once

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

}  // namespace finegemm
