// DLPack 1.3: own declarations of what the module uses, named as there. Layer: front end.
// No header of DLPack is needed to build; a test holds these against dlpack.h.
#pragma once

#include <cstdint>

namespace finegemm::python {

// DLDeviceType.
enum : int32_t { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3, kDLCUDAManaged = 13 };

// DLDataTypeCode.
enum : uint8_t { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLComplex = 5, kDLBool = 6 };
enum : uint8_t { kDLFloat8_e3m4 = 7, kDLFloat8_e4m3fn = 10, kDLFloat8_e5m2 = 12, kDLFloat8_e8m0fnu = 14 };

struct DLPackVersion {
    uint32_t major, minor;
};
inline constexpr DLPackVersion kDLPackVersion{1, 3};

struct DLDevice {
    int32_t device_type, device_id;
};

struct DLDataType {
    uint8_t code, bits;
    uint16_t lanes;
};

struct DLTensor {
    void* data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape, *strides;  // no strides: row-major
    uint64_t byte_offset;
};

/// Contents of a capsule named "dltensor". It begins with the tensor, which is all that a borrower reads.
struct DLManagedTensor {
    DLTensor dl_tensor;
    void* manager_ctx;
    void (*deleter)(DLManagedTensor*);
};

inline constexpr uint64_t kDLReadOnly = 1;  // DLPACK_FLAG_BITMASK_READ_ONLY

/// Contents of a capsule named "dltensor_versioned".
struct DLManagedTensorVersioned {
    DLPackVersion version;
    void* manager_ctx;
    void (*deleter)(DLManagedTensorVersioned*);
    uint64_t flags;
    DLTensor dl_tensor;
};

struct DLPackExchangeAPIHeader {
    DLPackVersion version;
    DLPackExchangeAPIHeader* prev_api;
};

/// What the capsule type(x).__dlpack_c_exchange_api__, named "dlpack_exchange_api", holds: functions for the tensors of
/// a type. Those that fail return -1 and leave a Python exception.
struct DLPackExchangeAPI {
    DLPackExchangeAPIHeader header;
    void (*managed_tensor_allocator)();
    void (*managed_tensor_from_py_object_no_sync)();
    void (*managed_tensor_to_py_object_no_sync)();
    /// The tensor of an object, borrowed from it; null where the library has no such function.
    int (*dltensor_from_py_object_no_sync)(void* py_object, DLTensor* out);
    int (*current_work_stream)(int32_t device_type, int32_t device_id, void** out);
};

}  // namespace finegemm::python
