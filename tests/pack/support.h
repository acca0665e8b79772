// What the tests of the built pack share. Layer tests.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "jit/pack.h"

namespace finegemm::test {

/// Skips where the build was asked for no pack.
class WithPack : public ::testing::Test {
protected:
    void SetUp() override {
        if (jit::embedded_pack().size() == 0) GTEST_SKIP() << "this library was built with FINEGEMM_PACK=none";
    }
};

inline bool updates_goldens() { return std::getenv("FG_UPDATE_GOLDEN") != nullptr; }

inline nlohmann::ordered_json read_json(const std::filesystem::path& path) {
    std::ifstream file(path);
    return nlohmann::ordered_json::parse(file);
}

inline void write_json(const std::filesystem::path& path, const nlohmann::ordered_json& value) {
    std::ofstream(path) << value.dump(1) << '\n';
}

}  // namespace finegemm::test
