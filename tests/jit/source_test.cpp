// The printed sources of kernels.
#include <cstdlib>
#include <set>

#include <finegemm/gemm/kernel_plan.h>
#include <fmt/format.h>

#include "engine/pack_contents.h"
#include "jit/digest.h"
#include "jit/kernel_files.h"
#include "ops/ep/source.h"
#include "ops/four_bit/source.h"
#include "ops/gemm/source.h"
#include "ops/mqa/source.h"
#include "ops/prenorm/source.h"
#include "ops/quantize/source.h"
#include "ops/routing/source.h"
#include "ops/scale_layout/source.h"
#include "ops/swiglu/source.h"
#include "ops/topk/source.h"
#include "plan/plan.h"
#include "support.h"

namespace finegemm::jit {
namespace {

using namespace test;

constexpr GemmConfig kExample{.tile_m = 128,
                              .tile_n = 192,
                              .stages = 4,
                              .math_warpgroups = 2,
                              .cluster = 2,
                              .cluster_use = ClusterUse::ShareB,
                              .ctas_per_sm = 1};

TEST(GemmSource, IsAShortReadableText) {
    const fs::path golden = fs::path(FINEGEMM_TEST_DIR) / "golden/gemm_source.cu";
    const KernelSource source = gemm_source(kExample, "m128n192s4w2_shareB2");
    EXPECT_EQ(source.entry, "FineGEMM_e4m3_gemm_m128n192s4w2_shareB2");
    if (std::getenv("FG_UPDATE_GOLDEN")) write_text(golden, source.text);
    EXPECT_EQ(source.text, read_text(golden));
    EXPECT_EQ(source.yield_interval, kernel_plan(kExample).yield_interval);
}

TEST(GemmSource, PrintsEveryConfigurationSoThatAHostCompilerReadsTheSameValue) {
    if (run_process({"c++", "--version"}).status != 0) GTEST_SKIP() << "no C++ compiler here";
    std::string text =
        "#include <finegemm/gemm/config.h>\nusing U = finegemm::ClusterUse;\n"
        "using S = finegemm::ScaleLayout;\nusing G = finegemm::Grouping;\n"
        "using E = finegemm::Element;\nusing B = finegemm::Scaling;\nusing O = finegemm::Output;\nusing F = "
        "finegemm::Finish;\nusing M = finegemm::Major;\n";
    std::vector<GemmConfig> configs = plan::kernels();
    configs.push_back(kExample);
    for (const GemmConfig& c : configs) {
        const auto use = static_cast<uint32_t>(c.cluster_use);
        text += fmt::format(
            "static_assert({} == finegemm::GemmConfig{{{}, {}, {}, {}, {}, U({}), {}, S({}), G({}), {{E({}), B({}), "
            "M({})}}, "
            "{{E({}), B({}), M({})}}, "
            "O({}), F({}), {}, {}}});\n",
            to_source(c), c.tile_m, c.tile_n, c.stages, c.math_warpgroups, c.cluster, use, c.ctas_per_sm,
            static_cast<uint32_t>(c.scales), static_cast<uint32_t>(c.grouping), static_cast<uint32_t>(c.a.element),
            static_cast<uint32_t>(c.a.scaling), static_cast<uint32_t>(c.a.major), static_cast<uint32_t>(c.b.element),
            static_cast<uint32_t>(c.b.scaling), static_cast<uint32_t>(c.b.major), static_cast<uint32_t>(c.output),
            static_cast<uint32_t>(c.finish), c.counts_choices, c.reports_rows);
    }
    const TemporaryDirectory directory;
    const std::string file = directory.path() + "/configs.cpp";
    write_text(file, text);
    const auto result = run_process({"c++", "-std=c++20", "-fsyntax-only", "-I" FINEGEMM_TEST_DIR "/../kernels", file});
    EXPECT_EQ(result.status, 0) << result.output;
}

TEST(GemmSource, OfDifferentKernelsDiffersInTextAndEntry) {
    std::set<std::string> texts, entries;
    for (const KernelSource& s : pack_contents()) {
        EXPECT_TRUE(texts.insert(s.text).second) << s.entry;
        EXPECT_TRUE(entries.insert(s.entry).second) << s.entry;
        EXPECT_NE(s.text.find("\n" + s.entry + "("), std::string::npos) << s.entry;
    }
    constexpr size_t kSchedules = 1, kLists = 1, kSlots = 1, kPeers = PeersConfig::kCount;
    EXPECT_EQ(texts.size(), plan::kernels().size() + add_pieces_configs().size() + kLists + quantize_configs().size() +
                                quantize_columns_configs().size() + reencode_configs().size() +
                                scale_layout_configs().size() + mqa_configs().size() + kSchedules +
                                prenorm_configs().size() + swiglu_configs().size() + routing_sources().size() + kSlots +
                                kPeers + topk_sources().size() + four_bit_configs().size());
}

TEST(KernelFiles, AreTheFilesOfTheKernelsDirectoryByteForByte) {
    const fs::path root = fs::path(FINEGEMM_TEST_DIR) / "../kernels";
    std::set<std::string> on_disk;
    for (const auto& item : fs::recursive_directory_iterator(root))
        if (item.is_regular_file()) on_disk.insert(fs::relative(item.path(), root).string());
    std::set<std::string> embedded;
    for (const auto& [name, text] : kernel_files()) {
        embedded.emplace(name);
        EXPECT_TRUE(text == read_text(root / name)) << name;
    }
    EXPECT_EQ(embedded, on_disk);
}

TEST(Digest, ChangesWithEveryPartAndWithWhereAPartEnds) {
    const std::vector<std::string> names = {digest({"headers", "nvrtc 13.0", "entry", "text"}).hex(),
                                            digest({"header", "nvrtc 13.0", "entry", "text"}).hex(),
                                            digest({"headers", "nvrtc 12.9", "entry", "text"}).hex(),
                                            digest({"headers", "nvrtc 13.0", "other", "text"}).hex(),
                                            digest({"headers", "nvrtc 13.0", "entry", "texT"}).hex(),
                                            digest({"headers", "nvrtc 13.0", "entryt", "ext"}).hex(),
                                            digest({"headers", "nvrtc 13.0", "entrytext", ""}).hex(),
                                            digest({"headers", "nvrtc 13.0", "entrytext"}).hex(),
                                            digest({}).hex()};
    EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
    EXPECT_EQ(digest({"a", "b"}), digest({"a", "b"}));
    EXPECT_EQ(digest({"a"}).hex().size(), 32u);
}

}  // namespace
}  // namespace finegemm::jit
