// Owners and modes of files. Layer os.
#include "os/trust.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include <fmt/format.h>

namespace finegemm::os {

namespace {

namespace fs = std::filesystem;

bool lies_in(const std::string& path, const std::string& folder) {
    if (folder.empty()) return false;
    const fs::path inner = fs::absolute(path).lexically_normal();
    const fs::path outer = (fs::absolute(folder) / "").lexically_normal();
    return (inner / "").string().starts_with(outer.string());
}

/// What speaks against one file or folder; `info` is of the link where it is one.
std::string fault_of(const std::string& path, const struct stat& info) {
    constexpr mode_t kWrittenByOthers = S_IWGRP | S_IWOTH;
    if (S_ISLNK(info.st_mode)) return fmt::format("{} is a link; name what it leads to", path);
    if (info.st_uid != geteuid() && info.st_uid != 0)
        return fmt::format(
            "{} belongs to user {}, this process runs as user {}; name a folder of your own, or that one "
            "in FINEGEMM_TRUSTED_DIR",
            path, info.st_uid, geteuid());
    if ((info.st_mode & kWrittenByOthers) != 0)
        return fmt::format("{} can be written by others (mode {:o}); chmod go-w {}", path, info.st_mode & 07777u, path);
    return {};
}

}  // namespace

std::string folder_distrust(const std::string& folder, const std::string& trusted) {
    struct stat info{};
    if (lies_in(folder, trusted) || lstat(folder.c_str(), &info) != 0) return {};
    return fault_of(folder, info);
}

std::string file_distrust(const std::string& file, const std::string& trusted) {
    struct stat info{};
    if (lies_in(file, trusted) || lstat(file.c_str(), &info) != 0) return {};
    const std::string fault = fault_of(file, info);
    return fault.empty() ? folder_distrust(fs::absolute(file).parent_path().string(), trusted) : fault;
}

bool make_private_folder(const std::string& folder) {
    std::error_code error;
    const fs::path path = fs::absolute(folder, error);
    if (error || fs::is_directory(path, error)) return !error;
    if (path.has_relative_path() && !make_private_folder(path.parent_path().string())) return false;
    return mkdir(path.c_str(), 0700) == 0 || fs::is_directory(path, error);  // another process may have made it
}

}  // namespace finegemm::os
