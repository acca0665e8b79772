// DLPack tensors as the library's matrices. Layer: front end.
#include "matrix.h"

#include <algorithm>
#include <string>
#include <utility>

#include <finegemm/error.h>
#include <fmt/format.h>

#include "plan/elements.h"

namespace finegemm::python {

namespace {

std::string name_of(DLDataType t) {
    const int bits = t.bits;
    const std::string lanes = t.lanes == 1 ? "" : fmt::format("x{}", t.lanes);
    switch (t.code) {
        case kDLInt: return fmt::format("int{}{}", bits, lanes);
        case kDLUInt: return fmt::format("uint{}{}", bits, lanes);
        case kDLFloat: return fmt::format("float{}{}", bits, lanes);
        case kDLBfloat: return fmt::format("bfloat{}{}", bits, lanes);
        case kDLComplex: return fmt::format("complex{}{}", bits, lanes);
        case kDLBool: return "bool" + lanes;
        default: break;
    }
    constexpr const char* kFloat8[] = {"e3m4",     "e4m3", "e4m3b11fnuz", "e4m3fn",
                                       "e4m3fnuz", "e5m2", "e5m2fnuz",    "e8m0fnu"};
    if (t.code >= kDLFloat8_e3m4 && t.code <= kDLFloat8_e8m0fnu)
        return fmt::format("float8_{}{}", kFloat8[t.code - kDLFloat8_e3m4], lanes);
    return fmt::format("DLPack type {} of {} bits", static_cast<int>(t.code), bits);
}

/// Does the argument take scales in both formats?
bool is_any_scale(std::string_view name) { return name == "sf" || name == "out"; }

/// Does it take words of exponents, as MX has them? `words` are nothing else, the others may be floats.
bool may_be_mx(std::string_view name) { return name == "sfa" || name == "sfb" || name == "words"; }

bool is_codes(std::string_view name) {
    return name == "q" || name == "row_q" || name == "transposed" || name == "k" || name == "cache" ||
           name == "gate_up" || name == "down" || name == "fp8";
}

/// Are they experts, which may have 64 bits, or rows of them?
bool is_routing(std::string_view name) {
    return name == "ids" || name == "inverse" || name == "numbers" || name == "permutation" || name == "counts";
}

/// Are they windows, lengths, pages, a schedule, a routing or a selection?
bool is_integers(std::string_view name) {
    return is_routing(name) || name == "indices" || name == "histogram" || name == "starts" || name == "ends" ||
           name == "lengths" || name == "block_table" || name == "schedule";
}

/// Codes of e5m2 or integers? Scores take queries, which are `q` too, of e4m3: the library says so.
bool takes_other_codes(std::string_view name) {
    return name == "a" || name == "b" || name == "q" || name == "row_q" || name == "transposed";
}

/// Formats that the argument `name` may have.
std::string wanted_by(std::string_view name) {
    if (name == "a" || name == "b")
        return names_of(is_operand, &ElementType::array_name) + " (or uint8 or uint16, bits of the first two)";
    if (name == "d" || name == "c")
        return names_of(is_output, &ElementType::array_name) + " (or uint16, bits of the first)";
    if (is_codes(name) && takes_other_codes(name)) return "float8_e4m3fn (or uint8, its bits), float8_e5m2 or int8";
    if (is_codes(name)) return "float8_e4m3fn (or uint8, its bits)";
    if (name == "x") return "bfloat16 (or uint16, its bits), float16 or float32";
    if (is_any_scale(name)) return "float32, or int32 that packs four exponents (UE8M0)";
    if (name == "words") return "int32 of four exponents for each 32 columns (MX)";
    if (may_be_mx(name)) return "float32, or int32 of four exponents for each 32 columns (MX)";
    if (name == "ids") return "int32 or int64";
    if (name == "workspace" || name == "packed") return "uint8";
    if (name == "codes") return "float8_e4m3fn (or uint8, its bits), or uint8 or int8 where codes have four bits";
    if (name == "exponents") return "uint8 or float8_e8m0fnu";
    if (name == "y") return "bfloat16 (or uint16, its bits)";
    if (is_integers(name)) return "int32";
    return "float32";  // scales, bias, weights of heads
}

/// Scales as checkpoints have them, other than floats.
std::string_view way_out_for(std::string_view name, DLDataType t) {
    const bool integers = t.code == kDLInt || t.code == kDLUInt;
    if (name == "words") return "finegemm.mxfp8.pack_scales makes it";
    if (may_be_mx(name) && integers && t.bits == 8)
        return "if its bytes are exponents (UE8M0) for each 32 columns, finegemm.mxfp8.pack_scales packs them; else a "
               "scale is 2^(byte - 127)";
    if (wanted_by(name) != "float32" || !integers) return "convert it";
    if (t.bits == 8) return "if its bytes are exponents (UE8M0), a scale is 2^(byte - 127)";
    if (t.bits == 32) return "if it packs four exponents (UE8M0), a scale is 2^(byte - 127) of each byte";
    return "convert it";
}

DType dtype_of(std::string_view name, DLDataType t) {
    if (t.lanes == 1) {
        if (t.code == kDLFloat && t.bits == 32) return DType::F32;
        if (t.code == kDLFloat && t.bits == 16) return DType::F16;
        if (t.code == kDLBfloat && t.bits == 16) return DType::BF16;
        if (t.code == kDLFloat8_e4m3fn && t.bits == 8) return DType::E4M3;
        if (t.code == kDLFloat8_e5m2 && t.bits == 8 && takes_other_codes(name)) return DType::E5M2;
        if (t.code == kDLInt && t.bits == 8 && takes_other_codes(name)) return DType::I8;
        const bool bytes = wanted_by(name) != "float32" && !may_be_mx(name) && !is_integers(name);
        if (t.code == kDLUInt && t.bits == 8 && bytes) return DType::E4M3;
        if (t.code == kDLInt && t.bits == 8 && name == "codes") return DType::I8;
        if (t.code == kDLFloat8_e8m0fnu && name == "exponents") return DType::E4M3;
        if (t.code == kDLUInt && t.bits == 16) return DType::BF16;
        if (t.code == kDLInt && t.bits == 32 && (is_any_scale(name) || may_be_mx(name))) return DType::UE8M0x4;
        if (t.code == kDLInt && t.bits == 32 && is_integers(name)) return DType::I32;
        if (t.code == kDLInt && t.bits == 64 && name == "ids") return DType::I64;
    }
    throw Error(Errc::InvalidArgument, fmt::format("{}: has dtype {}, must be {}; {}", name, name_of(t),
                                                   wanted_by(name), way_out_for(name, t)));
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
                                    name, d.device_type, static_cast<int>(kDLCPU), static_cast<int>(kDLCUDA)));
    }
}

