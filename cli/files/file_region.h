// The region of a file that holds a matrix, as the readers of formats find it in the file's header. Layer cli.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <finegemm/tensor.h>

namespace finegemm::cli {

struct FileRegion {
    DType dtype = DType::F32;
    int64_t rows = 0, cols = 0;
    uint64_t offset = 0;    // in the file; all of the matrix lies inside of it
    std::string untyped{};  // as in HostMatrix
};

/// What a header says of its numbers. `untyped`: only how wide they are; `dtype` is what they mostly are then.
struct FileType {
    std::string name;
    DType dtype;
    bool untyped = false;
};
/// Takes the type into the region, or `as`, which somebody said. Throws Error(Io) where that cannot be.
void take_type(const std::string& file, FileRegion& region, const FileType& type, std::optional<DType> as);

/// Longer headers are no headers. (The .safetensors format has the same limit.)
inline constexpr uint64_t kMaxHead = 100'000'000;

// Both throw Error(Io) that says what `file` has and what is wanted: a matrix, rows one after the other, of f32, f16,
// bf16 or e4m3. `head` is the file's beginning, with all of its header.

/// In .npy, bf16 is '<u2' or '|V2' and e4m3 '|u1' or '|V1': NumPy has no names for them, nor for others as wide.
FileRegion region_in_npy(const std::string& file, std::string_view head, uint64_t file_bytes,
                         std::optional<DType> as = {});
/// U8, U16 and the like need `as`.
FileRegion region_in_safetensors(const std::string& file, std::string_view head, uint64_t file_bytes,
                                 const std::string& tensor, std::optional<DType> as = {});

/// What the header of a .safetensors file says of a tensor: the type as it is called there, extents, and where its
/// bytes are, which is inside of the file.
struct TensorEntry {
    std::string dtype;
    std::vector<int64_t> shape;
    uint64_t offset = 0, bytes = 0;
};
TensorEntry entry_in_safetensors(const std::string& file, std::string_view head, uint64_t file_bytes,
                                 const std::string& tensor);
bool has_tensor(const std::string& file, std::string_view head, const std::string& tensor);

/// Throws Error(Io) unless `available` bytes are what the matrix takes.
void check_size(const std::string& file, int64_t rows, int64_t cols, DType dtype, uint64_t available);

[[noreturn]] void reject_file(const std::string& file, const std::string& reason);

}  // namespace finegemm::cli
