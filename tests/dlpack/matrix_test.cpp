// Tensors of DLPack as matrices: what producers may write in each field. Layer tests.
#include "matrix.h"

#include <vector>

#include "support/error_of.h"

namespace finegemm::python {
namespace {

using test::contains;
using test::error_of;

struct Tensor {
    int64_t shape[3] = {4, 6, 1}, strides[3] = {8, 1, 1};
    char memory[64] = {};
    DLTensor dl{memory, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, strides, 0};
};

TEST(DlpackMatrix, IsTheTensorsMemory) {
    Tensor t;
    t.dl.byte_offset = 16;
    const Matrix m = matrix_of("x", t.dl);
    EXPECT_EQ(m.data, t.memory + 16);
    EXPECT_EQ(std::tuple(m.rows, m.cols, m.row_stride, m.col_stride), std::tuple(4, 6, 8, 1));
    EXPECT_EQ(m.device, Device{});
}

TEST(DlpackMatrix, WithoutStridesIsRowMajor) {
    Tensor t;
    t.dl.strides = nullptr;
    const Matrix m = matrix_of("x", t.dl);
    EXPECT_EQ(std::tuple(m.row_stride, m.col_stride), std::tuple(6, 1));
}

TEST(DlpackMatrix, StridesThatNoStepIsTakenWithAreThoseOfRowMajor) {
    for (const auto& [rows, cols] : {std::pair{1, 6}, {0, 6}, {4, 0}}) {
        Tensor t;
        t.shape[0] = rows, t.shape[1] = cols;
        t.strides[0] = 77;
        EXPECT_EQ(matrix_of("x", t.dl).row_stride, cols);
    }
    Tensor column;
    column.shape[1] = 1;
    column.strides[1] = 77;
    EXPECT_EQ(matrix_of("x", column.dl).col_stride, 1);
}

TEST(DlpackMatrix, FormatsMayComeAsTheirBits) {
    const auto dtype_of = [](DLDataType dtype) {
        Tensor t;
        t.dl.dtype = dtype;
        return matrix_of("x", t.dl).dtype;
    };
    EXPECT_EQ(dtype_of({kDLFloat, 32, 1}), DType::F32);
    EXPECT_EQ(dtype_of({kDLFloat, 16, 1}), DType::F16);
    EXPECT_EQ(dtype_of({kDLBfloat, 16, 1}), DType::BF16);
    EXPECT_EQ(dtype_of({kDLUInt, 16, 1}), DType::BF16);
    EXPECT_EQ(dtype_of({kDLFloat8_e4m3fn, 8, 1}), DType::E4M3);
    EXPECT_EQ(dtype_of({kDLUInt, 8, 1}), DType::E4M3);
}

TEST(DlpackMatrix, OtherFormatsAreNamed) {
    const std::pair<DLDataType, const char*> cases[] = {{{kDLInt, 8, 1}, "int8"},
                                                        {{kDLFloat, 64, 1}, "float64"},
                                                        {{kDLComplex, 64, 1}, "complex64"},
                                                        {{kDLBool, 8, 1}, "bool"},
                                                        {{kDLFloat, 32, 4}, "float32x4"},
                                                        {{12, 8, 1}, "float8_e5m2"},
                                                        {{kDLFloat8_e3m4, 8, 1}, "_e3m4"},
                                                        {{kDLFloat8_e8m0fnu, 8, 1}, "float8_e8m0fnu"},
                                                        {{17, 4, 1}, "DLPack type 17 of 4 bits"}};
    for (const auto& [dtype, name] : cases) {
        Tensor t;
        t.dl.dtype = dtype;
        const Error error = error_of([&] { matrix_of("sfa", t.dl); });
        EXPECT_EQ(error.code(), Errc::InvalidArgument);
        EXPECT_TRUE(contains(error, "sfa: has dtype ") && contains(error, name)) << error.what();
    }
}

TEST(DlpackMatrix, FormatsThatTheArgumentTakesAreOffered) {
    const std::pair<const char*, const char*> cases[] = {
        {"a",
         "a: has dtype float64, must be float8_e4m3fn, bfloat16, float16, float8_e5m2 or int8 (or uint8 or uint16, "
         "bits of the first two); convert it"},
        {"sfb",
         "sfb: has dtype float64, must be float32, or int32 of four exponents for each 32 columns (MX); convert it"},
        {"d", "d: has dtype float64, must be bfloat16, float16 or float32 (or uint16, bits of the first); convert it"},
        {"x", "x: has dtype float64, must be bfloat16 (or uint16, its bits), float16 or float32; convert it"}};
    for (const auto& [name, sentence] : cases) {
        Tensor t;
        t.dl.dtype = {kDLFloat, 64, 1};
        EXPECT_STREQ(error_of([&] { matrix_of(name, t.dl); }).what(), sentence);
    }
}

TEST(DlpackMatrix, PackedExponentsAreInt32WhereScalesOfBothFormatsAreTaken) {
    Tensor t;
    t.dl.dtype = {kDLInt, 32, 1};
    EXPECT_EQ(matrix_of("sf", t.dl).dtype, DType::UE8M0x4);
    EXPECT_EQ(matrix_of("out", t.dl).dtype, DType::UE8M0x4);
    EXPECT_EQ(matrix_of("sfa", t.dl).dtype, DType::UE8M0x4);
    EXPECT_TRUE(contains(error_of([&] { matrix_of("sfd", t.dl); }), "sfd: has dtype int32, must be float32"));
    t.dl.dtype = {kDLFloat, 64, 1};
    EXPECT_STREQ(error_of([&] { matrix_of("sf", t.dl); }).what(),
                 "sf: has dtype float64, must be float32, or int32 that packs four exponents (UE8M0); convert it");
}

/// A tensor of up to four dimensions of one type.
struct Shaped {
    std::vector<int64_t> shape, strides;
    char memory[64] = {};
    DLTensor dl{memory, {kDLCPU, 0}, 0, {}, nullptr, nullptr, 0};

