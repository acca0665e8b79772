// The C ABI: its numbers, its structs, its errors. What is wrong with a call is in misuse_test.cpp. Layer tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <utility>

#include <nlohmann/json.hpp>

#include <finegemm/error.h>
#include <finegemm/quantize.h>
#include <finegemm/scale_layout.h>

#include "api/calls.h"
#include "support/private_folder.h"

namespace finegemm::test {
namespace {

template <typename Enum>
constexpr int value(Enum e) {
    return static_cast<int>(e);
}

static_assert(FINEGEMM_INVALID_ARGUMENT == value(Errc::InvalidArgument) &&
              FINEGEMM_UNSUPPORTED == value(Errc::Unsupported) && FINEGEMM_DRIVER == value(Errc::Driver) &&
              FINEGEMM_COMPILE == value(Errc::Compile) && FINEGEMM_IO == value(Errc::Io) &&
              FINEGEMM_OUT_OF_MEMORY == value(Errc::OutOfMemory) && FINEGEMM_INTERNAL == value(Errc::Internal) &&
              FINEGEMM_PEER == value(Errc::Peer));
static_assert(FINEGEMM_E4M3 == value(DType::E4M3) && FINEGEMM_BF16 == value(DType::BF16) &&
              FINEGEMM_F16 == value(DType::F16) && FINEGEMM_F32 == value(DType::F32));
static_assert(FINEGEMM_CPU == value(DeviceType::Cpu) && FINEGEMM_CUDA == value(DeviceType::Cuda));
static_assert(FINEGEMM_NUMERICS_FAST == value(Numerics::Fast) && FINEGEMM_NUMERICS_EXACT == value(Numerics::Exact) &&
              FINEGEMM_NUMERICS_HOPPER == value(Numerics::Hopper));
static_assert(FINEGEMM_OFFSETS == value(GroupForm::Offsets) && FINEGEMM_INDICES == value(GroupForm::Indices) &&
              FINEGEMM_PREFIX_SUMS == value(GroupForm::PrefixSums) && FINEGEMM_MASKED == value(GroupForm::Masked) &&
              FINEGEMM_WHOLE == value(GroupForm::Whole));
static_assert(FINEGEMM_UE8M0X4 == value(DType::UE8M0x4));
static_assert(FINEGEMM_NO_GROUPS == value(ScaleGroupForm::None) && FINEGEMM_ROW_GROUPS == value(ScaleGroupForm::Rows) &&
              FINEGEMM_K_SIZES == value(ScaleGroupForm::KSizes) &&
              FINEGEMM_K_PREFIX_SUMS == value(ScaleGroupForm::KPrefixSums));
static_assert(FINEGEMM_NVRTC == value(Compiler::Nvrtc) && FINEGEMM_NVCC == value(Compiler::Nvcc));

// Programs were compiled with these: they may grow at the end where there is a struct_size, and change nowhere else.
static_assert(sizeof(finegemm_error) == 2048 && offsetof(finegemm_error, message) == 4);
static_assert(sizeof(finegemm_matrix) == 56 && offsetof(finegemm_matrix, dtype) == 8 &&
              offsetof(finegemm_matrix, rows) == 24);
static_assert(sizeof(finegemm_gemm_args) == 5 * 56 && offsetof(finegemm_gemm_args, d) == 4 * 56);
static_assert(sizeof(finegemm_stack) == 72 && offsetof(finegemm_stack, stride) == 64);
static_assert(sizeof(finegemm_groups) == 48 && offsetof(finegemm_groups, data) == 8 &&
              offsetof(finegemm_groups, device_type) == 40);
static_assert(sizeof(finegemm_epilogue) == 352 + 2 * 56 + 72 && offsetof(finegemm_epilogue, c) == 16 &&
              offsetof(finegemm_epilogue, bias) == 88 && offsetof(finegemm_epilogue, sfd) == 168 &&
              offsetof(finegemm_gemm_options, epilogue) == 64);
static_assert(sizeof(finegemm_grouped_gemm_args) == 5 * 72 + 48);
static_assert(offsetof(finegemm_gemm_options, stream) == 16 && offsetof(finegemm_gemm_options, config) == 24 &&
              offsetof(finegemm_gemm_options, accumulate) == 40 &&
              offsetof(finegemm_gemm_options, prefetch_weights) == 44 &&
              offsetof(finegemm_gemm_options, poll_data) == 56);
static_assert(offsetof(finegemm_quantize_options, stream) == 8);
static_assert(sizeof(finegemm_quantize_weights_args) == 4 * 72);
static_assert(sizeof(finegemm_quantize_columns_args) == 7 * 56 &&
              offsetof(finegemm_quantize_columns_args, begins) == 6 * 56);
static_assert(sizeof(finegemm_reencode_args) == 4 * 72 + 56 && offsetof(finegemm_reencode_args, scales) == 3 * 72 &&
              offsetof(finegemm_reencode_options, stream) == 8 && offsetof(finegemm_reencode_options, poll) == 16);
static_assert(sizeof(finegemm_scale_layout_args) == 2 * 72 + 48 &&
              offsetof(finegemm_scale_layout_args, groups) == 152 &&
              offsetof(finegemm_scale_layout_args, device_type) == 184);
static_assert(offsetof(finegemm_scale_layout_options, stream) == 8);
static_assert(offsetof(finegemm_shape, m) == 8 && offsetof(finegemm_shape, k_groups) == 56 &&
              offsetof(finegemm_shape, batch_invariant) == 76 && offsetof(finegemm_shape, plan_table) == 88);
static_assert(offsetof(finegemm_options, cache_limit_bytes) == 24 &&
              offsetof(finegemm_options, dump_dir) == 32 + 6 * 4096 &&
              offsetof(finegemm_options, plan_table) == 32 + 7 * 4096 &&
              offsetof(finegemm_options, trusted_dir) == 32 + 8 * 4096 &&
              offsetof(finegemm_options, pack_path) == 32 + 9 * 4096 &&
              offsetof(finegemm_options, log) == 32 + 11 * 4096 && sizeof(finegemm_options) == 32 + 11 * 4096 + 16);
static_assert(sizeof(finegemm_logged_call) == 48 && offsetof(finegemm_logged_call, line) == 16 &&
              offsetof(finegemm_logged_call, host_us) == 40);

TEST(CAbi, ComputesWhatTheCppApiComputes) {
    const CContext context;
    GemmCall c;
    c.options.numerics = FINEGEMM_NUMERICS_EXACT;
    ASSERT_EQ(c.run(context.get()), FINEGEMM_OK) << c.error.message;
    EXPECT_STREQ(c.error.message, "");

    Context cpp{Options{}};
    Problem p(16, 256, 384, 7);
    gemm(cpp, p.args(), {.stream = nullptr, .numerics = Numerics::Exact, .check_values = {}, .config = {}});
    for (int64_t i = 0; i < 16 * 256; ++i) ASSERT_EQ(c.problem.d.data()[i], p.d.data()[i]) << i;
    EXPECT_TRUE(c.problem.d.surroundings_intact());
}

TEST(CAbi, ComputesGroupsAsTheCppApiDoes) {
    const CContext context;
    for (const bool masked : {false, true}) {
        const Grouping grouping = masked ? GroupedCall::masked() : GroupedCall().problem.grouping;
        GroupedCall c(grouping);
        c.options.numerics = FINEGEMM_NUMERICS_HOPPER;
        ASSERT_EQ(c.run(context.get()), FINEGEMM_OK) << c.error.message;

        Context cpp{Options{}};
        GroupedProblem p(grouping, 256, 384, 7);
        grouped_gemm(cpp, p.args(), {.stream = nullptr, .numerics = Numerics::Hopper, .config = {}});
        const int64_t size = p.rows() * 256;
        EXPECT_TRUE(std::equal(p.d.data(), p.d.data() + size, c.problem.d.data()));
        EXPECT_TRUE(std::any_of(p.d.data(), p.d.data() + size, [](uint16_t x) { return x != kUntouched; }));
    }
}

TEST(CAbi, PacksScales) {
    const CContext context;
    ScaleLayoutCall call;
    ASSERT_EQ(call.run(context.get()), FINEGEMM_OK) << call.error.message;
    const auto exponent = [](int64_t r, int64_t c) {
        return static_cast<int32_t>(std::max<int64_t>(0, r % 200 - 20 * c + 127));
    };
    for (int64_t r = 0; r < 300; ++r) {
        if (r % 200 > 127) continue;  // infinity
        for (int64_t c = 0; c < 2; ++c) {
            uint32_t word = 0;
            for (int64_t b = 0; b < (c == 0 ? 4 : 2); ++b)
                word |= static_cast<uint32_t>(exponent(r, 4 * c + b)) << 8 * b;
            EXPECT_EQ(static_cast<uint32_t>(call.out_data.at(c, r)), word) << r << ", " << c;
        }
    }
    EXPECT_TRUE(call.out_data.surroundings_intact());
}

TEST(CAbi, TakesNoOptionsAndNoErrorForGranted) {
    const CContext context;
    GemmCall c;
    EXPECT_EQ(finegemm_gemm(context.get(), &c.args, nullptr, nullptr), FINEGEMM_OK);
    QuantizeCall q;
    EXPECT_EQ(finegemm_quantize_rows(context.get(), &q.x, &q.q, &q.scales, nullptr, nullptr), FINEGEMM_OK);
    EXPECT_EQ(finegemm_gemm(nullptr, &c.args, nullptr, nullptr), FINEGEMM_INVALID_ARGUMENT);
    finegemm_context_destroy(nullptr);
}

TEST(CAbi, ClearsTheErrorOfAnEarlierCall) {
    const CContext context;
    GemmCall c;
    const int64_t rows = std::exchange(c.args.a.rows, 1);
    ASSERT_EQ(c.run(context.get()), FINEGEMM_INVALID_ARGUMENT);
    c.args.a.rows = rows;
    ASSERT_EQ(c.run(context.get()), FINEGEMM_OK);
    EXPECT_EQ(c.error.code, FINEGEMM_OK);
    EXPECT_STREQ(c.error.message, "");
}

TEST(CAbi, CutsMessagesToTheCallersMemory) {
    const CContext context;
    GemmCall c;
    const std::string name(5000, 'x');
    c.options.config = name.c_str();
    ASSERT_EQ(c.run(context.get()), FINEGEMM_INVALID_ARGUMENT);
    EXPECT_EQ(std::strlen(c.error.message), sizeof c.error.message - 1);
}

TEST(CAbi, AcceptsOptionsOfALaterVersionThatAreNotUsed) {
    const CContext context;
    GemmCall c;
    struct {
        finegemm_gemm_options known = {
            sizeof(finegemm_gemm_options) + 8, 0, 0, 0, nullptr, nullptr, 0, 0, 0, 0, nullptr, nullptr, nullptr};
        int64_t unknown = 0;
    } newer;
    EXPECT_EQ(finegemm_gemm(context.get(), &c.args, &newer.known, nullptr), FINEGEMM_OK);
}

TEST(CAbi, TakesFieldsThatAnEarlierVersionLacksAsZero) {
    setenv("FINEGEMM_PLAN_TABLE", "/some/table.json", 1);
    finegemm_options o;
    const size_t first_version = offsetof(finegemm_options, plan_table);
    std::memset(o.plan_table, '?', sizeof o.plan_table);  // another's memory
    finegemm_error e;
    const int32_t code = finegemm_options_init(&o, first_version, &e);
    unsetenv("FINEGEMM_PLAN_TABLE");
    ASSERT_EQ(code, FINEGEMM_OK) << e.message;
    EXPECT_EQ(o.struct_size, first_version);
    EXPECT_EQ(o.plan_table[0], '?') << "not the library's to write";
    EXPECT_EQ(o.plan_table[sizeof o.plan_table - 1], '?');
    finegemm_context* context = nullptr;
    EXPECT_EQ(finegemm_context_create(&o, &context, &e), FINEGEMM_OK) << e.message;
    finegemm_context_destroy(context);
}

TEST(CAbi, EndsALongCallWhereTheCallersPollSaysSo) {
    const CContext context;
    GemmCall c(1000, 1024, 4096);  // seconds
    c.options.numerics = FINEGEMM_NUMERICS_HOPPER;
    int polls = 0;
    c.options.poll_data = &polls;
    c.options.poll = [](void* data, double share) {
        EXPECT_TRUE(0 < share && share < 1) << share;
        return ++*static_cast<int*>(data) == 2 ? 1 : 0;
    };
    EXPECT_EQ(c.run(context.get()), FINEGEMM_ENDED);
    EXPECT_EQ(polls, 2);
    EXPECT_STREQ(c.error.message, "poll ended the call; its output has parts of the result");
}

TEST(CAbi, TakesGemmOptionsOfTheFirstVersion) {
    const CContext context;
    GemmCall c;
    c.options.struct_size = offsetof(finegemm_gemm_options, accumulate);
    c.options.accumulate = 77;  // another's memory
    EXPECT_EQ(c.run(context.get()), FINEGEMM_OK) << c.error.message;
    c.options.struct_size -= 4;
    EXPECT_EQ(c.run(context.get()), FINEGEMM_INVALID_ARGUMENT);
}

TEST(CAbi, AddsToDWhereEachRowOfBHasScales) {
    const CContext context;
    GemmCall c;
    Buffer<float> sfb(DType::F32, 256, 3), d(DType::F32, 16, 256);
    for (int64_t r = 0; r < 256; ++r)
        for (int64_t kb = 0; kb < 3; ++kb) sfb.at(r, kb) = c.problem.sfb.at(r / 128, kb);
    for (int64_t r = 0; r < 16; ++r)
        for (int64_t n = 0; n < 256; ++n) d.at(r, n) = 100;
    ASSERT_EQ(c.run(context.get()), FINEGEMM_OK) << c.error.message;
    c.args.sfb = c_matrix(ConstMatrix(sfb.view())), c.args.d = c_matrix(ConstMatrix(d.view()));
    c.options.accumulate = 1;
    ASSERT_EQ(c.run(context.get()), FINEGEMM_OK) << c.error.message;
    for (int64_t r = 0; r < 16; ++r)
        for (int64_t n = 0; n < 256; ++n) {
            const float product = float_of_bf16(c.problem.d.at(r, n));  // rounded to 8 bits
            ASSERT_NEAR(d.at(r, n), 100 + product, std::abs(product) * 0x1p-8 + 1e-4) << r << ", " << n;
        }
}

TEST(CAbi, FillsOptionsFromTheEnvironment) {
    setenv("FINEGEMM_CPU_THREADS", "3", 1);
    setenv("FINEGEMM_CACHE_DIR", "/some/where", 1);
    setenv("FINEGEMM_PLAN_TABLE", "/some/table.json", 1);
    finegemm_options o;
    finegemm_error e;
    const int32_t code = finegemm_options_init(&o, sizeof o, &e);
    setenv("FINEGEMM_CPU_THREADS", "three", 1);
    finegemm_options unread;
    const int32_t bad = finegemm_options_init(&unread, sizeof unread, &e);
    unsetenv("FINEGEMM_CPU_THREADS");
    unsetenv("FINEGEMM_CACHE_DIR");
    unsetenv("FINEGEMM_PLAN_TABLE");
    ASSERT_EQ(code, FINEGEMM_OK);
    EXPECT_EQ(o.struct_size, sizeof o);
    EXPECT_EQ(o.cpu_threads, 3);
    EXPECT_EQ(o.use_pack, 1);
    EXPECT_STREQ(o.cache_dir, "/some/where");
    EXPECT_STREQ(o.plan_table, "/some/table.json");
    EXPECT_EQ(bad, FINEGEMM_INVALID_ARGUMENT);
    EXPECT_NE(std::string(e.message).find("FINEGEMM_CPU_THREADS='three'"), std::string::npos) << e.message;
    finegemm_context* context = nullptr;
    EXPECT_EQ(finegemm_context_create(&o, &context, &e), FINEGEMM_OK) << e.message;
    finegemm_context_destroy(context);
}

TEST(CAbi, ChecksValuesAsTheContextOrTheCallWants) {
    finegemm_options options = c_options();
    options.check_values = 1;
    const CContext strict(options), lax;
    GemmCall c;
    c.problem.sfa.at(3, 1) = -1;
    EXPECT_EQ(c.run(lax.get()), FINEGEMM_OK);
    EXPECT_EQ(c.run(strict.get()), FINEGEMM_INVALID_ARGUMENT);
    c.options.check_values = FINEGEMM_OFF;
    EXPECT_EQ(c.run(strict.get()), FINEGEMM_OK);
    c.options.check_values = FINEGEMM_ON;
    EXPECT_EQ(c.run(lax.get()), FINEGEMM_INVALID_ARGUMENT);
}

/// The shape of a product that needs no more than these.
finegemm_shape shape_of(int64_t m, int64_t n, int64_t k) {
    finegemm_shape shape{};
    shape.struct_size = sizeof shape;
    shape.m = m, shape.n = n, shape.k = k;
    shape.device = "h200";
    return shape;
}

nlohmann::json account_of(const finegemm_shape& shape) {
    std::string text(65536, '\0');
    finegemm_error e;
    EXPECT_EQ(finegemm_explain(&shape, text.data(), text.size(), nullptr, &e), FINEGEMM_OK) << e.message;
    return e.code == FINEGEMM_OK ? nlohmann::json::parse(text.c_str()) : nlohmann::json();
}

TEST(CAbi, ExplainsIntoMemoryOfAnySize) {
    size_t needed = 0;
    const finegemm_shape shape = shape_of(64, 2112, 7168);
    ASSERT_EQ(finegemm_explain(&shape, nullptr, 0, &needed, nullptr), FINEGEMM_OK);
    std::string text(needed, '?');
    ASSERT_EQ(finegemm_explain(&shape, text.data(), text.size(), nullptr, nullptr), FINEGEMM_OK);
    EXPECT_EQ(text.find('\0'), needed - 1);
    const auto plan = nlohmann::json::parse(text.c_str());
    EXPECT_EQ(plan["problem"], (nlohmann::json{{"m", 64}, {"n", 2112}, {"k", 7168}}));
    EXPECT_EQ(plan["device"], "h200");
    EXPECT_FALSE(plan["chosen"]["name"].get<std::string>().empty());

    char part[8] = "???????";
    ASSERT_EQ(finegemm_explain(&shape, part, 4, &needed, nullptr), FINEGEMM_OK);
    EXPECT_EQ(std::string(part, 8), text.substr(0, 3) + std::string("\0???", 4) + '\0');
}

TEST(CAbi, ExplainsAllThatACallMayAskFor) {
    finegemm_shape shape = shape_of(2112, 4096, 7184);
    shape.batch_invariant = 1, shape.num_sms = 100;
    nlohmann::json asked = {{"m", 2112}, {"n", 4096}, {"k", 7184}, {"batch_invariant", true}, {"num_sms", 100}};
    EXPECT_EQ(account_of(shape)["problem"], asked);
    shape.row_b_scales = 1;
    asked.update({{"row_b_scales", true}, {"out_dtype", "bf16"}});
    EXPECT_EQ(account_of(shape)["problem"], asked);
    shape.out_dtype = FINEGEMM_F32, shape.accumulate = 1;
    asked.update({{"out_dtype", "f32"}, {"accumulate", true}});
    EXPECT_EQ(account_of(shape)["problem"], asked);
    EXPECT_TRUE(account_of(shape)["chosen"]["name"].get<std::string>().ends_with("_1d1d_f32"));
}

TEST(CAbi, ExplainsGroups) {
    finegemm_shape shape = shape_of(8192, 4096, 7168);
    shape.groups = 64, shape.expected_m = 40, shape.alignment = 64, shape.num_sms = 100;
    const auto plan = account_of(shape);
    const nlohmann::json asked = {{"m", 8192},        {"n", 4096},       {"k", 7168},     {"groups", 64},
                                  {"expected_m", 40}, {"alignment", 64}, {"num_sms", 100}};
    EXPECT_EQ(plan["problem"], asked);
    shape.out_dtype = FINEGEMM_BF16;
    EXPECT_EQ(account_of(shape), plan) << "they have no other";
}

TEST(CAbi, ExplainsGroupsOfK) {
    finegemm_shape shape = shape_of(4096, 7168, 32768);
    shape.k_groups = 8, shape.accumulate = shape.batch_invariant = 1;
    const auto plan = account_of(shape);
    const nlohmann::json asked = {{"m", 4096},     {"n", 7168},          {"k", 32768},
                                  {"k_groups", 8}, {"accumulate", true}, {"batch_invariant", true}};
    EXPECT_EQ(plan["problem"], asked);
    EXPECT_TRUE(plan["chosen"]["name"].get<std::string>().ends_with("_kgrouped"));
    shape.row_b_scales = 1, shape.out_dtype = FINEGEMM_F32;
    EXPECT_EQ(account_of(shape), plan) << "they have no others";
}

TEST(CAbi, ExplainsByATableOfMeasuredChoices) {
    const test::PrivateFolder folder;
    const std::string file = folder.path() + "/table.json";
    std::ofstream(file) << R"({"format": 2, "device": "h200", "sms": 132, "version": "0.1.0", "entries": [
        {"problem": "gemm 64x2112x7168", "kernel": "m64n64s6w1_x2", "us": 1,
         "usual": "m64n64s5w1_x2", "usual_us": 2}]})";
    finegemm_shape shape = shape_of(64, 2112, 7168);
    shape.plan_table = file.c_str();
    EXPECT_EQ(account_of(shape)["chosen"]["source"], "user table");
    EXPECT_EQ(account_of(shape)["chosen"]["name"], "m64n64s6w1_x2");
}

TEST(CAbi, ExplainsForTheH200WhereThereIsNoDriver) {
    setenv("FINEGEMM_DRIVER", "/nowhere/libcuda.so.1", 1);
    finegemm_shape shape = shape_of(64, 2112, 7168);
    shape.device = nullptr;
    const auto plan = account_of(shape);
    unsetenv("FINEGEMM_DRIVER");
    EXPECT_EQ(plan["device"], "h200");
}

TEST(CAbi, HasAVersionOfThreeNumbers) {
    int major = -1, minor = -1, patch = -1, length = 0;
    ASSERT_EQ(std::sscanf(finegemm_version(), "%d.%d.%d%n", &major, &minor, &patch, &length), 3);
    EXPECT_EQ(static_cast<size_t>(length), std::strlen(finegemm_version()));
}

}  // namespace
}  // namespace finegemm::test
