// The log of calls: its lines, its summary, and that commands take both. Layer tests.
#include <gtest/gtest.h>

#include <thread>

#include "cli/log.h"
#include "cli/support.h"
#include "support/error_of.h"

namespace finegemm::test {

using cli::CallLog;

namespace {

const std::string kLine = "gemm 8x16x128 e4m3:row128 e4m3:block128 bf16";

LoggedCall call(const std::string& line, double us) {
    LoggedCall c;
    c.line = line, c.kernel = "m64n128s6w1", c.origin = "pack", c.device = {DeviceType::Cuda, 1}, c.host_us = us;
    return c;
}

/// What a log writes to a file, to which `before` was written before.
template <typename Use>
std::string written(const std::string& what, const Use& use, const std::string& before = {}) {
    const TemporaryDirectory directory;
    write_text(directory / "log", before);
    {
        CallLog log(what + ":" + directory / "log");
        use(log);
    }
    return read_text(directory / "log");
}

}  // namespace

TEST(Log, HasALineForEachCallAndASummaryOfShapes) {
    const std::string text = written("calls", [](CallLog& log) {
        log.add(call("quantize_rows 8x128 bf16", 2));
        log.add(call(kLine, 3));
        log.add(call(kLine, 4.5));
    });
    EXPECT_EQ(text, "# quantize_rows 8x128 bf16: cuda:1, m64n128s6w1, pack, 2.00 us\n" + kLine +
                        "  # cuda:1, m64n128s6w1, pack, 3.00 us\n" + kLine +
                        "  # cuda:1, m64n128s6w1, pack, 4.50 us\n# 3 calls of 2 shapes\n" + kLine +
                        "  # 2 calls, 7.50 us of the host, m64n128s6w1\n# quantize_rows 8x128 bf16: 1 call, 2.00 us "
                        "of the host, m64n128s6w1\n");
}

TEST(Log, OfShapesIsTheSummaryAloneBehindWhatTheFileHad) {
    const auto twice = [](CallLog& log) {
        log.add(call(kLine, 1));
        log.finish();
        log.finish();
    };
    EXPECT_EQ(written("shapes", twice, "before\n"),
              "before\n# 1 call of 1 shape\n" + kLine + "  # 1 call, 1.00 us of the host, m64n128s6w1\n");
    EXPECT_EQ(written("shapes", [](CallLog&) {}), "");
}

TEST(Log, OfManyThreadsLosesNoCall) {
    const std::string text = written("calls", [](CallLog& log) {
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; ++t)
            threads.emplace_back([&log] {
                for (int i = 0; i < 100; ++i) log.add(call(kLine, 1));
            });
        for (std::thread& t : threads) t.join();
    });
    EXPECT_NE(text.find("# 400 calls of 1 shape\n"), text.npos);
    EXPECT_EQ(std::ranges::count(text, '\n'), 402);
}

TEST(Log, RefusesWhatItDoesNotKnow) {
    for (const char* wish : {"", "all", "calls:", "/tmp/log"})
        EXPECT_EQ(error_of([&] { CallLog log{wish}; }).code(), Errc::InvalidArgument) << wish;
    const Error e = error_of([] { CallLog log{"calls:/nowhere/log"}; });
    EXPECT_EQ(e.code(), Errc::Io);
    EXPECT_STREQ(e.what(), "log: /nowhere/log cannot be written: No such file or directory; name another file");
}

TEST(Log, OfARunIsWrittenToStandardErrorAndRunsAgain) {
    const Ran ran = finegemm("run 8 16 128 --device cpu --repeats 2 --log calls");
    ASSERT_EQ(ran.code, 0) << ran.err;
    EXPECT_EQ(ran.out.find("gemm "), ran.out.npos);
    const size_t begin = ran.err.find("gemm "), end = ran.err.find('\n', begin);
    ASSERT_NE(begin, ran.err.npos) << ran.err;
    const std::string line = ran.err.substr(begin, end - begin);
    EXPECT_TRUE(line.starts_with(kLine + "  # cpu, fast, ")) << line;
    EXPECT_NE(ran.err.find("3 calls"), ran.err.npos) << ran.err << "two runs, and one before them";
    EXPECT_NE(ran.err.find("# quantize_rows 8x128 f32: "), ran.err.npos) << ran.err;
    const Ran again = finegemm("run --device cpu --repeats 1 '" + line + "'");
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_NE(again.out.find("D[8, 16] = A[8, 128]"), again.out.npos) << again.out;
}

TEST(Log, OfAVariableIsWhatBenchMeasures) {
    const TemporaryDirectory directory;
    const std::string file = directory / "calls.txt", variable = "FINEGEMM_LOG='calls:" + file + "'";
    ASSERT_EQ(finegemm("run 8 16 128 --device cpu --repeats 2", variable).code, 0);
    ASSERT_EQ(finegemm("run 'gemm 96x16x256 groups=2' --device cpu --repeats 1", variable).code, 0);
    const Ran bench = finegemm("bench --device cpu --repeats 1 --json --file '" + file + "'");
    ASSERT_EQ(bench.code, 0) << bench.err;
    const auto rows = nlohmann::json::parse(bench.out).at("rows");
    ASSERT_EQ(rows.size(), 2u) << "each shape once";
    EXPECT_EQ(rows[0].at("problem"), kLine);
    EXPECT_EQ(rows[1].at("groups"), 2);
}

TEST(Log, WithALineThatIsNoProductIsAnErrorOfTheFile) {
    const TemporaryDirectory directory;
    write_text(directory / "log", "# a comment\n\n8x16x128\ngemm 8x16\n");
    const Ran ran = finegemm("bench --device cpu --file '" + directory / "log" + "'");
    EXPECT_EQ(ran.code, 1);
    EXPECT_NE(ran.err.find("log: line 4: problem: 'gemm 8x16' is not understood"), ran.err.npos) << ran.err;
    const Ran wish = finegemm("run 8 16 128 --log loud");
    EXPECT_EQ(wish.code, 2);
    EXPECT_NE(wish.err.find("log: is 'loud', must be calls or shapes"), wish.err.npos) << wish.err;
}

}  // namespace finegemm::test
