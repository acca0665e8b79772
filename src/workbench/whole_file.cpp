// A file that appears whole or not at all. Layer api.
#include "workbench/whole_file.h"

#include <filesystem>

#include <fmt/format.h>

#include <finegemm/error.h>

namespace finegemm {

WholeFile::WholeFile(std::string path) : path_(std::move(path)), part_(path_ + ".part") {
    std::error_code error;
    const auto type = std::filesystem::status(path_, error).type();
    // A file of another kind, /dev/null say, would be replaced by a regular one.
    if (type != std::filesystem::file_type::not_found && type != std::filesystem::file_type::regular) fail();
    out_.open(part_, std::ios::binary);
    if (!out_) fail();
}

WholeFile::~WholeFile() {
    std::error_code error;
    std::filesystem::remove(part_, error);
}

void WholeFile::publish() {
    out_.close();
    std::error_code error;
    if (out_) std::filesystem::rename(part_, path_, error);
    if (!out_ || error) fail();
}

void WholeFile::fail() const {
    throw Error(Errc::Io, fmt::format("{}: cannot be written; choose another file", path_));
}

void write_whole(const std::string& path, const std::string& content) {
    WholeFile file(path);
    file.content() << content;
    file.publish();
}

}  // namespace finegemm