void check_dimensions(std::string_view name, const DLTensor& tensor, int wanted) {
    if (tensor.ndim != wanted)
        throw Error(Errc::InvalidArgument,
                    fmt::format("{}: has {} dimensions, must have {}; reshape it", name, tensor.ndim, wanted));
}

/// Checks that a tensor of one dimension is contiguous.
void check_contiguous(std::string_view name, const DLTensor& tensor) {
    if (tensor.strides && tensor.shape[0] > 1 && tensor.strides[0] != 1)
        throw Error(Errc::InvalidArgument,
                    fmt::format("{}: has stride {}, must be 1; make it contiguous", name, tensor.strides[0]));
}

/// Strides that no step is taken with: producers put anything there.
void set_unused_strides(Matrix& m) {
    if (m.cols <= 1 || m.rows == 0) m.col_stride = 1;
    if (m.rows <= 1 || m.cols == 0) m.row_stride = m.cols;
}

}  // namespace

void check_memory(std::string_view name, const DLTensor& tensor) {
    if (tensor.data || std::ranges::count(tensor.shape, tensor.shape + tensor.ndim, 0) > 0) return;
    throw Error(Errc::InvalidArgument,
                fmt::format("{}: has no memory, as fake and meta tensors have none; pass a tensor that has (for "
                            "torch.compile, make the call a custom operator)",
                            name));
}

Matrix matrix_of(std::string_view name, const DLTensor& tensor) {
    check_dimensions(name, tensor, 2);
    Matrix m{.data = static_cast<char*>(tensor.data) + tensor.byte_offset,
             .dtype = dtype_of(name, tensor.dtype),
             .rows = tensor.shape[0],
             .cols = tensor.shape[1],
             .row_stride = tensor.strides ? tensor.strides[0] : tensor.shape[1],
             .col_stride = tensor.strides ? tensor.strides[1] : 1,
             .device = device_of(name, tensor.device)};
    set_unused_strides(m);
    return m;
}

Matrix transposed(const Matrix& m) {
    Matrix t = m;
    std::swap(t.rows, t.cols);
    std::swap(t.row_stride, t.col_stride);
    set_unused_strides(t);
    return t;
}

Stack stack_of(std::string_view name, const DLTensor& tensor, int counted) {
    check_dimensions(name, tensor, 3);
    const int64_t* shape = tensor.shape;
    const int64_t row_major[] = {shape[1] * shape[2], shape[2], 1};
    const int64_t* strides = tensor.strides ? tensor.strides : row_major;
    int64_t extents[] = {shape[1 - counted], shape[2]}, steps[] = {strides[1 - counted], strides[2]};
    DLTensor first = tensor;
    first.ndim = 2;
    first.shape = extents;
    first.strides = steps;
    return {.matrix = matrix_of(name, first), .count = shape[counted], .stride = strides[counted]};
}

