// The tool as people and programs meet it: a process with arguments, output and an exit code. Layer tests.
#include <gtest/gtest.h>

#include <cmath>

#include <CLI/Version.hpp>
#include <nlohmann/json.hpp>

#include "cli/support.h"

namespace finegemm::test {

namespace {

using nlohmann::json;

const std::string kMock = "FINEGEMM_DRIVER='" FINEGEMM_MOCK_DRIVER "'";

/// "# ms" and "# GFLOP/s" become "# s" and "# FLOP/s": which prefix a number takes depends on the machine.
std::string without_prefixes(std::string line) {
    for (size_t at = line.find("# "); at != std::string::npos; at = line.find("# ", at + 1)) {
        const std::string_view unit = std::string_view(line).substr(at + 2, 2);
        if (unit.size() == 2 && std::string_view("numkMGTP").find(unit[0]) != std::string_view::npos &&
            std::string_view("sFB").find(unit[1]) != std::string_view::npos)
            line.erase(at + 2, 1);
    }
    return line;
}

/// Lines that begin with one of `names` lose their numbers.
std::string masked_lines(const std::string& text, const std::vector<std::string>& names) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
        const std::string line = text.substr(at, end - at);
        bool mask = false;
        for (const std::string& name : names) mask |= line.starts_with(name);
        out += mask ? without_prefixes(without_numbers(line)) : line;
        at = end;
    }
    return out;
}

/// e4m3 codes of -2, -1, 0, 1, 2, chosen by a hash.
std::string small_codes(size_t count, uint32_t seed) {
    constexpr uint8_t kCodes[] = {0xc0, 0xb8, 0x00, 0x38, 0x40};
    std::string codes(count, '\0');
    for (size_t i = 0; i < count; ++i) codes[i] = static_cast<char>(kCodes[(i * 2654435761u + seed) % 4294967291u % 5]);
    return codes;
}
int value_of(char code) {
    const int magnitude = (code & 0x7f) == 0x38 ? 1 : (code & 0x7f) == 0x40 ? 2 : 0;
    return (code & 0x80) ? -magnitude : magnitude;
}

}  // namespace

TEST(Help, IsAsRecorded) {
    if (std::string(CLI11_VERSION).substr(0, 4) != "2.1.")
        GTEST_SKIP() << "CLI11 " CLI11_VERSION " lays help out in its own way, 2.1 is recorded";
    expect_golden("help", finegemm("--help").out);
    for (const char* command : {"run", "bench", "tune", "explain", "doctor", "cache", "pack"})
        expect_golden(std::string("help_") + command, finegemm(command + std::string(" --help")).out);
}

TEST(Help, VersionIsThreeNumbers) {
    const Ran ran = finegemm("--version");
    EXPECT_EQ(ran.code, 0);
    EXPECT_EQ(without_numbers(replaced(ran.out, ".", " ")), "# # #\n");
}

TEST(Help, AMisspeltVariableIsSaid) {
    const Ran ran = finegemm("--version", "FINEGEMM_CPU_THREDS=1");
    EXPECT_EQ(ran.code, 0);
    EXPECT_EQ(ran.err,
              "finegemm: FINEGEMM_CPU_THREDS: is set, but no variable of FineGEMM; did you mean "
              "FINEGEMM_CPU_THREADS?\n");
}

TEST(Help, BashCompletesCommandsOptionsAndNothingElse) {
    const TemporaryDirectory directory;
    const auto completions = [&](const std::string& words, int at) {
        const std::string script =
            ". '" FINEGEMM_TEST_DIR "/../cli/completion.bash'; COMP_WORDS=('" FINEGEMM_CLI_PATH "' " + words +
            "); COMP_CWORD=" + std::to_string(at) + "; _finegemm '" FINEGEMM_CLI_PATH "'; echo \"${COMPREPLY[*]}\"";
        write_text(directory / "script", script);
        EXPECT_EQ(std::system(("bash '" + directory / "script" + "' >'" + directory / "out" + "'").c_str()), 0);
        return read_text(directory / "out");
    };
    EXPECT_EQ(completions("''", 1), "run bench tune explain doctor cache pack\n");
    EXPECT_EQ(completions("d", 1), "doctor\n");
    EXPECT_EQ(completions("pack --", 2), "--help --out --cuda --jobs --json\n");
    EXPECT_EQ(completions("run --a a", 3), "\n") << "files are bash's affair";
}

struct Misuse {
    const char* arguments;
    int code;
    const char* message;
};

