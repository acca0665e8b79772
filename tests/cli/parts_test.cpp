// The parts of the tool below its commands: files, random matrices, numbers for people. Layer tests.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "cli/files/output.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/support.h"
#include "cli/text.h"
#include "support/error_of.h"

namespace finegemm::test {

using namespace finegemm::cli;

TEST(Progress, SaysWhatALongStepHasTakenAndWillTake) {
    EXPECT_EQ(share_text(0.25, 1.5), ", 25%, 0:02");
    EXPECT_EQ(share_text(0.25, 15), ", 25%, 0:15, 0:45 left");
    EXPECT_EQ(share_text(0.5, 3723), ", 50%, 62:03, 62:03 left");
    EXPECT_EQ(share_text(0, 60), ", 0%, 1:00");
}

TEST(Files, TensorIsReadFromTheMiddleOfItsFile) {
    const TemporaryDirectory directory;
    write_text(directory / "m.safetensors",
               safetensors(R"({"u":{"dtype":"F8_E4M3","shape":[1,2],"data_offsets":[0,2]},)"
                           R"("w":{"dtype":"F8_E4M3","shape":[2,2],"data_offsets":[2,6]}})",
                           "abcdef"));
    const HostMatrix m = read_matrix(name_of_matrix(directory / "m.safetensors:w"));
    EXPECT_EQ(m.dtype, DType::E4M3);
    EXPECT_EQ(std::string(m.bytes.begin(), m.bytes.end()), "cdef");
}

TEST(Files, AMatrixOfEveryTypeReadsBackFromEveryFormat) {
    const TemporaryDirectory directory;
    for (const DType dtype : {DType::E4M3, DType::BF16, DType::F16, DType::F32})
        for (const char* file : {"d.npy", "d.safetensors:x y", "d.safetensors"}) {
            HostMatrix m = make_matrix(dtype, 3, 5);
            for (size_t i = 0; i < m.bytes.size(); ++i) m.bytes[i] = static_cast<uint8_t>(0x38 + 7 * i % 8);
            OutputFile(directory / file).write(m);
            MatrixName name = name_of_matrix(directory / file);
            if (name.safetensors && name.tensor.empty()) name.tensor = "d";
            const HostMatrix back = read_matrix(name);
            EXPECT_EQ(back.rows, 3);
            EXPECT_EQ(back.cols, 5);
            if (dtype == DType::BF16 && !name.safetensors) {
                ASSERT_EQ(back.dtype, DType::F32) << "NumPy knows no bf16";
                for (size_t i = 0; i < 15; ++i) {
                    EXPECT_EQ(std::memcmp(&back.bytes[4 * i + 2], &m.bytes[2 * i], 2), 0) << i;
                    EXPECT_EQ(back.bytes[4 * i] | back.bytes[4 * i + 1], 0) << i;
                }
            } else {
                EXPECT_EQ(back.dtype, dtype) << file;
                EXPECT_EQ(back.bytes, m.bytes) << file;
            }
        }
}

TEST(Files, WhatIsWrittenIsReadBack) {
    const TemporaryDirectory directory;
    const HostMatrix half{DType::F32, 2, 2, std::vector<uint8_t>(8)};
    const Error e = error_of([&] { OutputFile(directory / "d.npy").write(half); });
    EXPECT_EQ(e.code(), Errc::Io);
    EXPECT_TRUE(contains(e, "has 8 bytes of data, but shape [2, 2] needs 16")) << e.what();
}

TEST(Files, AnOutputThatCannotBeIsKnownBeforeThereIsAMatrix) {
    const TemporaryDirectory directory;
    EXPECT_EQ(error_of([&] { OutputFile(directory / "none/d.npy"); }).code(), Errc::Io);
    for (const char* name : {"d.txt", "d", "d.safetensors:__metadata__", "d.safetensors:\xff"})
        EXPECT_EQ(error_of([&] { OutputFile(directory / name); }).code(), Errc::InvalidArgument) << name;
    EXPECT_TRUE(std::filesystem::is_empty(directory.string()));
}

TEST(Files, WhatCannotBeReadIsAnIoErrorThatNamesIt) {
    const TemporaryDirectory directory;
    std::filesystem::create_directory(directory / "d.npy");
    write_text(directory / "empty.npy", "");
    write_text(directory / "empty.safetensors", "");
    for (const char* name : {"none.npy", "d.npy", "empty.npy", "empty.safetensors:w", "none.safetensors:w"}) {
        const Error e = error_of([&] { read_matrix(name_of_matrix(directory / name)); });
        EXPECT_EQ(e.code(), Errc::Io) << name;
        EXPECT_TRUE(contains(e, directory.string())) << e.what();
    }
    EXPECT_EQ(error_of([] { name_of_matrix("x.txt"); }).code(), Errc::InvalidArgument);
    EXPECT_EQ(error_of([] { name_of_matrix("x.safetensorsy"); }).code(), Errc::InvalidArgument);
}

TEST(Files, MatrixThatNoMachineHoldsIsAnError) {
    EXPECT_EQ(error_of([] { make_matrix(DType::F32, INT32_MAX, INT32_MAX); }).code(), Errc::OutOfMemory);
}

TEST(RandomMatrix, IsStandardNormal) {
    const HostMatrix m = random_matrix(1000, 1000, 3);
    const float* values = reinterpret_cast<const float*>(m.bytes.data());
    double sum = 0, squares = 0, beyond_two = 0;
    for (int i = 0; i < 1'000'000; ++i) {
        sum += values[i];
        squares += static_cast<double>(values[i]) * values[i];
        beyond_two += std::abs(values[i]) > 2;
    }
    EXPECT_NEAR(sum / 1e6, 0, 5e-3);        // five standard deviations of a mean of 10^6
    EXPECT_NEAR(squares / 1e6, 1, 7.1e-3);  // the variance of squares is 2
    EXPECT_NEAR(beyond_two / 1e6, 0.0455, 1.1e-3);
}

TEST(RandomMatrix, DependsOnTheSeedAndNothingElse) {
    EXPECT_EQ(random_matrix(8, 16, 5).bytes, random_matrix(8, 16, 5).bytes);
    EXPECT_NE(random_matrix(8, 16, 5).bytes, random_matrix(8, 16, 6).bytes);
}

TEST(RandomMatrix, RowsOfALargeOneDiffer) {
    const HostMatrix m = random_matrix(4096, 4096, 1);  // more than are drawn
    std::set<std::string> rows;
    for (size_t r = 0; r < 4096; ++r)
        rows.emplace(m.bytes.begin() + static_cast<int64_t>(r * 16384),
                     m.bytes.begin() + static_cast<int64_t>(r * 16384 + 64));
    EXPECT_EQ(rows.size(), 4096u);
}

TEST(Text, NumbersHaveThreeDigitsAndTheUnitThatSuitsThem) {
    EXPECT_EQ(time_text(0.5), "0.50 us");
    EXPECT_EQ(time_text(12.34), "12.3 us");
    EXPECT_EQ(time_text(4567), "4.57 ms");
    EXPECT_EQ(time_text(7.89e6), "7.89 s");
    EXPECT_EQ(time_text(7.89e9), "7890 s");
    EXPECT_EQ(bytes_text(999), "999 bytes");
    EXPECT_EQ(bytes_text(303'367), "303 KB");
    EXPECT_EQ(bytes_text(256 << 20), "268 MB");
    EXPECT_EQ(rate_text(999.9, "FLOP/s"), "1.00 GFLOP/s");
    EXPECT_EQ(rate_text(1.4e9, "FLOP/s"), "1.40 PFLOP/s");
    EXPECT_EQ(age_text(119), "119 s");
    EXPECT_EQ(age_text(7199), "119 min");
    EXPECT_EQ(age_text(3600 * 47), "47 h");
    EXPECT_EQ(age_text(86400 * 3), "3 days");
}

TEST(Text, NumberIsAllOfTheTextOrNone) {
    EXPECT_EQ(number_of("0"), 0);
    EXPECT_EQ(number_of("9223372036854775807"), INT64_MAX);
    for (const char* text : {"", "-1", "+1", " 1", "1 ", "1x", "0x10", "9223372036854775808", "1e3"})
        EXPECT_EQ(number_of(text), -1) << text;
}

}  // namespace finegemm::test
