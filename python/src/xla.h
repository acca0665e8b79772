// XLA's foreign function interface: own declarations of what the module uses. Layer: front end.
// No header of XLA is needed to build; a test holds these against the one that jaxlib has. XLA adds members at the ends
// of structs alone while its major version stays.
#pragma once

#include <cstddef>
#include <cstdint>

namespace finegemm::python::xla {

inline constexpr int kMajorVersion = 0;       // XLA_FFI_API_MAJOR
inline constexpr int kFirstMinorVersion = 1;  // of jaxlib 0.5

struct Extension {
    size_t struct_size;
    int32_t type;
    Extension* next;
};

inline constexpr int32_t kMetadata = 1;  // XLA_FFI_Extension_Metadata

/// What each struct begins with.
struct Header {
    size_t struct_size;
    Extension* extensions;
};

struct ApiVersion {
    Header header;
    int32_t major, minor;
};

struct Metadata {
    size_t struct_size;
    ApiVersion version;
};

/// What XLA asks of a handler when it is registered.
struct MetadataExtension {
    Extension base;
    Metadata* metadata;
};

// XLA_FFI_DataType.
enum : int32_t {
    kBool = 1,
    kS8 = 2,
    kS32 = 4,
    kS64 = 5,
    kU8 = 6,
    kU16 = 7,
    kF16 = 10,
    kF32 = 11,
    kF64 = 12,
    kBF16 = 16
};
enum : int32_t { kF8E5M2 = 19, kF8E4M3FN = 20 };

struct Buffer {
    Header header;
    int32_t dtype;
    void* data;
    int64_t rank;
    int64_t* dims;  // row-major
};

struct Text {
    const char* data;
    size_t size;
};

struct Scalar {
    int32_t dtype;
    void* value;
};

/// Operands, and results that a handler writes.
struct Buffers {
    Header header;
    int64_t size;
    int32_t* types;
    Buffer** items;
};

enum : int32_t { kScalar = 3, kText = 4 };  // XLA_FFI_AttrType

struct Attributes {
    Header header;
    int64_t size;
    int32_t* types;
    Text** names;
    void** values;  // a Scalar or a Text, as the type says
};

struct Error;
struct Execution;

struct ErrorCreate {
    Header header;
    const char* message;
    int32_t code;
};

inline constexpr int32_t kInvalidArgument = 3;  // XLA_FFI_Error_Code

struct ErrorDestroy {
    Header header;
    Error* error;
};

struct StreamGet {
    Header header;
    Execution* execution;
    void* stream;  // out
};

struct DeviceGet {
    Header header;
    Execution* execution;
    int32_t device;  // out
};

struct Api {
    Header header;
    ApiVersion version;
    const void* internal;
    Error* (*error_create)(ErrorCreate*);
    void (*error_message)();
    void (*error_destroy)(ErrorDestroy*);
    void (*handler_register)();
    Error* (*stream_get)(StreamGet*);
    void (*others[12])();
    Error* (*device_get)(DeviceGet*);
};

struct CallFrame {
    Header header;
    const Api* api;
    Execution* execution;
    int32_t stage;
    Buffers operands, results;
    Attributes attributes;
};

}  // namespace finegemm::python::xla
