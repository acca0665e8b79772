// What the tests of the jit layer share: directories, processes, a compiler that is none. Layer tests.
#pragma once

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "jit/disk_cache.h"
#include "jit/process.h"
#include "jit/toolchain.h"

namespace finegemm::jit::test {

namespace fs = std::filesystem;

inline std::string read_text(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

inline void write_text(const fs::path& path, std::string_view text) { std::ofstream(path, std::ios::binary) << text; }

/// Options with this machine's compilers.
inline Options this_machine() {
    const auto variable = [](const char* name) { return std::string(std::getenv(name) ? std::getenv(name) : ""); };
    Options options;
    options.nvrtc_path = variable("FINEGEMM_NVRTC");
    options.nvcc_path = variable("FINEGEMM_NVCC");
    options.cuda_home = variable("CUDA_HOME");
    options.python_prefix = variable("VIRTUAL_ENV");
    return options;
}

/// Adds a byte to a file, all at once even when several processes do.
inline void tally(const std::string& path) { std::ofstream(path, std::ios::app) << '.' << std::flush; }
inline size_t count(const std::string& path) { return read_text(path).size(); }

/// Runs `body` in a process of its own; the exit status is what it returns.
inline pid_t start(const std::function<int()>& body) {
    const pid_t child = fork();
    if (child == 0) _exit(body());
    return child;
}

/// The exit status, or the signal's number, negated.
inline int finish(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// A shell script that behaves as nvcc does as far as the library can tell, counts its calls and compiles nothing.
class PretendedNvcc {
public:
    explicit PretendedNvcc(const std::string& directory, const std::string& version = "13.0.99")
        : path_(directory + "/nvcc-" + version), tally_(path_ + ".calls") {
        write_text(path_,
                   "#!/bin/sh\n"
                   "if [ \"$1\" = --version ]; then echo 'Cuda compilation tools, release 13.0, V" +
                       version +
                       "'; exit; fi\n"
                       "printf . >> '" +
                       tally_ +
                       "'\n"
                       "while [ \"$1\" != -I ]; do shift; done\n"
                       "if grep -q '#error' \"$3\"; then echo 'kernel.cu(1): error: as asked'; exit 2; fi\n"
                       "sleep 0.2\n"
                       "{ echo 'made by " +
                       version + " of:'; cat \"$3\"; } > \"$5\"\n");
        fs::permissions(path_, fs::perms::owner_all);
    }
    const std::string& path() const { return path_; }
    size_t calls() const { return count(tally_); }

private:
    std::string path_, tally_;
};

}  // namespace finegemm::jit::test