TEST(Errors, AreOneSentenceOnStderrAndAnExitCode) {
    const Misuse cases[] = {
        {"", 2, "a command is missing; there are run, bench, tune, explain, doctor, cache, pack"},
        {"bogus", 2, "'bogus': is no command; there are run, bench, tune, explain, doctor, cache, pack"},
        {"run --bogus", 2, "--bogus"},
        {"run 1 2", 2, "shape"},
        {"run 0 8 16", 2, "M is 0, must be from 1"},
        {"run 8 12 16", 2, "N"},
        {"run 8 16 20", 2, "16"},
        {"run --repeats 0", 2, "--repeats"},
        {"run --numerics wrong", 2, "--numerics"},
        {"run --groups 0", 2, "groups: is 0, must be from 1 to"},
        {"run --groups 4097", 2, "groups: is 4097, must be from 1 to 4096"},
        {"run --form masked", 2, "--groups"},
        {"run --groups 4 --form sideways", 2, "--form"},
        {"run --groups 4 --a none.npy", 2, "excludes"},
        {"bench --groups 4 --peers", 2, "excludes"},
        {"run --device tpu", 2, "must be auto, cpu, cuda or cuda:INDEX"},
        {"run --device cuda:", 2, "must be auto, cpu, cuda or cuda:INDEX"},
        {"run --device cuda:x", 2, "must be auto, cpu, cuda or cuda:INDEX"},
        {"run --device cuda", 3, "no CUDA driver"},
        {"run --a none.npy", 1, "none.npy: cannot be read"},
        {"run --a none.txt", 2, "must be FILE.npy or FILE.safetensors:TENSOR"},
        {"run --sfa s.npy", 2, "give --a too"},
        {"run --numerics hopper --config none 8 16 128", 2, "none"},
        {"run 2147483647 16 2147483632", 1, "does not fit into memory"},
        {"bench --shapes 8x16", 2, "must be MxNxK"},
        {"bench --shapes 8x16x", 2, "must be MxNxK"},
        {"bench --shapes 8x16x16x", 2, "must be MxNxK"},
        {"bench --shapes 8x16x16 --table dense", 2, "excludes"},
        {"bench --table sparse", 2, "sparse"},
        {"bench --file none.json", 1, "none.json: cannot be read"},
        {"explain 1 2", 2, "must be M N K"},
        {"explain 1 12 16", 2, "multiple of 8"},
        {"explain 1 16 16 --device b200", 2, "b200"},
        {"explain 1 16 16 --groups 0", 2, "groups: is 0, must be from 1 to 4096"},
        {"explain 1 16 16 --expected-m 5", 2, "--expected-m: is 5, does not belong to one product; leave it out"},
        {"explain 1 16 144 --k-groups 2", 2, "K: is 144, must be a multiple of 128"},
        {"explain 1 16 128 --k-groups 2 --groups 2", 2, "--k-groups: is 2, does not belong to groups of rows"},
        {"explain 'gemm 1x16x128 sideways'", 2, "is not understood at 'sideways'"},
        {"explain 1 16 128 --affine --accumulate", 2, "--accumulate: is set, but so is affine"},
        {"run 8 16 144 --device cpu --k-groups 2", 2, "K: is 144, must be a multiple of 128"},
        {"run 8 16 128 --device cpu --layout blocks", 2, "--k-groups"},
        {"run 8 16 128 --device cpu --k-groups 2 --groups 2", 2, "does not belong to groups of rows"},
        {"cache", 2, "action"},
        {"cache bogus", 2, "bogus"},
        {"pack", 2, "--out"},
        {"pack --out x --jobs 0", 2, "--jobs"},
    };
    for (const Misuse& c : cases) {
        const Ran ran = finegemm(c.arguments);
        EXPECT_EQ(ran.code, c.code) << c.arguments << '\n' << ran.err;
        EXPECT_NE(ran.err.find(c.message), std::string::npos) << c.arguments << '\n' << ran.err;
        EXPECT_TRUE(ran.err.starts_with("finegemm: ")) << ran.err;
        EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
        EXPECT_EQ(ran.out, "") << c.arguments;
    }
}

TEST(Errors, ASeedIsANumberFrom0On) {
    for (const std::string command : {"run", "bench --table models"})
        for (const std::string seed : {"-1", "9223372036854775808", "1.5"}) {
            const Ran ran = finegemm(command + " --seed " + seed);
            EXPECT_EQ(ran.code, 2) << ran.out;
            EXPECT_NE(ran.err.find("--seed: is " + seed + ", must be a whole number from 0 to 9223372036854775807"),
                      std::string::npos)
                << ran.err;
        }
}

