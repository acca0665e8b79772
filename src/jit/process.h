// Running another program, and files for it. Layer jit.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace finegemm::jit {

struct ProcessResult {
    int status = -1;     // exit status; -1: could not be started or was killed
    std::string output;  // of stdout and stderr together
};

/// Runs a program, found through PATH if its name has no slash, without a shell, and waits for it.
ProcessResult run_process(const std::vector<std::string>& arguments);

/// Writes all of a file, into directories that are made for it. Throws Error(Io).
void write_file(const std::string& path, std::string_view bytes);

/// A directory of this process's own, removed with everything in it.
class TemporaryDirectory {
public:
    /// Throws Error(Io).
    TemporaryDirectory();
    ~TemporaryDirectory();
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
    const std::string& path() const { return path_; }

private:
    std::string path_;
};

}  // namespace finegemm::jit
