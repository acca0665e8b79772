// Every decision about every kernel, as a golden file: FG_UPDATE_GOLDEN=1 records it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "plan/describe.h"
#include "plan/plan.h"

namespace finegemm::plan {
namespace {

const std::filesystem::path kGolden = std::filesystem::path(FINEGEMM_TEST_DIR) / "golden/kernel_plan.json";

/// A kernel a line, so that a change of one decision reads as the lines of the kernels that it concerns.
std::string plans_of_all_kernels() {
    std::string text = "{";
    for (const GemmConfig& config : kernels())
        text += (text.size() > 1 ? ",\n" : "\n") + nlohmann::json(name_of(config)).dump() + ": " +
                describe(kernel_plan(config)).dump();
    return text + "\n}\n";
}

TEST(KernelPlan, OfEveryKernelIsTheOneThatWasRecorded) {
    const std::string plans = plans_of_all_kernels();
    if (std::getenv("FG_UPDATE_GOLDEN") != nullptr) std::ofstream(kGolden) << plans;
    std::ifstream file(kGolden);
    const std::string recorded{std::istreambuf_iterator<char>(file), {}};
    EXPECT_EQ(recorded, plans) << "FG_UPDATE_GOLDEN=1 records it; kernels whose plan changed have to be timed";
}

TEST(KernelPlan, NamesEveryDecisionThatAKernelCanHave) {
    const auto json = nlohmann::json::parse(plans_of_all_kernels());
    std::set<std::string> words[4];
    for (const auto& plan : json)
        for (size_t i = 0; const char* field : {"producers", "scales", "promotion", "store"})
            words[i++].insert(plan.at(field));
    EXPECT_EQ(words[0], (std::set<std::string>{"warp roles", "round-robin"}));
    EXPECT_EQ(words[1], (std::set<std::string>{"async", "vector", "split", "split vector", "mx", "none"}));
    EXPECT_EQ(words[2],
              (std::set<std::string>{"block scale", "row scale", "tensor core", "mx", "mx products", "none"}));
    EXPECT_EQ(words[3], (std::set<std::string>{"strip", "tma", "source tile", "split-k", "registers"}));
}

}  // namespace
}  // namespace finegemm::plan
