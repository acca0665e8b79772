// finegemm tune, and the commands that show what its table does. Layer tests.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/support.h"

namespace finegemm::test {

namespace {

using nlohmann::json;

const std::string kMock = "FINEGEMM_DRIVER='" FINEGEMM_MOCK_DRIVER "'";

/// Variables with which this kernel of the mock GPU is faster than all others, which take a millisecond.
std::string fast(const std::string& kernel) {
    const std::string entry = "FineGEMM_e4m3_gemm_" + kernel;
    return kMock + " FINEGEMM_MOCK_KERNEL_US=" + entry + "=800," + entry + "_rows=800";
}

class Tune : public testing::Test {
protected:
    void SetUp() override {
        const Ran doctor = finegemm("doctor", kMock);  // which takes no code newer than its CUDA
        for (const char* source : {"\npack       ok", "\nnvrtc      ok"})
            if (doctor.out.find(source) != std::string::npos) return;
        GTEST_SKIP() << "this build has no pack and finds no NVRTC: a mock GPU gets no kernels";
    }
    Ran tune(const std::string& arguments, const std::string& variables) const {
        return finegemm("tune --repeats 1 --top 3 --output '" + table + "' " + arguments, variables);
    }
    json chosen(const std::string& arguments, const std::string& variables = {}) const {
        const Ran ran = finegemm("explain --json " + arguments, variables);
        EXPECT_EQ(ran.code, 0) << ran.err;
        return json::parse(ran.out).at("chosen");
    }
    /// The kernels that --top 3 measures for a shape, the usual one first.
    std::vector<std::string> measured(const std::string& shape) const {
        const json plan = json::parse(finegemm("explain --json --device h200 " + shape).out);
        std::vector<std::string> names{plan.at("chosen").at("name")};
        for (const json& row : plan.at("candidates"))
            if (names.size() < 3 && row.at("name") != names[0]) names.push_back(row.at("name"));
        return names;
    }

