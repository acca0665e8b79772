// Options from variables. Layer tests.
#include <gtest/gtest.h>

#include <array>
#include <map>

#include "api/options.h"
#include "support/error_of.h"

namespace finegemm {
namespace {

using Values = std::map<std::string, std::string>;

Options read(const Values& values) {
    return options_from([&](const char* name) {
        const auto found = values.find(name);
        return found == values.end() ? nullptr : found->second.c_str();
    });
}

TEST(Options, HaveDefaultsWhereNothingIsSet) {
    const Options o = read({});
    EXPECT_EQ(o.cache_dir, "");
    EXPECT_EQ(o.cache_limit_bytes, 256ll << 20);
    EXPECT_EQ(o.driver_path, "libcuda.so.1");
    EXPECT_EQ(o.compiler, Compiler::Nvrtc);
    EXPECT_EQ(o.cpu_threads, 0);
    EXPECT_TRUE(o.use_pack);
    EXPECT_EQ(o.pack_path, "");
    EXPECT_FALSE(o.check_values);
    for (const std::string& path : {o.nvrtc_path, o.nvcc_path, o.cuda_home, o.python_prefix, o.dump_dir, o.plan_table,
                                    o.trusted_dir, o.nvtx_path})
        EXPECT_EQ(path, "");
}

TEST(Options, AreReadEachFromItsVariable) {
    const Options o = read({{"FINEGEMM_CACHE_DIR", "/c"},
                            {"FINEGEMM_CACHE_LIMIT", "123"},
                            {"FINEGEMM_DRIVER", "/d.so"},
                            {"FINEGEMM_NVRTC", "/r.so"},
                            {"FINEGEMM_NVCC", "/nvcc"},
                            {"FINEGEMM_COMPILER", "nvcc"},
                            {"FINEGEMM_PACK", "0"},
                            {"FINEGEMM_DUMP", "/dump"},
                            {"FINEGEMM_CPU_THREADS", "3"},
                            {"FINEGEMM_CHECK", "1"},
                            {"CUDA_HOME", "/cuda"},
                            {"VIRTUAL_ENV", "/venv"},
                            {"FINEGEMM_PLAN_TABLE", "/t.json"},
                            {"FINEGEMM_TRUSTED_DIR", "/shared"},
                            {"NVTX_INJECTION64_PATH", "/profiler.so"}});
    EXPECT_EQ(o.cache_dir, "/c");
    EXPECT_EQ(o.cache_limit_bytes, 123);
    EXPECT_EQ(o.driver_path, "/d.so");
    EXPECT_EQ(o.nvrtc_path, "/r.so");
    EXPECT_EQ(o.nvcc_path, "/nvcc");
    EXPECT_EQ(o.compiler, Compiler::Nvcc);
    EXPECT_FALSE(o.use_pack);
    EXPECT_EQ(o.dump_dir, "/dump");
    EXPECT_EQ(o.cpu_threads, 3);
    EXPECT_TRUE(o.check_values);
    EXPECT_EQ(o.cuda_home, "/cuda");
    EXPECT_EQ(o.python_prefix, "/venv");
    EXPECT_EQ(o.plan_table, "/t.json");
    EXPECT_EQ(o.trusted_dir, "/shared");
    EXPECT_EQ(o.nvtx_path, "/profiler.so");
}

TEST(Options, TakeAnythingButASwitchForThePathOfAPack) {
    const Options o = read({{"FINEGEMM_PACK", "kernels.pack"}});
    EXPECT_EQ(o.pack_path, "kernels.pack");
    EXPECT_TRUE(o.use_pack) << "for kernels that the file lacks";
    EXPECT_EQ(read({{"FINEGEMM_PACK", "0"}}).pack_path, "");
    EXPECT_TRUE(read({{"FINEGEMM_PACK", "1"}}).use_pack);
}

TEST(Options, TakeTheCacheDirectoryFromTheFirstPlaceThatNamesOne) {
    EXPECT_EQ(read({{"FINEGEMM_CACHE_DIR", "/c"}, {"XDG_CACHE_HOME", "/x"}, {"HOME", "/h"}}).cache_dir, "/c");
    EXPECT_EQ(read({{"XDG_CACHE_HOME", "/x"}, {"HOME", "/h"}}).cache_dir, "/x/finegemm");
    EXPECT_EQ(read({{"XDG_CACHE_HOME", "relative"}, {"HOME", "/h"}}).cache_dir, "/h/.cache/finegemm");
    EXPECT_EQ(read({{"HOME", "/h"}}).cache_dir, "/h/.cache/finegemm");
    EXPECT_EQ(read({{"HOME", ""}}).cache_dir, "");
}

TEST(Options, PreferCudaHomeToCudaPath) {
    EXPECT_EQ(read({{"CUDA_HOME", "/a"}, {"CUDA_PATH", "/b"}}).cuda_home, "/a");
    EXPECT_EQ(read({{"CUDA_PATH", "/b"}}).cuda_home, "/b");
}

TEST(Options, TakeVariablesThatAreSetToNothingAsNotSet) {
    const Options o = read({{"FINEGEMM_CACHE_DIR", ""},
                            {"HOME", "/h"},
                            {"FINEGEMM_CACHE_LIMIT", ""},
                            {"FINEGEMM_DRIVER", ""},
                            {"FINEGEMM_COMPILER", ""},
                            {"FINEGEMM_PACK", ""},
                            {"FINEGEMM_CHECK", ""},
                            {"FINEGEMM_CPU_THREADS", ""}});
    EXPECT_EQ(o.cache_dir, "/h/.cache/finegemm");
    EXPECT_EQ(o.cache_limit_bytes, 256ll << 20);
    EXPECT_EQ(o.driver_path, "libcuda.so.1");
    EXPECT_TRUE(o.use_pack);
}

TEST(Options, AreMissedWhereAVariableIsMisspelt) {
    const std::vector<std::string> found = misspelt_variables(
        std::array{"FINEGEMM_CPU_THREAD=1", "FINEGEM_CACHE_DIR=/c", "FINEGEMM_CHECK=1", "FINEGEMM_MOCK_DRIVER=/m",
                   "FINEST=", "CUDA_HOMES=/x", "PATH", "FINEGEMM_LOG=calls", "FINEGEMM_LOGS=calls"});
    ASSERT_EQ(found.size(), 3u);
    EXPECT_EQ(found[0], "FINEGEMM_CPU_THREAD: is set, but no variable of FineGEMM; did you mean FINEGEMM_CPU_THREADS?");
    EXPECT_TRUE(found[1].ends_with("did you mean FINEGEMM_CACHE_DIR?")) << found[1];
    EXPECT_TRUE(found[2].ends_with("did you mean FINEGEMM_LOG?")) << found[2];
}

struct BadValue {
    const char *name, *value, *rule;
};
class BadOption : public testing::TestWithParam<BadValue> {};

TEST_P(BadOption, IsRejectedWithItsNameItsValueAndTheRule) {
    const auto& [name, value, rule] = GetParam();
    const Error e = test::error_of([&] { read({{name, value}}); });
    EXPECT_EQ(e.code(), Errc::InvalidArgument);
    EXPECT_EQ(e.what(), std::string(name) + "='" + value + "': must be " + rule + "; unset it for the default");
}

constexpr const char* kAnyNumber = "a number from 0 to 9223372036854775807";
INSTANTIATE_TEST_SUITE_P(Variables, BadOption,
                         testing::Values(BadValue{"FINEGEMM_CACHE_LIMIT", "-1", kAnyNumber},
                                         BadValue{"FINEGEMM_CACHE_LIMIT", "256M", kAnyNumber},
                                         BadValue{"FINEGEMM_CACHE_LIMIT", "9223372036854775808", kAnyNumber},
                                         BadValue{"FINEGEMM_CPU_THREADS", "4097", "a number from 0 to 4096"},
                                         BadValue{"FINEGEMM_CPU_THREADS", "two", "a number from 0 to 4096"},
                                         BadValue{"FINEGEMM_CPU_THREADS", " 2", "a number from 0 to 4096"},
                                         BadValue{"FINEGEMM_CHECK", "2", "0 or 1"},
                                         BadValue{"FINEGEMM_COMPILER", "NVCC", "nvrtc or nvcc"}),
                         [](const auto& tested) { return std::to_string(tested.index) + "_" + tested.param.name; });

TEST(Options, ThatAreSetByHandAreCheckedByTheContext) {
    Options o;
    o.cpu_threads = 5000;
    EXPECT_THROW(Context{o}, Error);
    EXPECT_NO_THROW(Context{Options{}});
}

}  // namespace
}  // namespace finegemm
