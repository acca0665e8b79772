// Tensor maps. Layer cuda.
#include "cuda/tensor_map.h"

#include <fmt/format.h>

namespace finegemm::cuda {

namespace {

// Enumerators of cuda.h.
constexpr int kUint8 = 0, kFloat32 = 7, kBf16 = 9;
constexpr int kPromote128 = 2, kPromote256 = 3;

int swizzle_code(Swizzle swizzle) {
    switch (swizzle) {
        case Swizzle::B32: return 1;
        case Swizzle::B64: return 2;
        case Swizzle::B128: return 3;
        default: return 0;
    }
}

}  // namespace

TensorMap encode(const Driver& driver, const GlobalMatrix& matrix, const TmaBox& box) {
    TensorMap map[1];  // an array lies here: a result would lie where the caller has room, which GCC 12 may not align
    const uint64_t dims[] = {matrix.cols, matrix.rows, matrix.count};
    const uint64_t strides[] = {matrix.row_stride_bytes, matrix.stride_bytes};  // checked even if there is one row
    const uint32_t extents[] = {box.cols, box.rows, box.count};
    const uint32_t steps[] = {1, 1, 1};
    const int type = box.element_bytes == 1 ? kUint8 : box.element_bytes == 2 ? kBf16 : kFloat32;
    // How much a miss brings into L2. A box has 128 bytes of a row; where rows begin anywhere, twice as much comes for
    // each of them, and 128 bytes at a time are up to 14% faster. Elsewhere 256 are, by 1%. Measured on an H200.
    const bool pairs = !matrix.by_lines && reinterpret_cast<uint64_t>(matrix.data) % 128 == 0 &&
                       matrix.row_stride_bytes % 128 == 0 && matrix.stride_bytes % 128 == 0;
    const uint32_t rank = matrix.count > 0 ? 3 : 2;
    const Result result =
        driver.api.TensorMapEncodeTiled(map, type, rank, const_cast<void*>(matrix.data), dims, strides, extents, steps,
                                        0, swizzle_code(box.swizzle), pairs ? kPromote256 : kPromote128, 0);
    if (result != 0)
        driver.check(result,
                     fmt::format("cuTensorMapEncodeTiled({} x {} at {}, rows every {} bytes, box {} x {})", matrix.rows,
                                 matrix.cols, matrix.data, matrix.row_stride_bytes, box.rows, box.cols));
    return map[0];
}

}  // namespace finegemm::cuda
