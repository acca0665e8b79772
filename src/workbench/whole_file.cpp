// A file that appears whole or not at all. Layer api.
#include "workbench/whole_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

#include <fmt/format.h>

#include <finegemm/error.h>

namespace finegemm {

namespace {

/// What an open file is called in this process.
std::string link_to(int file) { return fmt::format("/proc/self/fd/{}", file); }

}  // namespace

WholeFile::WholeFile(std::string path) : path_(std::move(path)), part_(path_ + ".part") {
    std::error_code error;
    const auto type = std::filesystem::status(path_, error).type();
    // A file of another kind, /dev/null say, would be replaced by a regular one.
    if (type != std::filesystem::file_type::not_found && type != std::filesystem::file_type::regular) fail();
    const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
    nameless_ = open(folder.empty() ? "." : folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    out_.open(nameless_ >= 0 ? link_to(nameless_) : part_, std::ios::binary);
    if (out_) return;
    if (nameless_ >= 0) close(nameless_);
    fail();
}

WholeFile::~WholeFile() {
    if (nameless_ >= 0) close(nameless_);
    std::error_code error;
    std::filesystem::remove(part_, error);
}

void WholeFile::publish() {
    out_.close();
    std::error_code error;
    if (!out_) fail();
    if (nameless_ >= 0) {
        std::filesystem::remove(part_, error);
        if (linkat(AT_FDCWD, link_to(nameless_).c_str(), AT_FDCWD, part_.c_str(), AT_SYMLINK_FOLLOW) != 0) fail();
    }
    std::filesystem::rename(part_, path_, error);
    if (error) fail();
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
