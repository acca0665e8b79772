// What the tests of the built pack share. Layer tests.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "jit/pack.h"

namespace finegemm::test {

/// For each pack of the library, by the major version of CUDA.
class WithPack : public ::testing::TestWithParam<int> {
protected:
    jit::Pack pack = jit::embedded_pack(GetParam());
};

inline std::vector<int> packs() {
    std::vector<int> versions;
    for (const jit::EmbeddedPack& p : jit::embedded_packs()) versions.push_back(p.cuda);
    return versions;
}

inline bool updates_goldens() { return std::getenv("FG_UPDATE_GOLDEN") != nullptr; }

inline nlohmann::ordered_json read_json(const std::filesystem::path& path) {
    std::ifstream file(path);
    return nlohmann::ordered_json::parse(file);
}

inline void write_json(const std::filesystem::path& path, const nlohmann::ordered_json& value) {
    std::ofstream(path) << value.dump(1) << '\n';
}

}  // namespace finegemm::test