TEST(Errors, AVariableThatCannotBeReadIsInvalid) {
    const Ran ran = finegemm("run", "FINEGEMM_CPU_THREADS=many");
    EXPECT_EQ(ran.code, 2);
    EXPECT_NE(ran.err.find("FINEGEMM_CPU_THREADS='many'"), std::string::npos) << ran.err;
}

TEST(Run, WithoutADriverItRunsOnTheCpuAndSaysWhy) {
    const Ran ran = finegemm("run 64 128 256 --repeats 2");
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_EQ(ran.err, "") << "progress is for terminals";
    expect_golden("run", masked_lines(ran.out, {"time", "error", "result"}));
}

TEST(Run, DefaultShapeNeedsNoArguments) {
    const Ran ran = finegemm("run --json --repeats 1");
    ASSERT_EQ(ran.code, 0) << ran.err;
    EXPECT_EQ(json::parse(ran.out).at("shape"), json({256, 1024, 1024}));
}

TEST(Run, JsonHasTheFigures) {
    for (const char* numerics : {"fast", "exact", "hopper"}) {
        const Ran ran = finegemm(std::string("run 33 40 144 --device cpu --json --repeats 3 --numerics ") + numerics);
        ASSERT_EQ(ran.code, 0) << ran.err;
        const json out = json::parse(ran.out);
        EXPECT_EQ(out.at("device"), "cpu");
        EXPECT_EQ(out.at("kernel"), std::string("CPU, ") + numerics);
        EXPECT_TRUE(out.at("right").get<bool>());
        EXPECT_GT(out.at("us").get<double>(), 0);
        EXPECT_NEAR(out.at("tflop_per_s").get<double>() * out.at("us").get<double>(), 2e-6 * 33 * 40 * 144, 1e-9);
        EXPECT_EQ(out.at("error").at("rows"), 33);
        // One rounding to bf16, whose steps are 2^-8 to 2^-7 of a value, is most of the error; it cannot be none.
        EXPECT_LT(out.at("error").at("relative_rms").get<double>(), 0x1p-8);
        EXPECT_GT(out.at("error").at("relative_rms").get<double>(), 0x1p-12);
        EXPECT_FALSE(out.contains("why_no_gpu")) << "nobody asked for one";
    }
}

TEST(Run, ReadsCodesAndScalesAndWritesTheExactProduct) {
    constexpr size_t kM = 5, kN = 16, kK = 144;  // the second block of K is not full
    const TemporaryDirectory directory;
    const std::string a = small_codes(kM * kK, 1), b = small_codes(kN * kK, 2);
    std::vector<float> sfa(kM * 2), d(kM * kN);
    for (size_t i = 0; i < sfa.size(); ++i) sfa[i] = static_cast<float>(1 << i % 3);
    const std::vector<float> sfb = {0.5f, 2.0f};
    for (size_t m = 0; m < kM; ++m)
        for (size_t n = 0; n < kN; ++n)
            for (size_t k = 0; k < kK; ++k)
                d[m * kN + n] += static_cast<float>(value_of(a[m * kK + k]) * value_of(b[n * kK + k])) *
                                 sfa[m * 2 + k / 128] * sfb[k / 128];
    write_text(directory / "a.npy", npy("|u1", "5, 144", a));
    write_text(directory / "sfa.npy", npy("<f4", "5, 2", bytes_of(sfa)));
    write_text(directory / "b.safetensors",
               safetensors(R"({"w":{"dtype":"F8_E4M3","shape":[16,144],"data_offsets":[8,2312]},)"
                           R"("w_scale_inv":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}})",
                           bytes_of(sfb) + b));
    const Ran ran = finegemm("run --a '" + directory / "a.npy" + "' --sfa '" + directory / "sfa.npy" + "' --b '" +
                             directory / "b.safetensors:w" + "' --sfb '" + directory / "b.safetensors:w_scale_inv" +
                             "' --out '" + directory / "d.npy" + "' --repeats 1");
    ASSERT_EQ(ran.code, 0) << ran.err;
    const std::string written = read_text(directory / "d.npy");
    ASSERT_GE(written.size(), sizeof(float) * d.size());
    for (size_t i = 0; i < d.size(); ++i) {
        float got;
        std::memcpy(&got, &written[written.size() - sizeof(float) * (d.size() - i)], sizeof got);
        EXPECT_NEAR(got, d[i], std::abs(d[i]) * 0x1p-8) << i;  // half a step of bf16
    }
}