Matrix blocks_of(std::string_view name, const DLTensor& tensor, int64_t rows, int64_t cols) {
    check_dimensions(name, tensor, 1);
    check_contiguous(name, tensor);
    int64_t elements = 0;
    if (__builtin_mul_overflow(rows, cols, &elements) || tensor.shape[0] != elements)
        throw Error(Errc::InvalidArgument,
                    fmt::format("{0}: has {1} elements in one dimension, must have {2} * {3}: rows of sf{0}, and 128 "
                                "for each of its columns; pass all groups, one behind the other",
                                name, tensor.shape[0], rows, cols));
    return {.data = static_cast<char*>(tensor.data) + tensor.byte_offset,
            .dtype = dtype_of(name, tensor.dtype),
            .rows = rows,
            .cols = cols,
            .row_stride = cols,
            .col_stride = 1,
            .device = device_of(name, tensor.device)};
}

Matrix row_of(std::string_view name, const DLTensor& tensor) {
    check_dimensions(name, tensor, 1);
    check_contiguous(name, tensor);
    return {.data = static_cast<char*>(tensor.data) + tensor.byte_offset,
            .dtype = dtype_of(name, tensor.dtype),
            .rows = 1,
            .cols = tensor.shape[0],
            .row_stride = tensor.shape[0],
            .col_stride = 1,
            .device = device_of(name, tensor.device)};
}

Stack heads_of(std::string_view name, const DLTensor& tensor, int dimensions) {
    check_dimensions(name, tensor, dimensions);
    if (dimensions == 3) return stack_of(name, tensor);
    const int64_t *shape = tensor.shape, *strides = tensor.strides;
    if (strides && shape[0] > 1 && shape[1] > 1 && strides[0] != shape[1] * strides[1])
        throw Error(Errc::InvalidArgument,
                    fmt::format("{}: has strides {} and {} in its first two dimensions, must step from one request's "
                                "queries to the next one's as from query to query; make it contiguous",
                                name, strides[0], strides[1]));
    const int64_t row_major[] = {shape[2] * shape[3], shape[3], 1};
    const int64_t* steps = strides ? strides + 1 : row_major;
    int64_t extents[] = {shape[0] * shape[1], shape[2], shape[3]};
    int64_t of_queries[] = {shape[1] > 1 || !strides ? steps[0] : strides[0], steps[1], steps[2]};
    DLTensor all = tensor;
    all.ndim = 3;
    all.shape = extents;
    all.strides = of_queries;
    return stack_of(name, all);
}

Matrix lengths_of(std::string_view name, const DLTensor& tensor) {
    if (tensor.ndim != 1) return matrix_of(name, tensor);
    int64_t extents[] = {tensor.shape[0], 1}, steps[] = {tensor.strides ? tensor.strides[0] : 1, 1};
    DLTensor column = tensor;
    column.ndim = 2;
    column.shape = extents;
    column.strides = steps;
    return matrix_of(name, column);
}

Matrix pages_of(std::string_view name, const DLTensor& tensor, int64_t dim) {
    constexpr int64_t kBytesOfScale = 4;
    if (tensor.ndim < 2 || tensor.ndim > 4)
        throw Error(Errc::InvalidArgument, fmt::format("{}: has {} dimensions, must have 4, 3 or 2: pages, keys of a "
                                                       "page, 1 and D + 4, or pages and bytes; reshape it",
                                                       name, tensor.ndim));
    const int last = tensor.ndim - 1;
    if (last > 1 && tensor.shape[last] != dim + kBytesOfScale)
        throw Error(Errc::InvalidArgument,
                    fmt::format("{}: has {} bytes for a key, must have D + 4 = {}, the codes and a scale; look at what "
                                "made it",
                                name, tensor.shape[last], dim + kBytesOfScale));
    int64_t bytes = 1;
    for (int i = last; i > 0; --i) {
        if (tensor.strides && tensor.shape[i] > 1 && tensor.strides[i] != bytes)
            throw Error(Errc::InvalidArgument,
                        fmt::format("{}: has stride {} in dimension {}, must be {}, as pages have no gaps; make it "
                                    "contiguous",
                                    name, tensor.strides[i], i, bytes));
        bytes *= tensor.shape[i];
    }
    int64_t extents[] = {tensor.shape[0], bytes}, steps[] = {tensor.strides ? tensor.strides[0] : bytes, 1};
    DLTensor pages = tensor;
    pages.ndim = 2;
    pages.shape = extents;
    pages.strides = steps;
    return matrix_of(name, pages);
}

Numbers numbers_of(std::string_view name, const DLTensor& tensor) {
    check_dimensions(name, tensor, 1);
    const DLDataType t = tensor.dtype;
    if (t.code != kDLInt || t.bits != 32 || t.lanes != 1)
        throw Error(Errc::InvalidArgument,
                    fmt::format("{}: has dtype {}, must be int32; convert it", name, name_of(t)));
    check_contiguous(name, tensor);
    const void* data = static_cast<const char*>(tensor.data) + tensor.byte_offset;
    return {static_cast<const int32_t*>(data), tensor.shape[0], device_of(name, tensor.device)};
}

}  // namespace finegemm::python