    Shaped(DLDataType dtype, std::vector<int64_t> extents, std::vector<int64_t> steps = {})
        : shape(std::move(extents)), strides(std::move(steps)) {
        dl.dtype = dtype, dl.ndim = static_cast<int32_t>(shape.size()), dl.shape = shape.data();
        dl.strides = strides.empty() ? nullptr : strides.data();
    }
};
constexpr DLDataType kBytes{kDLUInt, 8, 1}, kInt32{kDLInt, 32, 1};

TEST(DlpackMatrix, HeadsOfQueriesAreAStackHoweverQueriesAreCounted) {
    const auto stack_text = [](const Stack& s) {
        return std::tuple(s.count, s.stride, s.matrix.rows, s.matrix.cols, s.matrix.row_stride);
    };
    EXPECT_EQ(stack_text(heads_of("q", Shaped(kBytes, {5, 8, 32}).dl, 3)), std::tuple(5, 256, 8, 32, 32));
    EXPECT_EQ(stack_text(heads_of("q", Shaped(kBytes, {3, 2, 8, 32}).dl, 4)), std::tuple(6, 256, 8, 32, 32));
    EXPECT_EQ(stack_text(heads_of("q", Shaped(kBytes, {3, 2, 8, 32}, {1024, 512, 64, 1}).dl, 4)),
              std::tuple(6, 512, 8, 32, 64));
    EXPECT_EQ(stack_text(heads_of("q", Shaped(kBytes, {3, 1, 8, 32}, {512, 7, 32, 1}).dl, 4)),
              std::tuple(3, 512, 8, 32, 32));
    EXPECT_TRUE(contains(error_of([&] { heads_of("q", Shaped(kBytes, {3, 2, 8, 32}, {999, 256, 32, 1}).dl, 4); }),
                         "q: has strides 999 and 256 in its first two dimensions"));
    EXPECT_TRUE(
        contains(error_of([&] { heads_of("q", Shaped(kBytes, {8, 32}).dl, 3); }), "has 2 dimensions, must have 3"));
}

TEST(DlpackMatrix, LengthsAreAColumnOrAMatrix) {
    const Matrix column = lengths_of("lengths", Shaped(kInt32, {6}, {2}).dl);
    EXPECT_EQ(std::tuple(column.rows, column.cols, column.row_stride), std::tuple(6, 1, 2));
    EXPECT_EQ(column.dtype, DType::I32);
    EXPECT_EQ(lengths_of("lengths", Shaped(kInt32, {6, 2}).dl).cols, 2);
    EXPECT_TRUE(contains(error_of([&] { lengths_of("lengths", Shaped({kDLInt, 64, 1}, {6}).dl); }),
                         "lengths: has dtype int64, must be int32; convert it"));
    EXPECT_TRUE(contains(error_of([&] { lengths_of("lengths", Shaped(kBytes, {6}).dl); }), "has dtype uint8"));
}

TEST(DlpackMatrix, PagesAreRowsOfBytes) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{5, 16, 1, 36}, {5, 16, 36}, {5, 576}}) {
        const Matrix pages = pages_of("cache", Shaped(kBytes, shape).dl, 32);
        EXPECT_EQ(std::tuple(pages.rows, pages.cols, pages.row_stride), std::tuple(5, 576, 576));
        EXPECT_EQ(pages.dtype, DType::E4M3);
    }
    EXPECT_EQ(pages_of("cache", Shaped(kBytes, {5, 16, 1, 36}, {600, 36, 36, 1}).dl, 32).row_stride, 600);
    for (const auto& [tensor, sentence] :
         {std::pair(Shaped(kBytes, {5, 16, 1, 32}), "cache: has 32 bytes for a key, must have D + 4 = 36"),
          {Shaped(kBytes, {5, 16, 1, 36}, {1200, 72, 36, 1}), "cache: has stride 72 in dimension 1, must be 36"},
          {Shaped(kBytes, {576}), "cache: has 1 dimensions, must have 4, 3 or 2"}}) {
        Shaped t(tensor.dl.dtype, tensor.shape, tensor.strides);
        EXPECT_TRUE(contains(error_of([&] { pages_of("cache", t.dl, 32); }), sentence)) << sentence;
    }
}

