// A folder of the test's own, which is gone with it: what lies in /tmp itself could be somebody else's. Layer tests.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

namespace finegemm::test {

class PrivateFolder {
public:
    PrivateFolder() {
        if (!mkdtemp(path_.data())) throw std::runtime_error("cannot make " + path_);
    }
    ~PrivateFolder() {
        std::error_code error;
        std::filesystem::remove_all(path_, error);
    }
    PrivateFolder(const PrivateFolder&) = delete;
    PrivateFolder& operator=(const PrivateFolder&) = delete;
    const std::string& path() const { return path_; }

private:
    std::string path_ = testing::TempDir() + "finegemm-XXXXXX";
};

}  // namespace finegemm::test
