// Messages speak in the words of who called: options of the command, shapes as they were typed. Layer tests.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/support.h"

namespace finegemm::test {
namespace {

TEST(Words, AShapeIsNamedAsItWasTyped) {
    const std::pair<const char*, const char*> cases[] = {
        {"run 64 512 1000", "K is 1000, must be a multiple of 16"},
        {"bench --shapes 64x512x1000", "shape '64x512x1000': K is 1000, must be a multiple of 16"},
        {"bench --shapes 8x16x128 8x12x128", "shape '8x12x128': N is 12, must be a multiple of 8"},
        {"bench --k-groups 2 --shapes 8x16x144", "shape '8x16x144': K: is 144, must be a multiple of 128"},
        {"tune --shapes 64x512", "shape '64x512': must be MxNxK"},
        {"tune --shapes 64x512x1000", "shape '64x512x1000': K is 1000, must be a multiple of 16"},
    };
    for (const auto& [arguments, message] : cases) {
        const Ran ran = finegemm(arguments);
        EXPECT_EQ(ran.code, 2) << arguments << ran.err;
        EXPECT_TRUE(ran.err.starts_with(std::string("finegemm: ") + message)) << ran.err;
        EXPECT_EQ(ran.out, "") << arguments;
    }
}

TEST(Words, AnArgumentIsTheOptionOfItsName) {
    const std::pair<const char*, const char*> cases[] = {
        {"run 8 16 128 --num-sms -1", "--num-sms: is -1"},
        {"run 8 16 128 --groups 0", "--groups: is 0"},
        {"run 8 16 128 --expected-m 3", "--expected-m: is 3, does not belong to one product"},
        {"run 8 16 128 --accumulate",
         "--accumulate: is set, but d is of bf16, must be of f32; set --out-dtype and "
         "--row-b-scales, or leave it out"},
        {"run 8 16 128 --device cpu --config x", "--config: 'x' is not the name"},
        {"explain 8 16 128 --device b200", "--device: 'b200' is not known"},
        {"run --a num_sms/config.npy", "num_sms/config.npy: cannot be read"},
        {"bench --file config", "config: cannot be read"},
    };
    for (const auto& [arguments, message] : cases) {
        const Ran ran = finegemm(arguments);
        EXPECT_TRUE(ran.err.starts_with(std::string("finegemm: ") + message)) << ran.err;
    }
}

TEST(Words, ScalesAreToldByTheOptionsOfTheirFiles) {
    const TemporaryDirectory directory;
    write_text(directory / "x.npy", npy("|u1", "256, 384", std::string(256 * 384, '\x38')));
    write_text(directory / "s23.npy", npy("<f4", "2, 3", bytes_of(std::vector<float>(6, 1))));
    write_text(directory / "s32.npy", npy("<f4", "3, 2", bytes_of(std::vector<float>(6, 1))));
    write_text(directory / "s256.npy", npy("<f4", "256, 3", bytes_of(std::vector<float>(768, 1))));
    const std::string a = "run --device cpu --json --repeats 1 --a '" + directory / "x.npy" + "' --sfa '",
                      b = "run --device cpu --json --repeats 1 --b '" + directory / "x.npy" + "' --sfb '";
    const std::pair<std::string, const char*> cases[] = {
        {a + directory / "s23.npy",
         "--sfa: has shape [2, 3], must be [256, 3], one for each row and 128 columns of --a; "
         "check that it belongs there\n"},
        {b + directory / "s32.npy",
         "--sfb: has shape [3, 2], must be [2, 3], one for each 128x128 block of --b, or "
         "[256, 3], one for each row and 128 columns; transpose it\n"},
    };
    for (const auto& [arguments, message] : cases) {
        const Ran ran = finegemm(arguments + "'");
        EXPECT_EQ(ran.code, 2);
        EXPECT_EQ(ran.err, std::string("finegemm: ") + message);
    }
    const auto right = nlohmann::json::parse(finegemm(b + directory / "s256.npy" + "'").out);
    EXPECT_EQ(right.at("row_b_scales"), true) << "the shape of the scales says it";
    EXPECT_FALSE(nlohmann::json::parse(finegemm(b + directory / "s23.npy" + "'").out).contains("row_b_scales"));
}

}  // namespace
}  // namespace finegemm::test
