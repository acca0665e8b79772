// NVRTC and nvcc: where they are looked for, what is said when they are not there, what they make when they are.
#include <algorithm>
#include <chrono>
#include <cstdlib>

#include <fmt/format.h>

#include <finegemm/error.h>

#include "engine/pack_contents.h"
#include "jit/resources.h"
#include "support.h"

namespace finegemm::jit {
namespace {

using namespace test;

/// The toolchain, or null after a visible skip that says where it was looked for.
#define FINEGEMM_NEED(toolchain, search)                                                              \
    const Search search##_result = search(this_machine());                                            \
    if (!search##_result.found)                                                                       \
        GTEST_SKIP() << "no compiler: " << fmt::format("{}", fmt::join(search##_result.tried, "; ")); \
    const Toolchain& toolchain = *search##_result.found

bool mentions(const std::vector<std::string>& tried, std::string_view text) {
    return std::any_of(tried.begin(), tried.end(),
                       [&](const std::string& t) { return t.find(text) != std::string::npos; });
}

KernelSource example() { return pack_contents().front(); }

TEST(FindNvrtc, NamesEveryPlaceItLookedInBeforeTheOneWhereItFoundIt) {
    const TemporaryDirectory home;
    fs::create_directories(home.path() + "/env/lib/python3.11/site-packages/nvidia/cublas/lib");
    Options options;
    options.nvrtc_path = home.path() + "/libnvrtc.so.13";
    options.python_prefix = home.path() + "/env";
    options.cuda_home = home.path() + "/toolkit";
    write_text(options.nvrtc_path, "not a library");
    const Search search = find_nvrtc(options);
    EXPECT_TRUE(mentions(search.tried, options.nvrtc_path));
    EXPECT_TRUE(
        mentions(search.tried, home.path() + "/env/lib/python3.11/site-packages/nvidia/*/lib: has no libnvrtc.so"));
    EXPECT_TRUE(mentions(search.tried, home.path() + "/toolkit/lib64: has no libnvrtc.so"));
    if (!search.found) {
        EXPECT_TRUE(mentions(search.tried, "libnvrtc.so.12: cannot open shared object file"));
    }
}

TEST(FindNvrtc, RejectsALibraryThatIsAnother) {
    const TemporaryDirectory home;
    Options options;
    options.nvrtc_path = FINEGEMM_MOCK_DRIVER;
    EXPECT_TRUE(mentions(find_nvrtc(options).tried, std::string(FINEGEMM_MOCK_DRIVER) + ": is not NVRTC"));
}

TEST(FindNvrtc, PrefersTheOneOfThePythonEnvironment) {
    FINEGEMM_NEED(installed, find_nvrtc);
    const TemporaryDirectory home;
    const fs::path lib = home.path() + "/lib/python3.11/site-packages/nvidia/cu13/lib";
    fs::create_directories(lib);
    // Copies, not links: the loader must not take them for the ones it knows.
    for (const auto& item : fs::directory_iterator(fs::path(installed.path()).parent_path())) {
        const std::string name = item.path().filename().string();
        if (name.starts_with("libnvrtc.so.1") ||
            (name.starts_with("libnvrtc-builtins.so.1") && name.find("alt") == std::string::npos))
            fs::copy_file(item.path(), lib / name);
    }
    Options options;
    options.python_prefix = home.path();
    EXPECT_EQ(finish(start([&] {
                  const Search search = find_nvrtc(options);
                  if (!search.found || search.found->path().find(home.path()) != 0) return 1;
                  if (search.found->identity() != expected_nvrtc(options)) return 2;
                  return search.found->compile(example()).cubin.starts_with("\177ELF") ? 0 : 3;
              })),
              0);
}

TEST(FindNvrtc, PassesOverOneThatIsNewerThanTheDriver) {
    FINEGEMM_NEED(installed, find_nvrtc);
    Options options = this_machine();
    options.nvrtc_path = installed.path();
    const int cuda = installed.identity().starts_with("nvrtc 13.") ? 13 : 12;
    const Search older = find_nvrtc(options, cuda - 1);
    EXPECT_TRUE(mentions(older.tried, fmt::format("makes code that a driver of CUDA {} does not load", cuda - 1)));
    if (older.found) {
        EXPECT_NE(older.found->identity(), installed.identity());
        EXPECT_EQ(older.found->identity(), expected_nvrtc(options, cuda - 1));
    }
}

TEST(FindNvcc, PassesOverOneThatIsNewerThanTheDriver) {
    const TemporaryDirectory home;
    const PretendedNvcc nvcc(home.path());  // 13.0.99
    Options options;
    options.nvcc_path = nvcc.path();
    EXPECT_EQ(find_nvcc(options, 13).found->path(), nvcc.path());
    const Search older = find_nvcc(options, 12);
    EXPECT_TRUE(
        mentions(older.tried, nvcc.path() + ": nvcc 13.0.99 makes code that a driver of CUDA 12 does not load"));
}

TEST(FindNvcc, NamesEveryPlaceItLookedIn) {
    const TemporaryDirectory home;
    Options options;
    options.nvcc_path = home.path() + "/nvcc";
    options.cuda_home = home.path();
    const Search search = find_nvcc(options);
    EXPECT_TRUE(mentions(search.tried, home.path() + "/nvcc: No such file"));
    EXPECT_TRUE(mentions(search.tried, home.path() + "/bin/nvcc: No such file"));
    options.nvcc_path = "/bin/true";
    EXPECT_TRUE(mentions(find_nvcc(options).tried, "/bin/true: not nvcc"));
}

TEST(NotFound, SaysWhatToDoAndWhereItWasLookedFor) {
    EXPECT_EQ(
        not_found(Compiler::Nvrtc, {"/a: has no libnvrtc.so", "/b: is not NVRTC"}),
        "no NVRTC found; `pip install nvidia-cuda-nvrtc` brings it, or set FINEGEMM_NVRTC to a libnvrtc.so. Searched:\n"
        "  /a: has no libnvrtc.so\n  /b: is not NVRTC");
    EXPECT_TRUE(not_found(Compiler::Nvrtc, {}, 12).starts_with("no NVRTC found; `pip install nvidia-cuda-nvrtc-cu12`"));
    EXPECT_EQ(not_found(Compiler::Nvcc, {"nvcc: No such file or directory"}),
              "no nvcc found; install the CUDA toolkit, set FINEGEMM_NVCC, or use NVRTC (FINEGEMM_COMPILER=nvrtc). "
              "Searched:\n"
              "  nvcc: No such file or directory");
}

void expect_compiles_and_explains(const Toolchain& toolchain) {
    const Toolchain::Output out = toolchain.compile(example());
    EXPECT_TRUE(out.cubin.starts_with("\177ELF"));
    EXPECT_GT(resources_of(out.log).registers, 0) << out.log;
    try {
        toolchain.compile({"finegemm_wrong", "#include <finegemm/core/base.h>\nint x = nobody_declared_this;\n"});
        FAIL();
    } catch (const Error& e) {
        EXPECT_EQ(e.code(), Errc::Compile);
        for (const char* part : {"could not compile finegemm_wrong", "nobody_declared_this", "(2)"})
            EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
}

TEST(Nvrtc, CompilesAKernelAndReportsErrorsWithTheirLines) {
    FINEGEMM_NEED(nvrtc, find_nvrtc);
    expect_compiles_and_explains(nvrtc);
    EXPECT_EQ(nvrtc.identity().find('/'), std::string::npos) << "part of a key that has no paths";
}

TEST(Nvcc, CompilesAKernelAndReportsErrorsWithTheirLines) {
    FINEGEMM_NEED(nvcc, find_nvcc);
    expect_compiles_and_explains(nvcc);
    EXPECT_EQ(nvcc.identity().find('/'), std::string::npos) << "part of a key that has no paths";
}

TEST(Resources, AreReadFromTheLog) {
    const Resources r = resources_of(
        "ptxas info    : 136 bytes gmem\n"
        "ptxas         .     8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n"
        "ptxas info    : Used 168 registers, used 16 barriers\n");
    EXPECT_EQ(r.registers, 168);
    EXPECT_EQ(r.spill_bytes, 16);
    EXPECT_FALSE(r.serialised);
    EXPECT_EQ(resources_of("").registers, -1);
    EXPECT_TRUE(
        resources_of(
            "ptxas info : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to "
            "insufficient register resources for the wgmma pipeline in function 'x'")
            .serialised);
}

}  // namespace
}  // namespace finegemm::jit
