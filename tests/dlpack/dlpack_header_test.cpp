// The Python module's own declarations of DLPack, held against dlpack.h where a new enough one is. Layer tests.
#include <gtest/gtest.h>

#include "dlpack.h"

#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#endif

// The version that has the C exchange API as it is declared here.
#if defined(DLPACK_MAJOR_VERSION) && DLPACK_MAJOR_VERSION == 1 && DLPACK_MINOR_VERSION >= 3

#include <cstddef>

namespace {

namespace ours = finegemm::python;

#define SAME_SIZE(type) static_assert(sizeof(ours::type) == sizeof(::type) && alignof(ours::type) == alignof(::type))
#define SAME_OFFSET(type, member)                                             \
    static_assert(offsetof(ours::type, member) == offsetof(::type, member) && \
                  sizeof(ours::type::member) == sizeof(::type::member))
SAME_SIZE(DLPackVersion);
SAME_OFFSET(DLPackVersion, major);
SAME_OFFSET(DLPackVersion, minor);
SAME_SIZE(DLDevice);
SAME_OFFSET(DLDevice, device_type);
SAME_OFFSET(DLDevice, device_id);
SAME_SIZE(DLDataType);
SAME_OFFSET(DLDataType, code);
SAME_OFFSET(DLDataType, bits);
SAME_OFFSET(DLDataType, lanes);
SAME_SIZE(DLTensor);
SAME_OFFSET(DLTensor, data);
SAME_OFFSET(DLTensor, device);
SAME_OFFSET(DLTensor, ndim);
SAME_OFFSET(DLTensor, dtype);
SAME_OFFSET(DLTensor, shape);
SAME_OFFSET(DLTensor, strides);
SAME_OFFSET(DLTensor, byte_offset);
SAME_OFFSET(DLManagedTensor, dl_tensor);
SAME_OFFSET(DLManagedTensorVersioned, version);
SAME_OFFSET(DLManagedTensorVersioned, flags);
SAME_OFFSET(DLManagedTensorVersioned, dl_tensor);
SAME_OFFSET(DLPackExchangeAPIHeader, version);
SAME_OFFSET(DLPackExchangeAPI, header);
SAME_OFFSET(DLPackExchangeAPI, dltensor_from_py_object_no_sync);
SAME_OFFSET(DLPackExchangeAPI, current_work_stream);
#undef SAME_SIZE
#undef SAME_OFFSET

TEST(DlpackHeader, AgreesWithOurConstants) {
    EXPECT_EQ(+ours::kDLCPU, +::kDLCPU);
    EXPECT_EQ(+ours::kDLCUDA, +::kDLCUDA);
    EXPECT_EQ(+ours::kDLCUDAHost, +::kDLCUDAHost);
    EXPECT_EQ(+ours::kDLCUDAManaged, +::kDLCUDAManaged);
    EXPECT_EQ(+ours::kDLInt, +::kDLInt);
    EXPECT_EQ(+ours::kDLUInt, +::kDLUInt);
    EXPECT_EQ(+ours::kDLFloat, +::kDLFloat);
    EXPECT_EQ(+ours::kDLBfloat, +::kDLBfloat);
    EXPECT_EQ(+ours::kDLComplex, +::kDLComplex);
    EXPECT_EQ(+ours::kDLBool, +::kDLBool);
    EXPECT_EQ(+ours::kDLFloat8_e3m4, +::kDLFloat8_e3m4);
    EXPECT_EQ(+ours::kDLFloat8_e4m3fn, +::kDLFloat8_e4m3fn);
    EXPECT_EQ(+ours::kDLFloat8_e8m0fnu, +::kDLFloat8_e8m0fnu);
    EXPECT_EQ(ours::kDLReadOnly, DLPACK_FLAG_BITMASK_READ_ONLY);
}

}  // namespace

#else

TEST(DlpackHeader, AgreesWithOurConstants) {
    GTEST_SKIP() << "no dlpack/dlpack.h of DLPack 1.3 or later is on this machine's include path";
}

#endif
