// Matrices as the library sees them: pointer, extents, strides, element type, device. Layer: public.
#pragma once

#include <cstdint>

namespace finegemm {

/// Element types. The values are part of the C ABI.
enum class DType : int32_t {
    E4M3 = 1,  ///< OCP FP8 E4M3FN, one byte, no infinity, NaN = 0x7f / 0xff
    BF16 = 2,
    F16 = 3,
    F32 = 4,
    UE8M0x4 = 5,  ///< four biased exponents, of scales that are powers of two, in an int32
    I32 = 6,      ///< lengths, windows, numbers of pages, of rows and of experts
    E5M2 = 7,     ///< OCP FP8 E5M2, one byte, with infinities: the upper byte of an F16
    I64 = 8,      ///< experts' ids, as libraries pick them
    I8 = 9,       ///< integers from -128 to 127
};

constexpr int64_t size_of(DType t) {
    const bool byte = t == DType::E4M3 || t == DType::E5M2 || t == DType::I8;
    const bool word = t == DType::F32 || t == DType::UE8M0x4 || t == DType::I32;
    return byte ? 1 : word ? 4 : t == DType::I64 ? 8 : 2;
}

/// Kind of device that memory is on. The values are DLPack's kDLCPU and kDLCUDA.
enum class DeviceType : int32_t { Cpu = 1, Cuda = 2 };

struct Device {
    DeviceType type = DeviceType::Cpu;
    int32_t index = 0;  ///< of the GPU, as the CUDA driver counts; ignored on the CPU
    bool operator==(const Device&) const = default;
};

/// A view of a matrix; strides count elements. The pointer is borrowed for the call; without elements it may be null.
/// A stride is looked at only where there is more than one row (column) to step over.
struct ConstMatrix {
    const void* data = nullptr;
    DType dtype = DType::F32;
    int64_t rows = 0, cols = 0;
    int64_t row_stride = 0, col_stride = 1;
    Device device{};
};

/// A writable matrix.
struct Matrix {
    void* data = nullptr;
    DType dtype = DType::F32;
    int64_t rows = 0, cols = 0;
    int64_t row_stride = 0, col_stride = 1;
    Device device{};
    operator ConstMatrix() const { return {data, dtype, rows, cols, row_stride, col_stride, device}; }
};

/// `count` matrices of one shape; `stride`: elements from one to the next.
struct ConstStack {
    ConstMatrix matrix;
    int64_t count = 1;
    int64_t stride = 0;
};

/// A writable stack.
struct Stack {
    Matrix matrix;
    int64_t count = 1;
    int64_t stride = 0;
    operator ConstStack() const { return {matrix, count, stride}; }
};

/// A CUDA stream (CUstream or cudaStream_t) without CUDA's headers; null is the default stream. Ignored on CPU.
using Stream = void*;

}  // namespace finegemm
