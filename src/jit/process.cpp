// Running another program, and files for it. Layer jit.
#include "jit/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include <finegemm/error.h>

extern char** environ;

namespace finegemm::jit {

ProcessResult run_process(const std::vector<std::string>& arguments) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return {-1, std::strerror(errno)};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    std::vector<char*> argv;
    argv.reserve(arguments.size() + 1);
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    pid_t child = 0;
    const int error = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    ProcessResult result;
    if (error != 0) {
        close(ends[0]);
        return {-1, std::strerror(error)};
    }
    char buffer[4096];
    for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) != 0;) {
        if (n > 0) result.output.append(buffer, static_cast<size_t>(n));
        else if (errno != EINTR) break;
    }
    close(ends[0]);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    if (WIFEXITED(status)) result.status = WEXITSTATUS(status);
    return result;
}

void write_file(const std::string& path, std::string_view bytes) {
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
    std::ofstream file(path, std::ios::binary);
    file << bytes;
    file.close();  // what is buffered may fail only now
    if (!file) throw Error(Errc::Io, fmt::format("{}: cannot be written; check the path and the space there", path));
}

TemporaryDirectory::TemporaryDirectory() {
    std::error_code error;
    path_ = (std::filesystem::temp_directory_path(error) / "finegemm-XXXXXX").string();
    if (!mkdtemp(path_.data()))
        throw Error(Errc::Io, fmt::format("cannot make a directory {}: {}", path_, std::strerror(errno)));
}

TemporaryDirectory::~TemporaryDirectory() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
}

}  // namespace finegemm::jit
