// An input file that is read in parts. Layer cli.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

namespace finegemm::cli {

/// Its parts are read as they are asked for: a shard of a model may be larger than the memory. Throws Error(Io).
class InputFile {
public:
    explicit InputFile(const std::string& path);
    const std::string& path() const { return path_; }
    uint64_t bytes() const { return bytes_; }
    template <typename Container>
    void read(uint64_t offset, Container& to) {
        read(offset, to.data(), to.size() * sizeof *to.data());
    }
    /// The beginning, up to so many bytes.
    std::string head(uint64_t most);

private:
    void read(uint64_t offset, void* to, uint64_t bytes);

    std::string path_;
    std::ifstream stream_;
    uint64_t bytes_ = 0;
};

/// The beginning of a .safetensors file up to the end of its header.
std::string safetensors_head(InputFile& file);

}  // namespace finegemm::cli
