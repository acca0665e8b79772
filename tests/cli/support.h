// Files and runs of the command line tool, for its tests. Layer tests.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace finegemm::test {

inline std::string read_text(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_text(const std::filesystem::path& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
}

class TemporaryDirectory {
public:
    TemporaryDirectory() {
        std::string name = (std::filesystem::temp_directory_path() / "finegemm-cli-XXXXXX").string();
        path_ = mkdtemp(name.data());
    }
    ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
    std::string operator/(const std::string& name) const { return (path_ / name).string(); }
    std::string string() const { return path_.string(); }

private:
    std::filesystem::path path_;
};

/// A .npy file of version 1 with this header.
inline std::string npy(const std::string& header, const std::string& data) {
    const auto length = static_cast<uint16_t>(header.size());
    return std::string("\x93NUMPY\x01\x00", 8) + std::string(reinterpret_cast<const char*>(&length), 2) + header + data;
}
inline std::string npy(const std::string& descr, const std::string& shape, const std::string& data) {
    return npy("{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + shape + "), }\n", data);
}

inline std::string safetensors(const std::string& header, const std::string& data) {
    const uint64_t length = header.size();
    return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

/// How a run of the tool ended and what it wrote.
struct Ran {
    int code = -1;
    std::string out, err;
};

/// Runs `finegemm arguments` with no variables but these, what sanitizers need, and the Python environment, which has
/// NVRTC. Without a driver, unless one of them names one.
inline Ran finegemm(const std::string& arguments, const std::string& variables = {}) {
    static const TemporaryDirectory cache;  // builds without packs compile a kernel once
    const TemporaryDirectory directory;
    std::string command = "env -i HOME='" + directory.string() + "' XDG_CACHE_HOME='" + cache.string() +
                          "' FINEGEMM_DRIVER=/nonexistent/libcuda.so";
    for (const char* name : {"ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS", "VIRTUAL_ENV"})
        if (const char* value = std::getenv(name)) command += std::string(" ") + name + "='" + value + "'";
    command += " FINEGEMM_CPU_THREADS=2 " + variables + " '" FINEGEMM_CLI_PATH "' >'" + directory / "out" + "' 2>'" +
               directory / "err" + "' </dev/null " + arguments;
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_text(directory / "out"), read_text(directory / "err")};
}

/// What `doctor` says of something.
inline bool has(const std::string& what, const std::string& variables) {
    const auto report = nlohmann::json::parse(finegemm("doctor --json", variables).out);
    for (const auto& f : report.at("findings"))
        if (f.at("what") == what) return f.at("state") == "ok";
    return false;
}

inline std::string replaced(std::string text, const std::string& what, const std::string& by) {
    for (size_t at = 0; !what.empty() && (at = text.find(what, at)) != std::string::npos; at += by.size())
        text.replace(at, what.size(), by);
    return text;
}

/// Every number becomes '#', and units lose their prefix: for what differs from run to run.
inline std::string without_numbers(const std::string& text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
        const bool digit = text[i] >= '0' && text[i] <= '9';
        const bool inside = !out.empty() && out.back() == '#' &&
                            (text[i] == '.' || (text[i] == 'e' && (text[i + 1] == '-' || text[i + 1] == '+')));
        if (inside && text[i] == 'e') ++i;
        if (!digit && !inside) out += text[i];
        else if (out.empty() || out.back() != '#') out += '#';
    }
    for (const std::string unit : {"s ", "FLOP/s", "B/s"})
        for (const char prefix : {'u', 'm', 'M', 'G', 'T'})
            out = replaced(out, std::string("# ") + prefix + unit, "# " + unit);
    return out;
}

/// Compares with tests/golden/cli/NAME.txt; FG_UPDATE_GOLDEN=1 writes it.
inline void expect_golden(const std::string& name, const std::string& text) {
    const std::filesystem::path path = std::filesystem::path(FINEGEMM_TEST_DIR) / "golden/cli" / (name + ".txt");
    if (std::getenv("FG_UPDATE_GOLDEN")) write_text(path, text);
    ASSERT_TRUE(std::filesystem::exists(path)) << path << " is missing; FG_UPDATE_GOLDEN=1 writes it";
    EXPECT_EQ(text, read_text(path)) << "FG_UPDATE_GOLDEN=1 rewrites " << path;
}

}  // namespace finegemm::test