    const TemporaryDirectory directory;
    const std::string table = directory / "table.json";
};

}  // namespace

TEST_F(Tune, RecordsTheFastestKernelAndCallsFollowIt) {
    const std::string usual = measured("64 576 1024")[0], other = measured("64 576 1024")[2];
    const Ran ran = tune("--shapes 64x576x1024 --json", fast(other));
    ASSERT_EQ(ran.code, 0) << ran.err;
    const json row = json::parse(ran.out).at("rows").at(0);
    EXPECT_EQ(row.at("fastest"), other);
    EXPECT_EQ(row.at("usual"), usual);
    EXPECT_TRUE(row.at("recorded").get<bool>());
    EXPECT_NEAR(row.at("gain").get<double>(), 0.25, 1e-4);
    EXPECT_EQ(row.at("us").size(), 3u);

    for (const auto& [arguments, variables] :
         {std::pair{"--device h200 --plan-table '" + table + "'", std::string()},
          std::pair{std::string(), kMock + " FINEGEMM_PLAN_TABLE='" + table + "'"}}) {
        EXPECT_EQ(chosen("64 576 1024 " + arguments, variables).at("name"), other);
        EXPECT_EQ(chosen("64 576 1024 " + arguments, variables).at("source"), "user table");
        EXPECT_EQ(chosen("65 576 1024 " + arguments, variables).at("source"), "model");
    }
    EXPECT_EQ(chosen("64 576 1024 --device h200", "FINEGEMM_PLAN_TABLE='" + table + "'").at("source"), "model")
        << "a device by name has nothing of the environment";
    const Ran bench = finegemm("bench --json --repeats 1 --shapes 64x576x1024",
                               kMock + " FINEGEMM_MOCK_COMPUTES=1 FINEGEMM_PLAN_TABLE='" + table + "'");
    ASSERT_EQ(bench.code, 0) << bench.err;
    EXPECT_EQ(json::parse(bench.out).at("rows").at(0).at("kernel"), other);
}

TEST_F(Tune, TakesLinesOfProblemsFromAFileAsFromTheCommandLine) {
    const std::string line = "gemm 100x576x1024 groups=4 alignment=64";
    write_text(directory / "shapes.json", R"([")" + line + R"(", [64, 576, 1024]])");
    const Ran by_file = tune("--json --file '" + directory / "shapes.json" + "'", kMock),
              by_words = tune("--json --shapes '" + line + ",64x576x1024'", kMock);
    ASSERT_EQ(by_file.code, 0) << by_file.err;
    EXPECT_EQ(by_file.out, by_words.out);
    const json rows = json::parse(by_file.out).at("rows");
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_EQ(rows[0].at("problem"), "gemm 100x576x1024 e4m3:row128 e4m3:block128 bf16 groups=4 alignment=64");
    EXPECT_EQ(rows[0].at("kind"), "grouped");
    EXPECT_EQ(rows[1].at("kind"), "dense");
}

TEST_F(Tune, PrintsALineForEachShapeAndWhatToDoWithTheTable) {
    const std::string other = measured("64 576 1024")[1];
    const Ran ran = tune("--shapes 64x576x1024,65x576x1024", fast(other));
    ASSERT_EQ(ran.code, 0) << ran.err;
    EXPECT_EQ(ran.err, "") << "progress is for terminals";
    EXPECT_NE(ran.out.find("\n     64     576    1024  " + other), std::string::npos) << ran.out;
    EXPECT_NE(ran.out.find(" 800 us  "), std::string::npos) << ran.out;
    EXPECT_NE(ran.out.find("1.00 ms   25.0%\n"), std::string::npos) << ran.out;
    EXPECT_NE(ran.out.find("\n     65     576    1024  "), std::string::npos) << ran.out;
    EXPECT_NE(ran.out.find("of 2 shapes have an entry in " + table + "; FINEGEMM_PLAN_TABLE=" + table),
              std::string::npos)
        << ran.out;
}

TEST_F(Tune, DropsAnEntryThatDoesNotHoldAnyMore) {
    const auto kernels = measured("64 576 1024");
    ASSERT_EQ(tune("--shapes 64x576x1024", fast(kernels[1])).code, 0);
    EXPECT_EQ(chosen("64 576 1024 --device h200 --plan-table '" + table + "'").at("source"), "user table");
    ASSERT_EQ(tune("--shapes 64x576x1024", fast(kernels[0])).code, 0);
    EXPECT_EQ(chosen("64 576 1024 --device h200 --plan-table '" + table + "'").at("source"), "model");
}

TEST_F(Tune, DoesNotFollowTheTableThatItRenews) {
    const auto kernels = measured("64 576 1024");
    ASSERT_EQ(tune("--shapes 64x576x1024", fast(kernels[1])).code, 0);
    const Ran ran = finegemm("tune --repeats 1 --top 2 --shapes 64x576x1024 --json",
                             fast(kernels[1]) + " FINEGEMM_PLAN_TABLE='" + table + "'");
    ASSERT_EQ(ran.code, 0) << ran.err;
    const json out = json::parse(ran.out);
    EXPECT_EQ(out.at("plan_table"), table) << "the variable names the output, too";
    EXPECT_EQ(out.at("rows").at(0).at("usual"), kernels[0]);
}

TEST_F(Tune, MendsATableThatCallsCannotFollowAnyMore) {
    write_text(table, R"({"format": 2, "device": "h200", "sms": 132, "version": "0.0.1", "entries": [)"
                      R"({"problem": "gemm 1x8x16", "kernel": "m1n1", "us": 1, "usual": "m2n2", "usual_us": 2}]})");
    const std::string variables = kMock + " FINEGEMM_MOCK_COMPUTES=1 FINEGEMM_PLAN_TABLE='" + table + "'";
    EXPECT_EQ(finegemm("bench --device cuda --repeats 1 --shapes 64x576x1024", variables).code, 1);
    EXPECT_EQ(finegemm("tune --repeats 1 --top 1 --shapes 64x576x1024", variables).code, 0);
    EXPECT_EQ(finegemm("bench --device cuda --repeats 1 --shapes 64x576x1024", variables).code, 0);
}

TEST_F(Tune, TakesTheOptionsOfCallsIntoTheEntry) {
    const std::string options = "--batch-invariant --num-sms 100 --shapes 64x576x1024";
    const Ran ran = finegemm("tune --repeats 1 " + options + " --output '" + table + "'", fast("m64n32s8w1_x2"));
    ASSERT_EQ(ran.code, 0) << ran.err;
    const json entry = json::parse(read_text(table)).at("entries").at(0);
    EXPECT_EQ(entry.at("problem"), "gemm 64x576x1024 e4m3:row128 e4m3:block128 bf16 num_sms=100 batch_invariant");
}

TEST_F(Tune, KnowsGroupsOfRowsAndOfK) {
    for (const std::string options : {"--groups 4", "--groups 4 --expected-m 100", "--k-groups 4 --accumulate"}) {
        const auto kernels = measured("4096 576 1024 " + options);
        const Ran ran = tune("--shapes 4096x576x1024 " + options, fast(kernels[1]));
        ASSERT_EQ(ran.code, 0) << ran.err;
        const json follows = chosen("4096 576 1024 --device h200 --plan-table '" + table + "' " + options);
        EXPECT_EQ(follows.at("source"), "user table") << options << read_text(table);
        EXPECT_EQ(follows.at("name"), kernels[1]) << options;
        EXPECT_EQ(chosen("4096 576 1024 --device h200 --plan-table '" + table + "'").at("source"), "model");
    }
}

TEST_F(Tune, ATableOfAnotherDeviceStopsCallsWithAReason) {
    write_text(table, R"({"format": 2, "device": "h100", "sms": 132, "version": "0.1.0", "entries": []})");
    const std::string variables = kMock + " FINEGEMM_PLAN_TABLE='" + table + "'",
                      reason = table + " was measured on device 'h100' with 132 SMs, this one is 'h200' with 132";
    for (const char* command :
         {"run --device cuda", "bench --device cuda", "explain 64 576 1024", "tune --shapes 64x576x1024"}) {
        const Ran ran = finegemm(command, variables);
        EXPECT_EQ(ran.code, 2) << command;
        EXPECT_NE(ran.err.find(reason), std::string::npos) << command << ran.err;
    }
}

TEST(TuneErrors, AreOneSentenceAndAnExitCode) {
    const std::tuple<const char*, std::string, int, const char*> cases[] = {
        {"tune", "", 3, "no CUDA driver"},
        {"tune --device auto", "", 3, "--device 'auto' is none (no CUDA driver"},
        {"tune --device cpu", kMock, 3, "--device 'cpu' is none; pass cuda"},
        {"tune --device cuda:7", kMock, 2, "device 7 does not exist"},
        {"tune --shapes 8x16", kMock, 2, "must be MxNxK"},
        {"tune --shapes 8x16x16 --table dense", kMock, 2, "excludes"},
        {"tune --top 0", kMock, 2, "--top"},
        {"tune --output /nonexistent/t.json", kMock, 1, "/nonexistent/t.json: cannot be written"},
        {"explain 8 16 16 --plan-table none.json", "", 1, "none.json: cannot be read"},
    };
    for (const auto& [arguments, variables, code, message] : cases) {
        const Ran ran = finegemm(arguments, variables);
        EXPECT_EQ(ran.code, code) << arguments << '\n' << ran.err;
        EXPECT_NE(ran.err.find(message), std::string::npos) << arguments << '\n' << ran.err;
        EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
        EXPECT_EQ(ran.out, "") << arguments;
    }
}

TEST(DoctorOfATable, SaysWhatItHoldsOrWhatIsWrong) {
    const TemporaryDirectory directory;
    const auto finding = [&](const std::string& device) {
        write_text(directory / "t.json",
                   R"({"format": 2, "device": ")" + device + R"(", "sms": 132, "version": "", "entries": []})");
        const Ran ran = finegemm("doctor --json", kMock + " FINEGEMM_PLAN_TABLE='" + directory / "t.json" + "'");
        EXPECT_EQ(ran.code, 0) << ran.err;
        return json::parse(ran.out).at("findings").back();
    };
    const json good = finding("h200"), other = finding("h100");
    EXPECT_EQ(good.at("what"), "plan table");
    EXPECT_EQ(good.at("state"), "ok");
    EXPECT_EQ(good.at("detail"), directory / "t.json" + ": 0 entries for device 'h200' with 132 SMs");
    EXPECT_EQ(other.at("state"), "broken");
    EXPECT_NE(other.at("detail").get<std::string>().find("measured on device 'h100'"), std::string::npos);
}

}  // namespace finegemm::test
