// Measured choices: those that come with the library, those of a file, and what a file may not say. Layer tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "plan/table.h"
#include "support/error_of.h"
#include "support/private_folder.h"

namespace finegemm::plan {
namespace {

using test::contains;
using test::error_of;

const DeviceSpec& h200() { return *find_device("h200"); }

constexpr Problem kProblem{64, 4096, 4096};
constexpr const char* kKernel = "m64n64s5w1_x2";

PlanTable table_of(const Problem& problem = kProblem, const std::string& kernel = kKernel) {
    return {.device = "h200",
            .sms = 132,
            .version = "0.1.0",
            .entries = {{.problem = problem, .kernel = kernel, .us = 8.5, .usual = "m64n32s8w1_x2", .usual_us = 9.25}}};
}

class TableFile : public testing::Test {
protected:
    void write(const std::string& text) const { std::ofstream(path) << text; }
    const test::PrivateFolder folder;
    const std::string path = folder.path() + "/table.json";
};

TEST(Choice, TakesTheUsersTableBeforeTheShippedOneBeforeTheModel) {
    const Problem shipped{1, 24576, 1536};
    EXPECT_EQ(choose(shipped, h200()), (Choice{config_named("m64n32s8w1_x2"), Source::ShippedTable}));
    const PlanTable user = table_of(shipped, "m64n64s6w1_x2");
    EXPECT_EQ(choose(shipped, h200(), &user), (Choice{config_named("m64n64s6w1_x2"), Source::UserTable}));
    EXPECT_EQ(choose(kProblem, h200(), &user).source, Source::Model) << "it has no entry for this problem";
    EXPECT_EQ(choose(kProblem, h200(), &user), choose(kProblem, h200()));
}

TEST(Choice, OfATableIsForItsProblemAlone) {
    const PlanTable user = table_of();
    ASSERT_EQ(choose(kProblem, h200(), &user).source, Source::UserTable);
    for (Problem other : {Problem{65, 4096, 4096},
                          {64, 4104, 4096},
                          {64, 4096, 4112},
                          {64, 4096, 4096, true},
                          {64, 4096, 4096, false, 131},
                          {.m = 64, .n = 4096, .k = 4096, .b = kRowScaled},
                          {.m = 64, .n = 4096, .k = 4096, .groups = {Grouping::Rows, 4}}})
        EXPECT_EQ(choose(other, h200(), &user).source, Source::Model) << other.m;
    EXPECT_EQ(choose({64, 4096, 4096, false, 132}, h200(), &user).source, Source::UserTable) << "132 SMs are all";
}

TEST(ShippedTable, IsOfAWholeH200OrH100) {
    for (const char* name : {"h200", "h100"}) {
        DeviceSpec device = *find_device(name);
        EXPECT_FALSE(shipped_table(device).empty()) << name;
        device.sms = 60;
        EXPECT_TRUE(shipped_table(device).empty()) << name;
    }
    EXPECT_TRUE(shipped_table(*find_device("gh200")).empty());
    EXPECT_NE(shipped_table(h200()).data(), shipped_table(*find_device("h100")).data()) << "each has its own";
}

TEST(ShippedTable, HasEachProblemOnceWithAKernelThatTakesIt) {
    for (const char* name : {"h200", "h100"}) {
        const DeviceSpec& device = *find_device(name);
        const auto table = shipped_table(device);
        for (const ShippedEntry& e : table) {
            EXPECT_EQ(fault({.problem = e.problem, .kernel = std::string(e.kernel)}, device), "") << e.kernel;
            EXPECT_EQ(std::ranges::count(table, e.problem, &ShippedEntry::problem), 1) << e.problem.m;
        }
    }
}

TEST(Explain, SaysWhereTheChoiceComesFrom) {
    const auto chosen = [](const Problem& p, const PlanTable* user) -> nlohmann::json {
        return nlohmann::json::parse(explain(p, h200(), user))["chosen"];
    };
    const PlanTable user = table_of();
    EXPECT_EQ(chosen({1, 24576, 1536}, &user)["source"], "shipped table");
    EXPECT_EQ(chosen(kProblem, nullptr)["source"], "model");
    EXPECT_EQ(chosen(kProblem, &user)["source"], "user table");
    EXPECT_EQ(chosen(kProblem, &user)["name"], kKernel);
}

TEST(Table, ReadsBackAsItWasWritten) {
    PlanTable table = table_of();
    EXPECT_EQ(parse_table(text_of(table), "t"), table);
    for (const Problem& problem :
         {Problem{1, 8, 16, true, 100, {}, {.scaling = Scaling::Rows}, {DType::F32, true}},
          Problem{.m = 8192, .n = 4096, .k = 7168, .num_sms = 3, .groups = {Grouping::Rows, 64, 100, 128}},
          Problem{.m = 8, .n = 8, .k = 256, .b = kRowScaled, .d = {DType::F32, true}, .groups = {Grouping::K, 3}}}) {
        table.entries.push_back(table.entries[0]);
        table.entries.back().problem = problem;
    }
    EXPECT_EQ(parse_table(text_of(table), "t"), table);
    table.entries.clear();
    EXPECT_EQ(parse_table(text_of(table), "t"), table);
}

TEST(Table, IsTextWithALineForEachEntry) {
    EXPECT_EQ(text_of(table_of({64, 4096, 4096, true, 100})), R"({
 "format": 2,
 "device": "h200",
 "sms": 132,
 "version": "0.1.0",
 "entries": [
  {"problem":"gemm 64x4096x4096 e4m3:row128 e4m3:block128 bf16 num_sms=100 batch_invariant",)"
                                                              R"("kernel":"m64n64s5w1_x2","us":8.5,)"
                                                              R"("usual":"m64n32s8w1_x2","usual_us":9.25}
 ]
}
)");
}

TEST(Table, ThatIsNoneIsRejectedWithItsFileAndTheReason) {
    const std::string good = text_of(table_of());
    const auto with = [&](const std::string& what, const std::string& by) {
        std::string text = good;
        const size_t at = text.find(what);
        EXPECT_NE(at, text.npos) << what;
        return text.replace(at, what.size(), by);
    };
    const size_t begin = good.find("  {");
    const std::string entry = good.substr(begin, good.find("\n ]") - begin);
    const std::pair<std::string, const char*> cases[] = {
        {"", "it is not JSON at byte 1;"},
        {good.substr(0, good.size() / 2), "it is not JSON at byte "},
        {"[]", "must be an object, not array"},
        {"{}", "format is missing"},
        {"1e999", "it has a number that is too large"},
        {with("\"format\": 2", "\"format\": 1"), "it has format 1, this library reads 2"},
        {with("\"h200\"", "7"), "device is 7, must be a string"},
        {with("132", "-1"), "sms is -1, must be a whole number from 1"},
        {with("\"sms\": 132,", ""), "sms is missing"},
        {with("\"0.1.0\"", "null"), "version is null, must be a string"},
        {R"({"format": 2, "device": "h200", "sms": 132, "version": "", "entries": [7]})",
         "entry 1: must be an object, not number"},
        {R"({"format": 2, "device": "h200", "sms": 132, "version": "", "entries": {}})", "must be a list"},
        {with("\"problem\":\"gemm 64x", "\"shape\":\"gemm 64x"), "entry 1: problem is missing"},
        {with("\"gemm 64x4096x4096 e4m3:row128 e4m3:block128 bf16\"", "7"), "entry 1: problem is 7, must be a string"},
        {with("64x4096x4096", "64x4096"), "is not understood at '64x4096', must be gemm MxNxK"},
        {with("64x4096x4096", "64x4096x4096.5"), "is not understood at '64x4096x4096.5'"},
        {with("64x4096x4096", "0x4096x4096"), "entry 1: M is 0"},
        {with("64x4096x4096", "64x-8x4096"), "entry 1: N is -8, must be from 1 to 2147483647"},
        {with("64x4096x4096", "64x4096x4294967296"), "entry 1: K is 4294967296"},
        {with(" bf16", " bf16 batch_invariant=1"), "is not understood at 'batch_invariant=1'"},
        {with(" bf16", " bf16 num_sms=-1"), "entry 1: num_sms: is -1"},
        {with("\"kernel\":\"m64n64s5w1_x2\"", "\"kernel\":null"), "entry 1: kernel is null, must be a string"},
        {with("\"us\":8.5", "\"us\":\"8.5\""), "entry 1: us is \"8.5\", must be a number above 0"},
        {with("\"us\":8.5", "\"us\":0"), "entry 1: us is 0"},
        {with("\"usual_us\":9.25", "\"used\":1"), "entry 1: usual_us is missing"},
        {with("\n ]", ",\n" + entry + "\n ]"),
         "entry 2 (gemm 64x4096x4096 e4m3:row128 e4m3:block128 bf16) has a problem that an entry before it has"},
    };
    for (const auto& [text, reason] : cases) {
        const Error e = error_of([&] { parse_table(text, "here/t.json"); });
        EXPECT_EQ(e.code(), Errc::Io) << text;
        EXPECT_TRUE(contains(e, "here/t.json: is no plan table: ")) << e.what();
        EXPECT_TRUE(contains(e, reason)) << e.what() << "\nwanted: " << reason;
        EXPECT_TRUE(contains(e, "finegemm tune")) << e.what();
        EXPECT_FALSE(contains(e, "json.exception")) << e.what();
    }
}

TEST_F(TableFile, IsLoadedForItsDevice) {
    write(text_of(table_of()));
    EXPECT_EQ(load_table(path, h200()), table_of());
    EXPECT_EQ(load_table("", h200()), PlanTable{}) << "no file, no entries";
}

TEST_F(TableFile, OfAnotherDeviceIsRejected) {
    write(text_of(table_of()));
    DeviceSpec slice = h200();
    slice.sms = 60;
    for (const DeviceSpec& device : {*find_device("h100"), slice}) {
        const Error e = error_of([&] { load_table(path, device); });
        EXPECT_EQ(e.code(), Errc::InvalidArgument);
        EXPECT_TRUE(contains(e, path + " was measured on device 'h200' with 132 SMs, this one is '" +
                                    std::string(device.name) + "' with " + std::to_string(device.sms)))
            << e.what();
        EXPECT_TRUE(contains(e, "finegemm tune")) << e.what();
    }
}

TEST_F(TableFile, WithAKernelThatCannotBeUsedIsRejectedWithTheEntry) {
    const std::pair<PlanTable, const char*> cases[] = {
        {table_of(kProblem, "m1n1"),
         "entry 1 (gemm 64x4096x4096 e4m3:row128 e4m3:block128 bf16): 'm1n1' is no kernel of this library"},
        {table_of(kProblem, "m128n128s6w2"),
         "entry 1 (gemm 64x4096x4096 e4m3:row128 e4m3:block128 bf16): kernel 'm128n128s6w2' cannot take it: a tile of "
         "half as many rows holds all of M"},
        {table_of({64, 4096, 4096, true}, "m64n32s7w1_splitK3_x2"), "results shall be batch-invariant"},
    };
    for (const auto& [table, reason] : cases) {
        write(text_of(table));
        const Error e = error_of([&] { load_table(path, h200()); });
        EXPECT_EQ(e.code(), Errc::Io);
        EXPECT_TRUE(contains(e, path) && contains(e, reason)) << e.what() << "\nwanted: " << reason;
        EXPECT_TRUE(contains(e, "of version 0.1.0: run `finegemm tune` again, or remove the entry")) << e.what();
    }
}

TEST_F(TableFile, ThatSomebodyElseCanHaveWrittenHasNoEntries) {
    write(text_of(table_of()));
    ASSERT_EQ(load_table(path, h200()), table_of());
    std::filesystem::permissions(path, std::filesystem::perms::others_write, std::filesystem::perm_options::add);
    EXPECT_EQ(load_table(path, h200()), PlanTable{});
    EXPECT_EQ(load_table(path, h200(), folder.path()), table_of()) << "unless its folder is named as trusted";
}

TEST_F(TableFile, ThatCannotBeReadIsAnIoError) {
    write("");
    for (const std::string& file : {path, folder.path() + "/", std::string("/nonexistent/t.json")}) {
        const Error e = error_of([&] { load_table(file, h200()); });
        EXPECT_EQ(e.code(), Errc::Io);
        EXPECT_TRUE(contains(e, file + ": cannot be read or is empty")) << e.what();
    }
}

}  // namespace
}  // namespace finegemm::plan
