// Output that cannot be written. Layer tests.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "cli/support.h"

namespace finegemm::test {
namespace {

TEST(Output, WhatCannotBePrintedIsAFailure) {
    for (const std::string command :
         {"--help", "--version", "run 8 16 128 --repeats 1", "run 8 16 128 --repeats 1 --json", "doctor",
          "explain 8 16 128", "bench --shapes 8x16x128 --repeats 1", "cache size"}) {
        const Ran ran = finegemm(command + " >/dev/full");
        EXPECT_EQ(ran.code, 1) << command;
        EXPECT_EQ(ran.err, "finegemm: standard output: cannot be written; what was printed is lost\n") << command;
    }
}

TEST(Output, AFileThatCannotBeWrittenIsAFailureAndADeviceStaysOne) {
    const TemporaryDirectory directory;
    std::filesystem::create_symlink("/dev/full", directory / "full.npy");
    std::filesystem::create_directory(directory / "d.npy");
    for (const std::string& arguments : {"run 8 16 128 --repeats 1 --out '" + directory / "full.npy" + "'",
                                         "run 8 16 128 --repeats 1 --out '" + directory / "d.npy" + "'",
                                         "bench --shapes 8x16x128 --output '" + directory / "full.npy" + "'",
                                         "bench --shapes 8x16x128 --output '" + directory / "none/record" + "'"}) {
        const Ran ran = finegemm(arguments);
        EXPECT_EQ(ran.code, 1) << arguments;
        EXPECT_NE(ran.err.find(": cannot be written; choose another file\n"), std::string::npos) << ran.err;
    }
    EXPECT_TRUE(std::filesystem::is_character_file(directory / "full.npy"));
}

TEST(Output, ALogThatCannotBeWrittenIsAFailure) {
    for (const char* log : {"calls:/dev/full", "shapes:/dev/full"}) {
        const Ran ran = finegemm(std::string("run 8 16 128 --device cpu --repeats 1 --log ") + log);
        EXPECT_EQ(ran.code, 1) << log;
        EXPECT_EQ(ran.err, "finegemm: log: /dev/full cannot be written; some of the log is lost\n") << log;
        EXPECT_NE(ran.out.find("result   right"), std::string::npos) << "the run itself was good";
    }
}

TEST(Output, AProcessThatCtrlCEndsLeavesNoFileBehind) {
    const TemporaryDirectory directory;
    const int nameless = open(directory.string().c_str(), O_TMPFILE | O_WRONLY, 0600);
    if (nameless < 0) GTEST_SKIP() << "the file system of " << directory.string() << " has no files without a name";
    close(nameless);
    // timeout, which runs in the foreground of this group, sends it SIGINT after half a second.
    const std::string out = directory / "d.npy";
    const int status =
        std::system(("timeout -s INT 0.5 '" FINEGEMM_CLI_PATH "' run 4096 8192 8192 --device cpu --out '" + out +
                     "' >/dev/null 2>&1")
                        .c_str());
    ASSERT_EQ(WEXITSTATUS(status), 124) << "it was not ended";
    EXPECT_TRUE(std::filesystem::is_empty(directory.string()));
}

}  // namespace
}  // namespace finegemm::test