TEST(Run, QuantisesEveryTypeOfFile) {
    const TemporaryDirectory directory;
    const std::vector<uint16_t> halves(8 * 32, 0x3c00), bf16(16 * 32, 0x3f80);  // ones
    write_text(directory / "a.npy", npy("<f2", "8, 32", bytes_of(halves)));
    write_text(directory / "b.npy", npy("<u2", "16, 32", bytes_of(bf16)));
    const Ran ran = finegemm("run --json --a '" + directory / "a.npy" + "' --b '" + directory / "b.npy" + "' --out '" +
                             directory / "d.npy" + "'");
    ASSERT_EQ(ran.code, 0) << ran.err;
    EXPECT_EQ(json::parse(ran.out).at("shape"), json({8, 16, 32}));
    const std::string written = read_text(directory / "d.npy");
    float last;
    std::memcpy(&last, &written[written.size() - sizeof last], sizeof last);
    EXPECT_NEAR(last, 32, 32 * 0x1p-8);
}

TEST(Run, SaysHowManyValuesAreNanAndThatTheyShouldBe) {
    const TemporaryDirectory directory;
    std::string a = small_codes(8 * 128, 1);
    a[3 * 128] = '\x7f';
    write_text(directory / "a.npy", npy("|u1", "8, 128", a));
    write_text(directory / "b.npy", npy("|u1", "16, 128", small_codes(16 * 128, 2)));
    const std::string run = "run --a '" + directory / "a.npy" + "' --b '" + directory / "b.npy" + "' --repeats 1";
    const Ran ran = finegemm(run);
    EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
    EXPECT_NE(ran.out.find("\nNaN      16 of 128 values, as operands or sums beyond f32 make them\n"),
              std::string::npos)
        << ran.out;
    const json error = json::parse(finegemm(run + " --json").out).at("error");
    EXPECT_EQ(error.at("nan"), 16);
    EXPECT_EQ(error.at("nan_wrong"), 0);
}

TEST(Run, FilesThatDoNotFitAreInvalidArguments) {
    const TemporaryDirectory directory;
    write_text(directory / "a.npy", npy("<f4", "8, 32", std::string(8 * 32 * 4, '\0')));
    write_text(directory / "b.npy", npy("<f4", "16, 48", std::string(16 * 48 * 4, '\0')));
    const std::string a = "--a '" + directory / "a.npy" + "'", b = " --b '" + directory / "b.npy" + "'";
    const std::pair<std::string, const char*> cases[] = {
        {a + b, "A is [8, 32] and B is [16, 48]"},
        {a + " 9 16 32", "M is 9, but --a has 8"},
        {a + " --sfa '" + directory / "b.npy" + "'", "takes no scales"},
    };
    for (const auto& [arguments, message] : cases) {
        const Ran ran = finegemm("run " + arguments);
        EXPECT_EQ(ran.code, 2) << ran.err;
        EXPECT_NE(ran.err.find(message), std::string::npos) << ran.err;
    }
}

TEST(Run, ScalesOfTheWrongShapeAreInvalid) {
    const TemporaryDirectory directory;
    write_text(directory / "a.npy", npy("|u1", "8, 256", small_codes(8 * 256, 3)));
    write_text(directory / "s.npy", npy("<f4", "7, 2", std::string(56, '\0')));
    const Ran ran = finegemm("run --a '" + directory / "a.npy" + "' --sfa '" + directory / "s.npy" + "'");
    EXPECT_EQ(ran.code, 2);
    EXPECT_NE(ran.err.find("sfa: has shape [7, 2], must be [8, 2]"), std::string::npos) << ran.err;
}

TEST(Run, AGpuThatDoesNotExistIsInvalid) {
    const Ran ran = finegemm("run --device cuda:7", kMock);
    EXPECT_EQ(ran.code, 2);
    EXPECT_NE(ran.err.find("device 7 does not exist"), std::string::npos) << ran.err;
}