TEST(DlpackMatrix, DevicesAreTheCpuAndCuda) {
    const auto device_of = [](DLDevice device) {
        Tensor t;
        t.dl.device = device;
        return matrix_of("x", t.dl).device;
    };
    EXPECT_EQ(device_of({kDLCUDAHost, 3}), (Device{DeviceType::Cpu, 0}));
    EXPECT_EQ(device_of({kDLCUDA, 3}), (Device{DeviceType::Cuda, 3}));
    EXPECT_EQ(device_of({kDLCUDAManaged, 1}), (Device{DeviceType::Cuda, 1}));
    const Error error = error_of([&] { device_of({8, 0}); });  // Metal
    EXPECT_EQ(error.code(), Errc::Unsupported);
    EXPECT_TRUE(contains(error, "x: is on DLPack device type 8, must be on the CPU")) << error.what();
}

TEST(DlpackStack, IsMatricesBehindOneAnother) {
    Tensor t;
    t.dl.ndim = 3;
    t.shape[0] = 3, t.shape[1] = 4, t.shape[2] = 6;
    t.strides[0] = 40, t.strides[1] = 8, t.strides[2] = 1;
    const Stack s = stack_of("x", t.dl);
    EXPECT_EQ(std::tuple(s.count, s.stride), std::tuple(3, 40));
    const Matrix& m = s.matrix;
    EXPECT_EQ(std::tuple(m.rows, m.cols, m.row_stride, m.col_stride), std::tuple(4, 6, 8, 1));
    t.dl.strides = nullptr;
    EXPECT_EQ(stack_of("x", t.dl).stride, 24);
    EXPECT_EQ(stack_of("x", t.dl).matrix.row_stride, 6);
    t.dl.ndim = 2;
    EXPECT_TRUE(contains(error_of([&] { stack_of("x", t.dl); }), "x: has 2 dimensions, must have 3; reshape it"));
}

