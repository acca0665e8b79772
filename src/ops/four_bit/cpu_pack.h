// Packing weights of 4 bits, and the FP8 that they are. Layer engine. Arguments have been checked.
#pragma once

#include "ops/four_bit/call.h"

namespace finegemm {

/// Bytes of a matrix [rows, cols].
int64_t packed_bytes(FourBitFormat format, int64_t rows, int64_t cols);
void pack_weights(const FourBitSource& source, uint8_t* packed);
/// Some rows of a matrix, with the scales that they have.
void unpack_rows(const FourBitWeights& weights, int64_t group, RowRange rows, const Matrix& q, const Matrix& scales);

}  // namespace finegemm
