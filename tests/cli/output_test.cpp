// Output that cannot be written. Layer tests.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace finegemm::test
