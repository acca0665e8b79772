// Every kernel that a call can choose, as the pack's compiler made it: what it takes of an SM, and its machine code.
// FG_UPDATE_GOLDEN=1 records both.
#include <fmt/format.h>

#include <finegemm/gemm/kernel_plan.h>

#include "engine/pack_contents.h"
#include "ops/ep/source.h"
#include "ops/four_bit/source.h"
#include "ops/gemm/source.h"
#include "ops/mqa/source.h"
#include "ops/prenorm/source.h"
#include "ops/routing/source.h"
#include "ops/topk/source.h"
#include "plan/plan.h"
#include "support.h"

namespace finegemm {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

const fs::path kBudget = fs::path(FINEGEMM_TEST_DIR) / "golden/kernel_budget.json";
const fs::path kText = fs::path(FINEGEMM_TEST_DIR) / "golden/kernel_text.json";

/// What a compiler said of the kernels of this build's pack; one that was taken from another build has its report
/// there.
class EveryKernel : public test::WithPack {
protected:
    void SetUp() override {
        const std::string file = fmt::format("{}/kernels_{}.json", FINEGEMM_GENERATED_DIR, GetParam());
        if (!fs::exists(file)) GTEST_SKIP() << "the pack was taken from another build";
        report = test::read_json(file);
    }
    ordered_json report;
};
INSTANTIATE_TEST_SUITE_P(Cuda, EveryKernel, testing::ValuesIn(test::packs()), testing::PrintToStringParamName());
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EveryKernel);  // a build with FINEGEMM_PACK=none

ordered_json budget_of(const ordered_json& report) {
    ordered_json taken;
    for (const auto& [entry, kernel] : report["kernels"].items())
        taken[entry] = {{"registers", kernel["registers"]}, {"smem", 0}};
    for (const GemmConfig& config : plan::kernels())
        taken[jit::gemm_entry(config, plan::name_of(config))]["smem"] = kernel_plan(config).smem.total;
    for (const MqaConfig& config : jit::mqa_configs())
        taken[jit::source_of(config).entry]["smem"] = config.smem_bytes();
    for (const PrenormConfig& config : jit::prenorm_configs())
        taken[jit::source_of(config).entry]["smem"] = config.smem_bytes();
    for (const FourBitConfig& config : jit::four_bit_configs())
        taken[jit::source_of(config).entry]["smem"] = config.smem_bytes();
    for (const RouteConfig config : {RouteConfig{1}, RouteConfig{RouteConfig::kMostCtas}})
        taken[jit::source_of(config).entry]["smem"] = config.smem_bytes();
    for (const PeersConfig config : {PeersConfig{false}, PeersConfig{true}})
        taken[jit::source_of(config).entry]["smem"] = config.smem_bytes();
    for (const jit::KernelSource& source : jit::topk_sources())
        taken[source.entry]["smem"] =
            TopkConfig{source.entry.back() == '1' ? 1u : 8u, source.entry.find("few") != std::string::npos}
                .smem_bytes();
    return taken;
}

TEST_P(EveryKernel, NeitherSpillsNorHasItsWgmmaSerialised) {
    EXPECT_EQ(report["kernels"].size(), pack_contents().size());
    for (const auto& [entry, kernel] : report["kernels"].items()) {
        EXPECT_GT(kernel["registers"], 0) << entry;
        EXPECT_EQ(kernel["spill_bytes"], 0) << entry;
        EXPECT_EQ(kernel["serialised"], false) << entry;
    }
}

/// What either of two compilers takes.
ordered_json larger(ordered_json taken, const ordered_json& other) {
    for (auto& [entry, kernel] : taken.items())
        kernel["registers"] = std::max(kernel["registers"].get<int>(), other[entry]["registers"].get<int>());
    return taken;
}

TEST_P(EveryKernel, StaysWithinItsBudgetOfRegistersAndSharedMemory) {
    const ordered_json taken = budget_of(report);
    if (test::updates_goldens())
        test::write_json(kBudget,
                         GetParam() == test::packs().front() ? taken : larger(taken, test::read_json(kBudget)));
    const ordered_json budget = test::read_json(kBudget);
    EXPECT_EQ(taken.size(), budget.size()) << "FG_UPDATE_GOLDEN=1 removes kernels that are no more";
    for (const auto& [entry, kernel] : taken.items()) {
        ASSERT_TRUE(budget.contains(entry)) << entry << " has no budget; FG_UPDATE_GOLDEN=1 records one";
        EXPECT_LE(kernel["registers"], budget[entry]["registers"]) << entry;
        EXPECT_LE(kernel["smem"], budget[entry]["smem"]) << entry;
    }
}

/// A change that should not touch kernels leaves their machine code as it was; one that does carries timings of those
/// that this test names.
TEST_P(EveryKernel, HasTheMachineCodeThatWasRecorded) {
    const std::string compiler = report["compiler"];
    ordered_json golden = test::read_json(kText), text;
    for (const auto& [entry, kernel] : report["kernels"].items()) text[entry] = kernel["text"];
    if (test::updates_goldens()) {
        golden[compiler] = text;
        test::write_json(kText, golden);
    }
    if (!golden.contains(compiler)) GTEST_SKIP() << "no machine code is recorded for " << compiler;
    const ordered_json& recorded = golden[compiler];
    for (const auto& [entry, digest] : text.items())
        EXPECT_EQ(recorded.value(entry, "none"), digest)
            << entry << ": time it, then record with FG_UPDATE_GOLDEN=1 (CONTRIBUTING.md)";
    for (const auto& [entry, digest] : recorded.items()) EXPECT_TRUE(text.contains(entry)) << entry << " is no more";
}

}  // namespace
}  // namespace finegemm
