// The region of a file that holds a matrix, as the readers of formats find it in the file's header. Layer cli.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <finegemm/tensor.h>

namespace finegemm::cli {

struct FileRegion {
    DType dtype = DType::F32;
    int64_t rows = 0, cols = 0;
    uint64_t offset = 0;  // in the file; all of the matrix lies inside of it
};

/// Longer headers are no headers. (The .safetensors format has the same limit.)
inline constexpr uint64_t kMaxHead = 100'000'000;

// Both throw Error(Io) that says what `file` has and what is wanted: a matrix, rows one after the other, of f32, f16,
// bf16 or e4m3. `head` is the file's beginning, with all of its header.

/// In .npy, bf16 is '<u2' or '|V2' and e4m3 '|u1' or '|V1': NumPy has no names for them.
FileRegion region_in_npy(const std::string& file, std::string_view head, uint64_t file_bytes);
FileRegion region_in_safetensors(const std::string& file, std::string_view head, uint64_t file_bytes,
                                 const std::string& tensor);

/// Throws Error(Io) unless `available` bytes are what the matrix takes.
void check_size(const std::string& file, int64_t rows, int64_t cols, DType dtype, uint64_t available);

[[noreturn]] void reject_file(const std::string& file, const std::string& reason);

}  // namespace finegemm::cli