TEST(Bench, TableAndJsonHaveARowForEachShape) {
    const TemporaryDirectory directory;
    write_text(directory / "shapes.json",
               R"({"rows":[{"kind":"dense","shape":[8,16,128]},{"kind":"masked","shape":[1,2]}]})");
    for (const std::string& shapes : {std::string("--shapes 8x16x128"), "--file '" + directory / "shapes.json" + "'"}) {
        const Ran ran = finegemm("bench --repeats 1 --json " + shapes);
        ASSERT_EQ(ran.code, 0) << ran.err;
        const json out = json::parse(ran.out);
        ASSERT_EQ(out.at("rows").size(), 1u);
        EXPECT_EQ(out["rows"][0].at("shape"), json({8, 16, 128}));
        EXPECT_GT(out["rows"][0].at("us").at("finegemm").get<double>(), 0);
    }
    const Ran ran = finegemm("bench --repeats 1 --shapes 8x16x128,1x64x256");
    ASSERT_EQ(ran.code, 0) << ran.err;
    EXPECT_NE(ran.out.find("\n      8      16     128 "), std::string::npos) << ran.out;
    EXPECT_NE(ran.out.find("\n      1      64     256 "), std::string::npos) << ran.out;
}

TEST(Bench, AFileWithoutShapesIsAnError) {
    const TemporaryDirectory directory;
    const std::pair<const char*, const char*> cases[] = {
        {"", "is not JSON at byte 1; must be JSON of the form [[M, N, K], ...] or"},
        {"[[1, 2, 3],]", "is not JSON at byte 12; must be"},
        {"{}", "has another form; must be"},
        {"[]", "holds no shapes of products"},
        {"[[8, 16, 128], [1, 2]]", "has another form in row 2; must be"},
        {"[1]", "has another form in row 1"},
        {R"({"rows":[{"shape":"x"}]})", "has another form in row 1"},
    };
    for (const auto& [content, message] : cases) {
        write_text(directory / "shapes.json", content);
        const Ran ran = finegemm("bench --file '" + directory / "shapes.json" + "'");
        EXPECT_EQ(ran.code, 1) << content << ran.err;
        EXPECT_NE(ran.err.find(std::string("shapes.json: ") + message), std::string::npos) << ran.err;
        EXPECT_EQ(ran.err.find("json.exception"), std::string::npos) << ran.err;
    }
}

TEST(Cache, ListsSizesAndClearsItsFilesOnly) {
    const TemporaryDirectory cache;
    const std::string variables = "FINEGEMM_CACHE_DIR='" + cache.string() + "'";
    write_text(cache / "00112233445566778899aabbccddeeff.kernel", std::string(2000, 'x'));
    write_text(cache / "notes.txt", "not a kernel");
    EXPECT_EQ(finegemm("cache list", variables).out.substr(0, 7), "damaged");
    const json size = json::parse(finegemm("cache size --json", variables).out);
    EXPECT_EQ(size.at("directory"), cache.string());
    EXPECT_EQ(size.at("kernels"), 1);
    EXPECT_EQ(size.at("bytes"), 2000);
    EXPECT_EQ(finegemm("cache size", variables).out, cache.string() + ": 1 kernels, 2.00 KB of at most 268 MB\n");
    EXPECT_EQ(json::parse(finegemm("cache list --json", variables).out).at(0).at("bytes"), 2000);
    EXPECT_EQ(json::parse(finegemm("cache clear --json", variables).out).at("removed"), 1);
    EXPECT_EQ(finegemm("cache list", variables).out, cache.string() + ": empty\n");
    EXPECT_TRUE(std::filesystem::exists(cache / "notes.txt"));
}

TEST(Cache, OneThatIsNotThereIsEmpty) {
    const Ran ran = finegemm("cache clear", "FINEGEMM_CACHE_DIR=/nonexistent/finegemm");
    EXPECT_EQ(ran.code, 0);
    EXPECT_EQ(ran.out, "/nonexistent/finegemm: 0 files removed\n");
}

TEST(Pack, AFileThatCannotBeWrittenIsKnownBeforeAnythingIsCompiled) {
    const Ran ran = finegemm("pack --out /nonexistent/kernels.pack");
    EXPECT_EQ(ran.code, 1);
    EXPECT_EQ(ran.err, "finegemm: /nonexistent/kernels.pack: cannot be written; choose another file\n");
}

TEST(Pack, WithoutACompilerNothingIsLeftBehind) {
    if (has("nvrtc", "VIRTUAL_ENV=")) GTEST_SKIP() << "there is an NVRTC on this machine";
    const TemporaryDirectory directory;
    const Ran ran = finegemm("pack --out '" + directory / "kernels.pack" + "'", "VIRTUAL_ENV=");
    EXPECT_EQ(ran.code, 1);
    EXPECT_TRUE(std::filesystem::is_empty(directory.string()));
}

}  // namespace finegemm::test