TEST(DlpackBlocks, AreAContiguousVectorOfAllElements) {
    Tensor t;
    t.dl.ndim = 1;
    t.dl.dtype = {kDLUInt, 8, 1};
    t.dl.device = {kDLCUDA, 2};
    t.dl.byte_offset = 16;
    t.shape[0] = 24, t.strides[0] = 1;
    const Matrix m = blocks_of("a", t.dl, 4, 6);
    EXPECT_EQ(m.data, t.memory + 16);
    EXPECT_EQ(m.dtype, DType::E4M3);
    EXPECT_EQ(std::tuple(m.rows, m.cols, m.row_stride, m.col_stride), std::tuple(4, 6, 6, 1));
    EXPECT_EQ(m.device, (Device{DeviceType::Cuda, 2}));
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{5, 6}, {4, 0}, {0, 6}, {INT64_MAX, 4}})
        EXPECT_TRUE(contains(error_of([&] { blocks_of("a", t.dl, rows, cols); }), "a: has 24 elements in one dim"));
    t.strides[0] = 2;
    EXPECT_TRUE(contains(error_of([&] { blocks_of("a", t.dl, 4, 6); }), "a: has stride 2, must be 1"));
    t.shape[0] = 0;
    EXPECT_EQ(blocks_of("a", t.dl, 4, 0).cols, 0);
}

TEST(DlpackNumbers, AreAContiguousVectorOfInt32) {
    Tensor t;
    t.dl.ndim = 1;
    t.dl.dtype = {kDLInt, 32, 1};
    t.dl.device = {kDLCUDA, 2};
    t.dl.byte_offset = 4;
    t.strides[0] = 1;
    const Numbers n = numbers_of("x", t.dl);
    EXPECT_EQ(static_cast<const void*>(n.data), t.memory + 4);
    EXPECT_EQ(n.size, 4);
    EXPECT_EQ(n.device, (Device{DeviceType::Cuda, 2}));
    t.strides[0] = 0;
    EXPECT_TRUE(contains(error_of([&] { numbers_of("x", t.dl); }), "x: has stride 0, must be 1"));
    t.dl.dtype = {kDLUInt, 32, 1};
    EXPECT_TRUE(contains(error_of([&] { numbers_of("x", t.dl); }), "x: has dtype uint32, must be int32; convert it"));
    t.dl.ndim = 0;
    EXPECT_TRUE(contains(error_of([&] { numbers_of("x", t.dl); }), "x: has 0 dimensions, must have 1"));
}

TEST(DlpackTensors, HaveMemoryUnlessTheyAreEmpty) {
    Tensor t;
    check_memory("x", t.dl);
    t.dl.data = nullptr;
    EXPECT_TRUE(contains(error_of([&] { check_memory("x", t.dl); }), "x: has no memory, as fake and meta tensors"));
    t.shape[1] = 0;
    check_memory("x", t.dl);
}

TEST(DlpackMatrix, HasTwoDimensions) {
    for (const int dimensions : {0, 1, 3}) {
        Tensor t;
        t.dl.ndim = dimensions;
        EXPECT_TRUE(contains(error_of([&] { matrix_of("x", t.dl); }), "x: has " + std::to_string(dimensions)));
    }
}

TEST(DlpackMatrix, ExpertsMayHave64BitsAndTheirRowsHave32) {
    Tensor t;
    t.dl.dtype = {kDLInt, 64, 1};
    EXPECT_EQ(matrix_of("ids", t.dl).dtype, DType::I64);
    const Error error = error_of([&] { matrix_of("inverse", t.dl); });
    EXPECT_TRUE(contains(error, "inverse: has dtype int64, must be int32; convert it")) << error.what();
    t.dl.dtype.bits = 32;
    for (const char* name : {"ids", "inverse", "permutation"}) EXPECT_EQ(matrix_of(name, t.dl).dtype, DType::I32);
}

}  // namespace
}  // namespace finegemm::python
