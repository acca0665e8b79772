// An input file that is read in parts. Layer cli.
#include "cli/files/input_file.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "cli/files/file_region.h"

namespace finegemm::cli {

InputFile::InputFile(const std::string& path) : path_(path), stream_(path, std::ios::binary) {
    stream_.seekg(0, std::ios::end);
    const auto end = stream_.tellg();
    // A directory can be opened, and has the largest size there is.
    if (!stream_ || end < 0 || end == std::numeric_limits<std::streamoff>::max())
        reject_file(path_, "cannot be read; check the path");
    bytes_ = static_cast<uint64_t>(end);
}

void InputFile::read(uint64_t offset, void* to, uint64_t bytes) {
    stream_.seekg(static_cast<std::streamoff>(offset));
    if (!stream_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes)))
        reject_file(path_, "could not be read to its end");
}

std::string InputFile::head(uint64_t most) {
    std::string text(std::min(bytes_, most), '\0');
    read(0, text);
    return text;
}

std::string safetensors_head(InputFile& file) {
    uint64_t length = 0;
    const std::string first = file.head(8);
    std::memcpy(&length, first.data(), first.size());
    return file.head(8 + std::min<uint64_t>(length, kMaxHead));
}

}  // namespace finegemm::cli
