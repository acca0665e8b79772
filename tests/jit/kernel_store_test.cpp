// KernelStore: from where a kernel comes, once for all threads and processes.
#include <finegemm/error.h>

#include <array>
#include <set>
#include <thread>

#include "jit/kernel_store.h"
#include "jit/pack.h"
#include "support.h"
#include "support/error_of.h"

namespace finegemm::jit {
namespace {

using namespace test;

const KernelSource kSource{"finegemm_example", "extern \"C\" __global__ void finegemm_example() {}\n"};

struct Stores : testing::Test {
    TemporaryDirectory home;
    PretendedNvcc nvcc{home.path()};
    Options options;

    Stores() {
        options.compiler = Compiler::Nvcc;
        options.nvcc_path = nvcc.path();
        options.cache_dir = home.path() + "/cache";
        options.use_pack = false;
    }
};

TEST_F(Stores, CompileThenReadFromDiskInTheNextProcess) {
    const Binary first = KernelStore(options).get(kSource);
    EXPECT_EQ(first.origin, Origin::Compiled);
    EXPECT_EQ(first.entry, "finegemm_example");
    EXPECT_EQ(first.cubin, "made by 13.0.99 of:\n" + kSource.text);
    EXPECT_GE(first.milliseconds, 200) << "the pretended compiler takes that long";
    const Binary second = KernelStore(options).get(kSource);
    EXPECT_EQ(second.origin, Origin::Disk);
    EXPECT_EQ(second.cubin, first.cubin);
    EXPECT_EQ(nvcc.calls(), 1u);
}

TEST_F(Stores, CompileOnceForThreadsThatAskTogetherAlsoWithoutADisk) {
    options.cache_limit_bytes = 0;
    const KernelStore store(options);
    std::vector<std::thread> threads;
    std::vector<std::string> cubins(8);
    for (std::string& cubin : cubins) threads.emplace_back([&] { cubin = store.get(kSource).cubin; });
    for (std::thread& t : threads) t.join();
    for (const std::string& cubin : cubins) EXPECT_EQ(cubin, "made by 13.0.99 of:\n" + kSource.text);
    EXPECT_EQ(store.get(kSource).cubin, cubins[0]);
    EXPECT_EQ(nvcc.calls(), 1u);
}

TEST_F(Stores, CompileOnceForProcessesThatAskTogether) {
    std::vector<pid_t> children;
    for (int i = 0; i < 8; ++i)
        children.push_back(
            start([&] { return KernelStore(options).get(kSource).cubin.ends_with(kSource.text) ? 0 : 1; }));
    for (const pid_t c : children) EXPECT_EQ(finish(c), 0);
    EXPECT_EQ(nvcc.calls(), 1u);
}

TEST_F(Stores, CompileAgainWhatAnotherTextEntryIntervalOrCompilerVersionMakes) {
    const KernelSource other_text{kSource.entry, kSource.text + "// other"},
        other_entry{"finegemm_other", kSource.text};
    const KernelSource other_interval{kSource.entry, kSource.text, 8};
    for (const KernelSource& s : {kSource, other_text, other_entry, other_interval})
        EXPECT_EQ(KernelStore(options).get(s).origin, Origin::Compiled);
    const PretendedNvcc newer(home.path(), "13.1.5");
    options.nvcc_path = newer.path();
    EXPECT_EQ(KernelStore(options).get(kSource).origin, Origin::Compiled);
    EXPECT_EQ(nvcc.calls(), 4u);
    EXPECT_EQ(newer.calls(), 1u);
}

TEST_F(Stores, FindKernelsAgainWhenTheCompilerOrTheCacheHasMoved) {
    KernelStore(options).get(kSource);
    fs::create_directory(home.path() + "/elsewhere");
    const PretendedNvcc moved(home.path() + "/elsewhere");
    options.nvcc_path = moved.path();
    fs::rename(options.cache_dir, home.path() + "/elsewhere/cache");
    options.cache_dir = home.path() + "/elsewhere/cache";
    EXPECT_EQ(KernelStore(options).get(kSource).origin, Origin::Disk);
}

TEST_F(Stores, ThrowTheCompilersLogToEachWhoAsksAndKeepNothing) {
    const KernelSource wrong{"finegemm_wrong", "#error as asked\n"};
    const KernelStore store(options);
    for (size_t i = 1; i <= 2; ++i) {
        try {
            store.get(wrong);
            FAIL();
        } catch (const Error& e) {
            EXPECT_EQ(e.code(), Errc::Compile);
            EXPECT_NE(std::string(e.what()).find("finegemm_wrong:\nkernel.cu(1): error: as asked"), std::string::npos)
                << e.what();
        }
        EXPECT_EQ(nvcc.calls(), i);
    }
}

TEST_F(Stores, WriteSourcesAndCubinsWhereAskedTo) {
    options.dump_dir = home.path() + "/dump/here";
    const Binary binary = KernelStore(options).get(kSource);
    EXPECT_EQ(read_text(options.dump_dir + "/finegemm_example.cu"), kSource.text);
    EXPECT_EQ(read_text(options.dump_dir + "/finegemm_example.cubin"), binary.cubin);
}

TEST_F(Stores, SayThatTheyCannotWriteWhereAskedTo) {
    options.dump_dir = "/dev/null/here";
    const KernelStore store(options);
    const Error e = finegemm::test::error_of([&] { store.get(kSource); });
    EXPECT_EQ(e.code(), Errc::Io);
    EXPECT_TRUE(finegemm::test::contains(e, "/dev/null/here/finegemm_example.cu: cannot be written")) << e.what();
}

TEST_F(Stores, TakeKernelsFromAPackInAFileFirst) {
    options.pack_path = home.path() + "/kernels.pack";
    write_text(options.pack_path, build_pack(std::array{kSource}, *find_toolchain(options), 1, nullptr));
    ASSERT_EQ(nvcc.calls(), 1u);
    const KernelStore store(options);
    EXPECT_EQ(store.get(kSource).origin, Origin::Pack);
    EXPECT_EQ(store.get(kSource).cubin, "made by 13.0.99 of:\n" + kSource.text);
    EXPECT_EQ(store.get({"finegemm_other", kSource.text}).origin, Origin::Compiled) << "which the pack lacks";
}

TEST_F(Stores, PassOverAPackThatSomebodyElseCanHaveWritten) {
    options.pack_path = home.path() + "/kernels.pack";
    write_text(options.pack_path, build_pack(std::array{kSource}, *find_toolchain(options), 1, nullptr));
    fs::permissions(options.pack_path, fs::perms::others_write, fs::perm_options::add);
    EXPECT_EQ(KernelStore(options).get(kSource).origin, Origin::Compiled);
    options.trusted_dir = home.path();
    EXPECT_EQ(KernelStore(options).get(kSource).origin, Origin::Pack);
}

TEST_F(Stores, SayThatAPackCannotBeReadOrIsNone) {
    options.pack_path = home.path() + "/kernels.pack";
    for (const char* fault : {": cannot be read", ": is no pack"}) {
        const Error e = finegemm::test::error_of([&] { const KernelStore store(options); });
        EXPECT_EQ(e.code(), Errc::Io);
        EXPECT_TRUE(finegemm::test::contains(e, options.pack_path + fault)) << e.what();
        write_text(options.pack_path, "not a pack, but long enough to be one");
    }
}

TEST_F(Stores, NeedNoCompilerForKernelsOnDisk) {
    options.compiler = Compiler::Nvrtc;
    options.nvrtc_path = home.path() + "/libnvrtc.so.13";
    write_text(options.nvrtc_path, "not a library");
    write_text(home.path() + "/libnvrtc-builtins.so.13.7", "");
    const std::string identity = expected_nvrtc(options);
    ASSERT_TRUE(identity.starts_with("nvrtc 13.7 ")) << identity;
    const Digest key = digest({kernel_files_digest().hex(), identity, kSource.entry, kSource.text, "0"});
    DiskCache(options.cache_dir, 1 << 20).write(key, kSource.entry, "from disk");
    const Binary binary = KernelStore(options).get(kSource);
    EXPECT_EQ(binary.origin, Origin::Disk);
    EXPECT_EQ(binary.cubin, "from disk");
}

}  // namespace
}  // namespace finegemm::jit
