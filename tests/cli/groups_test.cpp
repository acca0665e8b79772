// run and bench with --groups and --k-groups: how rows or k are divided and told, what is checked and printed.
// Layer tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include <nlohmann/json.hpp>

#include "cli/random.h"
#include "cli/session.h"
#include "cli/support.h"
#include "workbench/accuracy.h"

namespace finegemm::test {
namespace {

using namespace cli;
using nlohmann::json;

constexpr const char* kForms[] = {"offsets", "indices", "prefix-sums", "masked"};

/// What `run` writes, as recorded but for the numbers that it measures.
void expect_run(const std::string& golden, const std::string& command) {
    const Ran ran = finegemm(command);
    EXPECT_EQ(ran.code, 0) << ran.err;
    const size_t figures = ran.out.find("time ");
    ASSERT_NE(figures, std::string::npos) << ran.out;
    expect_golden(golden, ran.out.substr(0, figures) + without_numbers(ran.out.substr(figures)));
}

TEST(RaggedSizes, AreAllRowsInGroupsOfWhichSomeAreEmpty) {
    for (const uint64_t seed : {1, 2, 3, 4})
        for (const auto& [m, groups] : {std::pair<int64_t, int64_t>{1, 1}, {1, 9}, {1000, 2}, {4096, 64}, {5, 1024}}) {
            const std::vector<int64_t> sizes = ragged_sizes(m, groups, seed);
            EXPECT_EQ(sizes.size(), static_cast<size_t>(groups));
            EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}), m);
            EXPECT_GE(std::ranges::min(sizes), 0);
            EXPECT_EQ(std::ranges::min(sizes) == 0, groups > 1) << m << ", " << groups;
        }
}

TEST(RaggedSizes, DifferAndAreDrawnByTheSeedAlone) {
    EXPECT_EQ(ragged_sizes(4096, 64, 1), ragged_sizes(4096, 64, 1));
    EXPECT_NE(ragged_sizes(4096, 64, 1), ragged_sizes(4096, 64, 2));
    const std::vector<int64_t> sizes = ragged_sizes(4096, 64, 1);
    EXPECT_GT(std::ranges::max(sizes), 64);
    EXPECT_EQ(std::vector(sizes.begin(), sizes.begin() + 4), (std::vector<int64_t>{0, 54, 0, 12}))
        << "another engine would make --seed mean something else";
}

TEST(RowsInForm, SayTheSameSizesInFourWays) {
    const std::vector<int64_t> sizes = {3, 0, 130, 1};
    const auto numbers = [&](const char* form) { return rows_in_form(form, sizes).numbers; };
    EXPECT_EQ(numbers("offsets"), (std::vector<int32_t>{0, 3, 3, 133, 134}));
    EXPECT_EQ(numbers("prefix-sums"), (std::vector<int32_t>{3, 128, 258, 385}));
    EXPECT_EQ(numbers("masked"), (std::vector<int32_t>{3, 0, 130, 1}));
    const RaggedRows indices = rows_in_form("indices", sizes);
    EXPECT_EQ(indices.rows, 385);
    EXPECT_EQ(std::ranges::count(indices.numbers, -1), 385 - 134);
    EXPECT_EQ(indices.numbers[2], 0);
    EXPECT_EQ(indices.numbers[128], 2);
    EXPECT_EQ(indices.numbers[384], 3);
    EXPECT_EQ(rows_in_form("masked", sizes).rows, 130);
    EXPECT_EQ(rows_in_form("masked", sizes).stacks, 4);
}

TEST(Session, HasARightResultInEveryFormOfGroups) {
    Context context;
    const GemmOptions options;
    const Target cpu{nullptr, "cpu", ""};
    for (const char* form : kForms) {
        Session session(context, cpu, {.m = 150, .n = 136, .k = 272, .groups = 6}, {.fields = {}, .form = form}, 1);
        session.time(options, 1);
        const Call args = session.fetch(options);
        const Accuracy right = accuracy_of(args, 1000);
        EXPECT_EQ(right.rows, 150) << form;
        EXPECT_LE(right.of_bound, 1) << form;
        EXPECT_GT(right.relative_rms, 0) << form;
        Call other = args;  // the weights of the group behind
        other.b.matrix.data = static_cast<const uint8_t*>(args.b.matrix.data) + args.b.stride;
        other.b.stride = 0;
        EXPECT_GT(accuracy_of(other, 1000).of_bound, 1) << form << ": groups have weights of their own";
    }
}

TEST(RunGroups, WritesWhatItDidAsText) {
    expect_run("run_groups", "run 64 128 256 --device cpu --groups 5 --form masked --repeats 2");
}

TEST(RunGroups, JsonHasTheFiguresOfEveryForm) {
    for (const char* form : kForms) {
        const Ran ran =
            finegemm(std::string("run 99 40 144 --device cpu --json --repeats 1 --groups 7 --form ") + form);
        ASSERT_EQ(ran.code, 0) << ran.err;
        const json out = json::parse(ran.out);
        EXPECT_EQ(out.at("shape"), json({99, 40, 144}));
        EXPECT_EQ(out.at("form"), form);
        EXPECT_EQ(out.at("group_sizes"), json(ragged_sizes(99, 7, 1)));
        EXPECT_TRUE(out.at("right").get<bool>());
        EXPECT_EQ(out.at("error").at("rows"), 99);
        EXPECT_NEAR(out.at("tflop_per_s").get<double>() * out.at("us").get<double>(), 2e-6 * 99 * 40 * 144, 1e-9);
    }
}

