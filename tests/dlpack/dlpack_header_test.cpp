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
#define SAME_PLACE(type, member)                                              \
    static_assert(offsetof(ours::type, member) == offsetof(::type, member) && \
                  sizeof(ours::type::member) == sizeof(::type::member))
SAME_SIZE(DLPackVersion);
SAME_PLACE(DLPackVersion, major);
SAME_PLACE(DLPackVersion, minor);
SAME_SIZE(DLDevice);
SAME_PLACE(DLDevice, device_type);
SAME_PLACE(DLDevice, device_id);
SAME_SIZE(DLDataType);
SAME_PLACE(DLDataType, code);
SAME_PLACE(DLDataType, bits);
SAME_PLACE(DLDataType, lanes);
SAME_SIZE(DLTensor);
SAME_PLACE(DLTensor, data);
SAME_PLACE(DLTensor, device);
SAME_PLACE(DLTensor, ndim);
SAME_PLACE(DLTensor, dtype);
SAME_PLACE(DLTensor, shape);
SAME_PLACE(DLTensor, strides);
SAME_PLACE(DLTensor, byte_offset);
SAME_PLACE(DLManagedTensor, dl_tensor);
SAME_PLACE(DLManagedTensorVersioned, version);
SAME_PLACE(DLManagedTensorVersioned, flags);
SAME_PLACE(DLManagedTensorVersioned, dl_tensor);
SAME_PLACE(DLPackExchangeAPIHeader, version);
SAME_PLACE(DLPackExchangeAPI, header);
SAME_PLACE(DLPackExchangeAPI, dltensor_from_py_object_no_sync);
SAME_PLACE(DLPackExchangeAPI, current_work_stream);
#undef SAME_SIZE
#undef SAME_PLACE

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
