// Accuracy of a result: against double accumulation, and against the derived bound. Layer api.
#pragma once

#include "ops/gemm/call.h"

namespace finegemm {

/// Values that are not finite, in D or exactly, have no error: they are counted, and right or wrong.
struct Accuracy {
    double relative_rms = 0;   // root mean square of the errors over that of the exact values
    double worst = 0;          // largest error, over the largest exact magnitude
    double of_bound = 0;       // largest error over its bound (docs/numerics.md); above 1 the result is wrong
    int64_t rows = 0;          // of D that were looked at
    int64_t nan = 0, inf = 0;  // values of D there
    // Values there that are NaN or not, infinite or not, and should not be so; with any, of_bound is infinite.
    int64_t nan_wrong = 0, inf_wrong = 0;
};

/// An element, of any dtype, of a matrix on the CPU.
float element_of(const ConstMatrix& x, int64_t row, int64_t col);
/// Rounds x, of any type, to that of `to`.
void round_to(const Matrix& to, const ConstMatrix& x);

/// All matrices and numbers on the CPU; a result that was not added to anything. Looks at no more than `max_rows` rows,
/// at least one, spread over D and its groups; if there are more groups than that, at some of them. Without any row, no
/// error.
Accuracy accuracy_of(const Call& call, int64_t max_rows);

/// Elements of two matrices of one dtype and shape on the CPU that have other bits.
int64_t differing_elements(const ConstMatrix& x, const ConstMatrix& y);

/// A matrix on the CPU, with scales of 1x128 or 128x128 blocks, or without any: then they have no data.
struct Values {
    ConstMatrix x, scales;
};
/// The root mean square of D - a * b^T, summed in double, over that of a * b^T: what quantisation costs where D comes
/// from codes of these values. Looks at no more than `max_rows` rows; values that are not finite do not count.
/// `columns`: of the product in D.
double error_of_values(const ConstMatrix& d, const DColumns& columns, const Values& a, const Values& b,
                       int64_t max_rows);

/// The root mean square of x - y over that of y. Two matrices of one shape on the CPU. Equal infinities
/// have no difference; NaN where one of them has a NaN, or y nothing but zeros.
double relative_difference(const ConstMatrix& x, const ConstMatrix& y);

}  // namespace finegemm