TEST(Session, FillsTheWholeOfOperandsWithoutScalesInEachLayoutOfGroupsOfK) {
    Context context;
    const Target cpu{nullptr, "cpu", ""};
    for (const char* layout : {"columns", "blocks"}) {
        Session session(context, cpu, {.m = 8, .n = 16, .k = 1280, .dtype = DType::BF16, .k_groups = 4},
                        {.fields = {}, .layout = layout}, 1);
        const Call call = session.fetch({});
        for (const ConstMatrix& x : {call.a.matrix, call.b.matrix}) {
            int64_t zeros = 0;
            for (int64_t i = 0; i < x.rows * x.cols; ++i) zeros += static_cast<const uint16_t*>(x.data)[i] == 0;
            EXPECT_EQ(zeros, 0) << layout << ": normal values are hardly ever 0, memory that is not written is";
        }
    }
}

TEST(Session, HasARightResultInEachLayoutOfGroupsOfK) {
    Context context;
    const GemmOptions options;
    const Target cpu{nullptr, "cpu", ""};
    std::vector<Accuracy> found;
    for (const char* layout : {"columns", "blocks"}) {
        Session session(context, cpu, {.m = 40, .n = 136, .k = 1280, .k_groups = 4}, {.fields = {}, .layout = layout},
                        1);
        session.time(options, 1);
        const Call args = session.fetch(options);
        found.push_back(accuracy_of(args, 1000));
        EXPECT_EQ(found.back().rows, 160) << layout;
        EXPECT_LE(found.back().of_bound, 1) << layout;
        EXPECT_GT(found.back().relative_rms, 0) << layout;
        Call other = args;  // each group's k in a matrix of another
        other.d.matrix.data = static_cast<float*>(args.d.matrix.data) + args.d.stride;
        other.d.stride = 0;
        EXPECT_GT(accuracy_of(other, 1000).of_bound, 1) << layout << ": groups have results of their own";
    }
    EXPECT_EQ(found[0].relative_rms, found[1].relative_rms) << "the same matrices, laid out in two ways";
}

TEST(ExplainKGroups, IsAsRecorded) {
    const Ran ran = finegemm("explain 4096 7168 32768 --k-groups 8");
    EXPECT_EQ(ran.code, 0) << ran.err;
    expect_golden("explain_k_grouped", ran.out);
}

TEST(RunKGroups, WritesWhatItDidAsText) {
    expect_run("run_k_groups", "run 64 128 1280 --device cpu --k-groups 5 --layout blocks --repeats 2");
}

TEST(RunKGroups, JsonHasTheFiguresOfEachLayout) {
    for (const char* layout : {"columns", "blocks"}) {
        const Ran ran =
            finegemm(std::string("run 33 40 1024 --device cpu --json --repeats 1 --k-groups 7 --layout ") + layout);
        ASSERT_EQ(ran.code, 0) << ran.err;
        const json out = json::parse(ran.out);
        EXPECT_EQ(out.at("shape"), json({33, 40, 1024}));
        EXPECT_EQ(out.at("layout"), layout);
        std::vector<int64_t> sizes = ragged_sizes(8, 7, 1);
        for (int64_t& size : sizes) size *= 128;
        EXPECT_EQ(out.at("group_k"), json(sizes));
        EXPECT_TRUE(out.at("right").get<bool>());
        EXPECT_EQ(out.at("error").at("rows"), 7 * 33);
    }
}

TEST(RunGroups, TakesALineAndAddsToD) {
    for (const char* line : {"gemm 99x40x144 groups=7", "gemm 33x40x1024 k_groups=7 accumulate",
                             "gemm 33x40x144 e4m3:row128 e4m3:row128 f32 accumulate"}) {
        const Ran ran = finegemm(std::string("run --device cpu --json --repeats 3 '") + line + "'");
        ASSERT_EQ(ran.code, 0) << ran.err;
        EXPECT_TRUE(json::parse(ran.out).at("right").get<bool>()) << line;
    }
}

TEST(BenchGroups, RecordSaysWhichGroupsOfK) {
    const Ran ran = finegemm("bench --device cpu --repeats 1 --json --k-groups 6 --layout blocks --shapes 20x16x1024");
    ASSERT_EQ(ran.code, 0) << ran.err;
    const json record = json::parse(ran.out), row = record.at("rows").at(0);
    EXPECT_EQ(record.at("shapes"), "--shapes --k-groups 6 --layout blocks");
    EXPECT_EQ(row.at("kind"), "k_grouped");
    EXPECT_EQ(row.at("groups"), 6);
    EXPECT_EQ(row.at("layout"), "blocks");
    EXPECT_GT(row.at("us").at("finegemm").get<double>(), 0);
    EXPECT_LE(row.at("error").at("finegemm").get<double>(), 1);
}

TEST(BenchGroups, RecordSaysWhichGroups) {
    const Ran ran = finegemm("bench --device cpu --repeats 1 --json --groups 6 --form prefix-sums --shapes 20x16x128");
    ASSERT_EQ(ran.code, 0) << ran.err;
    const json record = json::parse(ran.out), row = record.at("rows").at(0);
    EXPECT_EQ(record.at("shapes"), "--shapes --groups 6 --form prefix-sums");
    EXPECT_EQ(row.at("kind"), "grouped");
    EXPECT_EQ(row.at("groups"), 6);
    EXPECT_EQ(row.at("form"), "prefix-sums");
    const auto sizes = ragged_sizes(20, 6, 1);
    EXPECT_EQ(row.at("busy_groups"), 6 - std::ranges::count(sizes, 0));
    EXPECT_GT(row.at("us").at("finegemm").get<double>(), 0);
    EXPECT_LE(row.at("error").at("finegemm").get<double>(), 1);
}

}  // namespace
}  // namespace finegemm::test
