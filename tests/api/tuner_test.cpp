// What `finegemm tune` measures and keeps, without measuring. Layer tests.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include <finegemm/core/arithmetic.h>

#include "support/error_of.h"
#include "support/private_folder.h"
#include "workbench/tuner.h"

namespace finegemm::test {
namespace {

const plan::DeviceSpec& h200() { return *plan::find_device("h200"); }

class TunerTest : public testing::Test {
protected:
    TunerTest() { std::filesystem::create_directory(directory); }
    /// A product of 64 x 4096 x 4096.
    static GemmShape shape(bool batch_invariant = false, int32_t num_sms = 0) {
        return {.m = 64, .n = 4096, .k = 4096, .num_sms = num_sms, .batch_invariant = batch_invariant};
    }
    std::vector<std::string> kernels(const GemmShape& of = shape(), size_t most = SIZE_MAX) const {
        return Tuner(h200(), file).kernels(of, most);
    }
    /// Times of the first two kernels: the usual one and another.
    std::vector<TimedKernel> times(double usual, double other, const GemmShape& of = shape()) const {
        return {{kernels(of)[0], usual}, {kernels(of)[1], other}};
    }
    plan::PlanTable written() const { return plan::load_table(file, h200()); }

    const test::PrivateFolder folder;
    const std::string directory = folder.path() + "/tuner", file = directory + "/table.json";
};

TEST_F(TunerTest, MeasuresTheUsualKernelAndAllOthersThatCan) {
    const plan::Problem problem{64, 4096, 4096};
    const auto names = kernels();
    EXPECT_EQ(names[0], plan::name_of(plan::choose(problem, h200()).config));
    EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
    size_t can = 0;
    for (const GemmConfig& c : plan::candidates()) can += plan::rejected(problem, h200(), c).empty();
    EXPECT_EQ(names.size(), can);
    for (const std::string& name : names)
        EXPECT_EQ(plan::rejected(problem, h200(), plan::config_named(name)), "") << name;
    for (size_t i = 2; i < names.size(); ++i)
        EXPECT_LE(plan::cost(problem, h200(), plan::config_named(names[i - 1])).total,
                  plan::cost(problem, h200(), plan::config_named(names[i])).total);
}

TEST_F(TunerTest, MeasuresTheCheapestByTheModelWhenAskedForFew) {
    const auto all = kernels(), few = kernels(shape(), 3);
    EXPECT_EQ(few, std::vector<std::string>(all.begin(), all.begin() + 3));
}

TEST_F(TunerTest, UsualKernelOfTheShippedTableIsMeasuredHoweverFewAreAskedFor) {
    const auto names = Tuner(h200(), file).kernels({.m = 1, .n = 24576, .k = 1536}, 1);
    EXPECT_EQ(names, std::vector<std::string>{"m64n32s8w1_x2"});
}

TEST_F(TunerTest, BatchInvariantCallsAreMeasuredWithKernelsOfOneOrderOfSums) {
    EXPECT_LT(kernels(shape(true)).size(), kernels().size());
    for (const std::string& name : kernels(shape(true)))
        EXPECT_EQ(arithmetic_of(plan::config_named(name)), Arithmetic{}) << name;
}

TEST_F(TunerTest, RecordsAKernelThatIsFasterByMoreThanTheSpread) {
    Tuner tuner(h200(), file);
    const Tuned tuned = tuner.record(shape(), times(10.2, 10));
    EXPECT_TRUE(tuned.recorded);
    EXPECT_EQ(tuned.fastest.name, kernels()[1]);
    EXPECT_EQ(tuned.usual.name, kernels()[0]);
    EXPECT_NEAR(tuned.gain(), 0.02, 1e-9);
    tuner.write();
    const plan::PlanTable table = written();
    EXPECT_EQ(table.device, "h200");
    EXPECT_EQ(table.sms, 132u);
    ASSERT_EQ(table.entries.size(), 1u);
    EXPECT_EQ(
        table.entries[0],
        (plan::TableEntry{
            .problem = {64, 4096, 4096}, .kernel = kernels()[1], .us = 10, .usual = kernels()[0], .usual_us = 10.2}));
    EXPECT_EQ(plan::choose({64, 4096, 4096}, h200(), &table).source, plan::Source::UserTable);
}

TEST_F(TunerTest, LeavesTheUsualKernelWhereOthersAreHardlyFaster) {
    Tuner tuner(h200(), file);
    EXPECT_FALSE(tuner.record(shape(), times(10.1, 10)).recorded);
    EXPECT_FALSE(tuner.record(shape(), times(10, 20)).recorded);
    tuner.write();
    EXPECT_TRUE(written().entries.empty());
}

TEST_F(TunerTest, DropsAnEntryThatDoesNotHoldAnyMore) {
    Tuner tuner(h200(), file);
    ASSERT_TRUE(tuner.record(shape(), times(12, 10)).recorded);
    EXPECT_FALSE(tuner.record(shape(false, 132), times(10, 12)).recorded) << "132 SMs are all";
    tuner.write();
    EXPECT_TRUE(written().entries.empty());
}

TEST_F(TunerTest, KeepsEntriesOfOtherShapesAndOfOtherOptions) {
    {
        Tuner tuner(h200(), file);
        tuner.record(shape(), times(12, 10));
        tuner.write();
    }
    Tuner tuner(h200(), file);
    tuner.record(shape(false, 100), times(12, 10, shape(false, 100)));
    tuner.record({.m = 64, .n = 4096, .k = 8192}, times(12, 11));
    tuner.write();
    const auto entries = written().entries;
    ASSERT_EQ(entries.size(), 3u);
    EXPECT_EQ(entries[0].problem, (plan::Problem{64, 4096, 4096}));
    EXPECT_EQ(entries[1].problem, (plan::Problem{64, 4096, 4096, false, 100}));
    EXPECT_EQ(entries[2].us, 11);
}

TEST_F(TunerTest, MendsATableWithKernelsThatAreGone) {
    plan::PlanTable old{.device = "h200", .sms = 132, .version = "0.0.1"};
    old.entries = {{.problem = {1, 8, 16}, .kernel = "m1n1", .us = 1, .usual = "m2n2", .usual_us = 2},
                   {.problem = {64, 4096, 4096}, .kernel = kernels()[1], .us = 1, .usual = "m2n2", .usual_us = 2}};
    std::ofstream(file) << plan::text_of(old);
    EXPECT_THROW(written(), Error);
    Tuner(h200(), file).write();
    ASSERT_EQ(written().entries.size(), 1u);
    EXPECT_EQ(written().entries[0], old.entries[1]);
}

TEST_F(TunerTest, DoesNotTouchATableOfAnotherDeviceOrAFileThatIsNone) {
    Tuner(h200(), file).write();
    EXPECT_EQ(error_of([&] { Tuner(*plan::find_device("h100"), file); }).code(), Errc::InvalidArgument);
    std::ofstream(file) << "my notes";
    EXPECT_EQ(error_of([&] { Tuner(h200(), file); }).code(), Errc::Io);
}

TEST_F(TunerTest, LeavesNothingElseBehind) {
    Tuner(h200(), file).write();
    const std::string nowhere = directory + "/none/table.json";
    EXPECT_EQ(error_of([&] { Tuner(h200(), nowhere).write(); }).code(), Errc::Io);
    std::filesystem::create_directory(directory + "/taken");
    EXPECT_EQ(error_of([&] { Tuner(h200(), directory + "/taken/.").write(); }).code(), Errc::Io);
    size_t files = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) files += entry.is_regular_file();
    EXPECT_EQ(files, 1u);
}

}  // namespace
}  // namespace finegemm::test
