// Packing weights of 4 bits, and the FP8 that they are. Layer engine. Arguments have been checked.
#pragma once

#include "ops/four_bit/call.h"

namespace finegemm {

/// Bytes of a matrix [rows, cols].
int64_t packed_bytes(FourBitFormat format, int64_t rows, int64_t cols);
void pack_blocks(const FourBitSource& source, uint8_t* packed);
/// 128 rows of a matrix, or as many as there are.
void unpack_rows(const FourBitWeights& weights, int64_t group, int64_t n_block, const Matrix& q, const Matrix& scales);

}  // namespace finegemm
