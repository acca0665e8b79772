// Tensors of DLPack producers as the library's matrices. Layer: front end.
#include "matrix.h"

#include <finegemm/error.h>
#include <fmt/format.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>

namespace finegemm::python {

namespace {

std::string name_of(DLDataType t) {
    if (t.code == kDLComplex) return fmt::format("complex{}", static_cast<int>(t.bits));
    try {
        return tvm::ffi::DLDataTypeToString(t);
    } catch (const tvm::ffi::Error&) {
        return fmt::format("DLPack type {} of {} bits", static_cast<int>(t.code), static_cast<int>(t.bits));
    }
}

DType dtype_of(std::string_view name, DLDataType t) {
    if (t.lanes == 1) {
        if (t.code == kDLFloat && t.bits == 32) return DType::F32;
        if (t.code == kDLFloat && t.bits == 16) return DType::F16;
        if (t.code == kDLBfloat && t.bits == 16) return DType::BF16;
        if (t.code == kDLFloat8_e4m3fn && t.bits == 8) return DType::E4M3;
        if (t.code == kDLUInt && t.bits == 8) return DType::E4M3;
        if (t.code == kDLUInt && t.bits == 16) return DType::BF16;
    }
    throw Error(Errc::InvalidArgument,
                fmt::format("{}: has dtype {}, which is none of float8_e4m3fn (or uint8, its bits), "
                            "bfloat16 (or uint16, its bits), float16 and float32; convert it",
                            name, name_of(t)));
}

Device device_of(std::string_view name, DLDevice d) {
    switch (d.device_type) {
        case kDLCPU:
        case kDLCUDAHost: return {DeviceType::Cpu, 0};
        case kDLCUDA:
        case kDLCUDAManaged: return {DeviceType::Cuda, d.device_id};
        default:
            throw Error(Errc::Unsupported,
                        fmt::format("{}: is on DLPack device type {}, must be on the CPU ({}) or a CUDA device ({}); "
                                    "copy it there",
                                    name, static_cast<int>(d.device_type), static_cast<int>(kDLCPU),
                                    static_cast<int>(kDLCUDA)));
    }
}

}  // namespace

Matrix matrix(std::string_view name, const tvm::ffi::TensorView& tensor) {
    if (tensor.ndim() != 2)
        throw Error(Errc::InvalidArgument,
                    fmt::format("{}: has {} dimensions, must have 2; reshape it", name, tensor.ndim()));
    Matrix m{.data = static_cast<char*>(tensor.data_ptr()) + tensor.byte_offset(),
             .dtype = dtype_of(name, tensor.dtype()),
             .rows = tensor.shape()[0],
             .cols = tensor.shape()[1],
             .row_stride = tensor.strides()[0],
             .col_stride = tensor.strides()[1],
             .device = device_of(name, tensor.device())};
    // Strides that no step is taken with: producers put anything there.
    if (m.cols <= 1 || m.rows == 0) m.col_stride = 1;
    if (m.rows <= 1 || m.cols == 0) m.row_stride = m.cols;
    return m;
}

}  // namespace finegemm::python
