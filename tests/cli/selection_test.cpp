// run, bench and explain of selections. Layer tests.
#include <gtest/gtest.h>

#include <string>

#include <nlohmann/json.hpp>

#include "cli/bench/indexer/selection.h"
#include "cli/support.h"
#include "support/error_of.h"

namespace finegemm::test {
namespace {

using nlohmann::json;

TEST(SelectionShape, IsReadFromTheLineOfALog) {
    const TopkShape numbers = cli::parse_selection("topk 2048 of 4096x32768 sorted histogram");
    EXPECT_EQ(std::tuple(numbers.k, numbers.rows(), numbers.keys), std::tuple(2048, 4096, 32768));
    EXPECT_TRUE(numbers.of_numbers() && numbers.sorted && numbers.histogram && !numbers.logits);
    const TopkShape rows = cli::parse_selection("mqa_topk 7 of 20x90 8x32 abs logits untouched");
    EXPECT_EQ(std::tuple(rows.k, rows.queries, rows.keys, rows.heads, rows.dim), std::tuple(7, 20, 90, 8, 32));
    EXPECT_TRUE(rows.relu == Relu::Abs && rows.form == LogitsForm::Untouched && rows.logits && !rows.paged);
    const TopkShape pages = cli::parse_selection("paged_mqa_topk 0 of 256x2x8192 64x128 page16 exact histogram");
    EXPECT_EQ(std::tuple(pages.k, pages.requests, pages.queries, pages.keys, pages.page_size),
              std::tuple(0, 256, 2, 8192, 16));
    EXPECT_TRUE(pages.paged && pages.histogram && !pages.sorted);
}

TEST(SelectionShape, OfAnotherTextIsRefused) {
    for (const char* line : {"topk 8", "topk 8 of 8", "topk 8 in 8x8", "topk -1 of 8x8", "topk 8 of 8x8 logits",
                             "topk 8 of 8x8 abs", "topk 8 of 8x8 8x32", "topk 8 of 8x8 page16", "mqa_topk 8 of 8x8",
                             "mqa_topk 8 of 8x8 8", "mqa_topk 8 of 8x8x8 8x32", "mqa_topk 8 of 8x8 8x32 page16",
                             "mqa_topk 8 of 9x8 8x32", "paged_mqa_topk 8 of 8x8 8x32"}) {
        const Error e = error_of([&] { cli::parse_selection(line); });
        EXPECT_EQ(e.code(), Errc::InvalidArgument);
        EXPECT_TRUE(contains(e, std::string("shape '") + line + "': ")) << e.what();
    }
    EXPECT_FALSE(cli::is_selection("topk"));
}

TEST(RunSelection, IsRight) {
    for (const char* line :
         {"topk 40 of 3x700 sorted histogram", "topk 900 of 2x700", "mqa_topk 9 of 20x90 8x32 histogram",
          "mqa_topk 60 of 5x70 32x64 abs sorted logits", "paged_mqa_topk 30 of 3x2x100 16x32 page4",
          "paged_mqa_topk 0 of 2x5x70 64x64 page32 histogram logits untouched"}) {
        const Ran ran = finegemm("run '" + std::string(line) + "' --device cpu --repeats 1 --json");
        ASSERT_EQ(ran.code, 0) << line << '\n' << ran.err << ran.out;
        const json out = json::parse(ran.out);
        EXPECT_EQ(out.at("line"), line);
        EXPECT_TRUE(out.at("right").get<bool>()) << line;
        EXPECT_GT(out.at("check").at("rows").get<int64_t>(), 0);
        EXPECT_EQ(out.at("tflop_per_s").get<double>() > 0, line[0] != 't');
    }
}

TEST(RunSelection, HasTheTrafficOfItsWork) {
    const json numbers = json::parse(finegemm("run 'topk 5 of 3x40 histogram' --device cpu --json").out);
    EXPECT_NEAR(numbers.at("gb_per_s").get<double>() * numbers.at("us").get<double>() * 1e3, 3 * (40 + 5 + 256) * 4,
                1e-3);
    const json rows = json::parse(finegemm("run 'mqa_topk 3 of 2x4 8x32' --device cpu --json").out);
    EXPECT_NEAR(rows.at("gb_per_s").get<double>() * rows.at("us").get<double>() * 1e3,
                2 * 8 * (32 + 4) + 4 * (32 + 4) + 2 * 3 * 4, 1e-3);
}

TEST(RunSelection, SaysWhatItIs) {
    const Ran ran = finegemm("run 'topk 5 of 3x40' --device cpu --repeats 2");
    ASSERT_EQ(ran.code, 0) << ran.err;
    for (const char* part :
         {"call     topk 5 of 3x40\n", " (median of 2), ", "check    3 rows against a sort\n", "result   right\n"})
        EXPECT_NE(ran.out.find(part), std::string::npos) << part << '\n' << ran.out;
    EXPECT_EQ(ran.out.find("FLOP/s"), std::string::npos) << ran.out;
}

TEST(RunSelection, RefusesWhatNoCallMayHave) {
    for (const auto& [arguments, message] :
         {std::pair("run 'topk 2049 of 1x9000' --device cpu", "indices: has k = 2049 columns"),
          {"run 'topk 0 of 1x9' --device cpu", "indices: is left out, and so is histogram"},
          {"run 'mqa_topk 8 of 2x8 8x32 logits compressed' --device cpu", "form: is compressed"},
          {"run 'mqa_topk 8 of 2x8 8x32' --groups 4", "--groups 4 --form offsets: is for gemm"},
          {"explain 'mqa_topk 8 of 2x8 12x32'", "q: has H = 12 heads, must be 8, 16, 32 or 64"},
          {"tune --shapes 'topk 4 of 2x80'", "shapes: 'topk 4 of 2x80' has no kernels that a plan table chooses from"},
          {"explain 'topk 0 of 1x9'", "k: is 0, and histograms are not asked for"}}) {
        const Ran ran = finegemm(arguments);
        EXPECT_EQ(ran.code, 2) << arguments << '\n' << ran.err;
        EXPECT_NE(ran.err.find(message), std::string::npos) << arguments << '\n' << ran.err;
    }
}

TEST(ExplainSelection, NamesTheKernelAndSaysWhy) {
    const std::pair<const char*, std::vector<const char*>> cases[] = {
        {"topk 2048 of 4096x32768 sorted",
         {" on h200: FineGEMM_topk_c1\n",
          "a CTA keeps 8192 columns in shared memory; of 32768 it looks at a sample, and then lists what may be",
          "clusters of 1 CTAs of 512 threads, "}},
        {"topk 9 of 1x32768",
         {"FineGEMM_topk_few_c8\n", "1 row is few for 132 SMs: a cluster of 8, which keeps 131072 columns, has each"}},
        {"topk 9 of 33x200000",
         {"FineGEMM_topk_c4\n",
          "a cluster of 4 keeps 32768 columns in shared memory; of 200000 it looks at a sample, and then lists",
          "; fewer CTAs for each of 33 rows would leave some of 132 SMs idle"}},
        {"topk 9 of 1x1000000", {"FineGEMM_topk_c8\n", "; fewer CTAs would take more than 131072 of them each"}},
        {"mqa_topk 2048 of 4096x32768 64x128 abs",
         {"logits of 2048 queries at once take 256 MiB: of 4096 queries that is 2 steps, each of two launches",
          "logits are of FineGEMM_mqa_logits_h64_d128_abs"}},
        {"paged_mqa_topk 2048 of 3x2x100 64x64 page16 logits",
         {"logits of all queries are asked for", "FineGEMM_paged_mqa_logits_h64_d64"}}};
    for (const auto& [line, parts] : cases) {
        const Ran ran = finegemm("explain '" + std::string(line) + "' --device h200");
        ASSERT_EQ(ran.code, 0) << ran.err;
        for (const char* part : parts) EXPECT_NE(ran.out.find(part), std::string::npos) << part << '\n' << ran.out;
    }
}

TEST(BenchSelection, HasALineEach) {
    const Ran ran = finegemm("bench --device cpu --repeats 1 --shapes 'topk 4 of 2x80,mqa_topk 5 of 2x40 8x32'");
    ASSERT_EQ(ran.code, 0) << ran.err;
    for (const char* line : {"  topk 4 of 2x80\n", "  mqa_topk 5 of 2x40 8x32\n"})
        EXPECT_NE(ran.out.find(line), std::string::npos) << ran.out;
}

}  // namespace
}  // namespace finegemm::test
