// What callers read when a call is wrong, through the C ABI. FG_UPDATE_GOLDEN=1 rewrites tests/golden/misuse.json.
// Layer tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>

#include <nlohmann/json.hpp>

#include "api/einsum_misuses.h"
#include "api/ep_misuses.h"
#include "api/epilogue_misuses.h"
#include "api/four_bit_misuses.h"
#include "api/grouped_misuses.h"
#include "api/k_grouped_misuses.h"
#include "api/layout_misuses.h"
#include "api/moe_misuses.h"
#include "api/mqa_misuses.h"
#include "api/prenorm_misuses.h"
#include "api/quantize_misuses.h"
#include "api/reencode_misuses.h"
#include "api/routing_misuses.h"
#include "api/scale_layout_misuses.h"
#include "api/swiglu_misuses.h"
#include "api/topk_misuses.h"

namespace finegemm::test {
namespace {

struct Misuse {
    const char* name;
    void (*spoil)(GemmCall&);
};

void on_gpu(GemmCall& c, int32_t index) {
    for (finegemm_matrix* x : c.matrices()) x->device_type = FINEGEMM_CUDA, x->device_index = index;
}
void set_k(GemmCall& c, int64_t k) { c.args.a.cols = c.args.b.cols = k; }
/// A and B of a type that has no scales, and none.
void set_unscaled(GemmCall& c, int32_t dtype) {
    c.args.a.dtype = c.args.b.dtype = dtype;
    c.args.sfa = c.args.sfb = {};
}
void set_bf16(GemmCall& c) { set_unscaled(c, FINEGEMM_BF16); }

const Misuse kGemm[] = {
    {"a is bf16", [](GemmCall& c) { c.args.a.dtype = FINEGEMM_BF16; }},
    {"a and b are bf16, with scales", [](GemmCall& c) { c.args.a.dtype = c.args.b.dtype = FINEGEMM_BF16; }},
    {"b is bf16, with scales, and a is not", [](GemmCall& c) { c.args.b.dtype = FINEGEMM_BF16; }},
    {"a and b are bf16, d f16", [](GemmCall& c) { set_bf16(c), c.args.d.dtype = FINEGEMM_F16; }},
    {"a and b are bf16, d of no type", [](GemmCall& c) { set_bf16(c), c.args.d.dtype = 0; }},
    {"a and b are bf16, k no multiple of 8", [](GemmCall& c) { set_bf16(c), set_k(c, 380); }},
    {"a and b are bf16, accumulate into bf16",
     [](GemmCall& c) {
         set_bf16(c), set_k(c, 16), c.args.a.row_stride = c.args.b.row_stride = 16, c.options.accumulate = 1;
     }},
    {"a and b are f16, with scales",
     [](GemmCall& c) { c.args.a.dtype = c.args.b.dtype = c.args.d.dtype = FINEGEMM_F16; }},
    {"a is f16, b bf16", [](GemmCall& c) { set_unscaled(c, FINEGEMM_F16), c.args.b.dtype = FINEGEMM_BF16; }},
    {"a and b are f16, d bf16", [](GemmCall& c) { set_unscaled(c, FINEGEMM_F16); }},
    {"a and b are e4m3, without scales", [](GemmCall& c) { c.args.sfa = c.args.sfb = {}; }},
    {"a has an unknown dtype", [](GemmCall& c) { c.args.a.dtype = 99; }},
    {"b is f32", [](GemmCall& c) { c.args.b.dtype = FINEGEMM_F32; }},
    {"a and b are e5m2", [](GemmCall& c) { c.args.a.dtype = c.args.b.dtype = FINEGEMM_E5M2; }},
    {"b is e5m2, with scales of blocks", [](GemmCall& c) { c.args.b.dtype = FINEGEMM_E5M2; }},
    {"a is i8 and b e4m3", [](GemmCall& c) { c.args.a.dtype = FINEGEMM_I8; }},
    {"a and b are i8, d f32",
     [](GemmCall& c) { c.args.a.dtype = c.args.b.dtype = FINEGEMM_I8, c.args.d.dtype = FINEGEMM_F32; }},
    {"b is of i8 and stored by columns",
     [](GemmCall& c) {
         c.args.a.dtype = c.args.b.dtype = FINEGEMM_I8;
         c.args.b.row_stride = 1, c.args.b.col_stride = c.args.b.rows;
     }},
    {"sfa is of exponents and sfb is not", [](GemmCall& c) { c.args.sfa.dtype = FINEGEMM_UE8M0X4; }},
    {"sfb is of exponents for blocks", [](GemmCall& c) { c.args.sfb.dtype = FINEGEMM_UE8M0X4; }},
    {"sfb is of exponents, d f16",
     [](GemmCall& c) {
         c.args.sfb.dtype = FINEGEMM_UE8M0X4, c.args.sfb.rows = c.args.b.rows, c.args.d.dtype = FINEGEMM_F16;
     }},
    {"d is e4m3", [](GemmCall& c) { c.args.d.dtype = FINEGEMM_E4M3; }},
    {"sfa is bf16", [](GemmCall& c) { c.args.sfa.dtype = FINEGEMM_BF16; }},
    {"sfb is e4m3", [](GemmCall& c) { c.args.sfb.dtype = FINEGEMM_E4M3; }},
    {"a has negative rows", [](GemmCall& c) { c.args.a.rows = -1; }},
    {"sfb has negative columns", [](GemmCall& c) { c.args.sfb.cols = -3; }},
    {"m is 2^31", [](GemmCall& c) { c.args.a.rows = c.args.d.rows = int64_t{1} << 31; }},
    {"a and d differ in m", [](GemmCall& c) { c.args.a.rows = 15; }},
    {"a and b differ in k", [](GemmCall& c) { c.args.b.cols = 256; }},
    {"b is passed as [K, N]", [](GemmCall& c) { set_shape(c.args.b, 384, 256); }},
    {"b and d differ in n", [](GemmCall& c) { c.args.d.cols = 128; }},
    {"n is not a multiple of 8", [](GemmCall& c) { c.args.b.rows = c.args.d.cols = 252; }},
    {"k is not a multiple of 16", [](GemmCall& c) { set_k(c, 376); }},

    {"sfa is transposed", [](GemmCall& c) { set_shape(c.args.sfa, 3, 16); }},
    {"sfa has one scale a row, in a row", [](GemmCall& c) { set_shape(c.args.sfa, 1, 16); }},
    {"sfa has one scale for each of too few rows", [](GemmCall& c) { set_shape(c.args.sfa, 15, 1); }},
    {"sfa has one scale an element", [](GemmCall& c) { set_shape(c.args.sfa, 16, 384); }},
    {"sfb has one scale a row, in a row", [](GemmCall& c) { set_shape(c.args.sfb, 1, 256); }},
    {"sfb has one scale for each block of rows", [](GemmCall& c) { set_shape(c.args.sfb, 2, 1); }},
    {"d is f32 with rows off 16 bytes",
     [](GemmCall& c) {
         on_gpu(c, 0), set_shape(c.args.sfb, 256, 3), c.args.d.dtype = FINEGEMM_F32, c.args.d.rows = c.args.a.rows = 8;
         c.args.sfa.rows = 8, c.args.d.row_stride = 258;
     }},
    {"accumulate into bf16", [](GemmCall& c) { set_shape(c.args.sfb, 256, 3), c.options.accumulate = 1; }},
    {"accumulate into bf16 with sfb of blocks", [](GemmCall& c) { c.options.accumulate = 1; }},
    {"accumulate into f32 with sfb of blocks",
     [](GemmCall& c) {
         c.args.d.dtype = FINEGEMM_F32, c.args.d.rows = c.args.a.rows = c.args.sfa.rows = 8;
         c.options.accumulate = 1;
     }},
    {"accumulate is no switch", [](GemmCall& c) { c.options.accumulate = 2; }},
    {"weights are prefetched without pdl", [](GemmCall& c) { c.options.prefetch_weights = 1; }},
    {"prefetch_weights is no switch", [](GemmCall& c) { c.options.pdl = 1, c.options.prefetch_weights = 2; }},
    {"sfa and sfb of rows are swapped",
     [](GemmCall& c) { set_shape(c.args.sfb, 16, 3), set_shape(c.args.sfa, 256, 3); }},
    {"sfb is transposed", [](GemmCall& c) { set_shape(c.args.sfb, 3, 2); }},
    {"sfa and sfb are swapped", [](GemmCall& c) { std::swap(c.args.sfa, c.args.sfb); }},

    {"a has overlapping rows", [](GemmCall& c) { c.args.a.row_stride = 368; }},
    {"a has one row again and again", [](GemmCall& c) { c.args.a.row_stride = 0; }},
    {"b is upside down", [](GemmCall& c) { c.args.b.row_stride = -384; }},
    {"a has rows off 16 bytes", [](GemmCall& c) { on_gpu(c, 0), c.args.a.row_stride = 392; }},
    {"b has rows off 16 bytes", [](GemmCall& c) { on_gpu(c, 0), c.args.b.row_stride = 385; }},
    {"d has rows off 16 bytes", [](GemmCall& c) { on_gpu(c, 0), c.args.d.row_stride = 260; }},
    {"a is stored by columns", [](GemmCall& c) { set_strides(c.args.a, 1, 16); }},
    {"d is stored by columns", [](GemmCall& c) { set_strides(c.args.d, 1, 16); }},
    {"sfa runs backwards", [](GemmCall& c) { c.args.sfa.row_stride = -3; }},
    {"sfb has a negative column stride", [](GemmCall& c) { c.args.sfb.col_stride = -1; }},
    {"sfa reaches beyond the addresses", [](GemmCall& c) { c.args.sfa.row_stride = kHuge; }},
    {"a reaches beyond the addresses", [](GemmCall& c) { c.args.a.row_stride = kHuge; }},
    {"a is null", [](GemmCall& c) { c.args.a.data = nullptr; }},
    {"sfa is null", [](GemmCall& c) { c.args.sfa.data = nullptr; }},
    {"b is null", [](GemmCall& c) { c.args.b.data = nullptr; }},
    {"sfb is null", [](GemmCall& c) { c.args.sfb.data = nullptr; }},
    {"d is null", [](GemmCall& c) { c.args.d.data = nullptr; }},
    {"d is null and k is 0",
     [](GemmCall& c) { set_k(c, 0), c.args.sfa.cols = c.args.sfb.cols = 0, c.args.d.data = nullptr; }},
    {"a is off 16 bytes", [](GemmCall& c) { on_gpu(c, 0), c.args.a.data = address(8); }},
    {"b is off 16 bytes", [](GemmCall& c) { on_gpu(c, 0), c.args.b.data = address(1); }},
    {"d is off 16 bytes", [](GemmCall& c) { on_gpu(c, 0), c.args.d.data = address(2); }},
    {"sfa is off 4 bytes", [](GemmCall& c) { on_gpu(c, 0), c.args.sfa.data = address(2); }},

    {"d is a", [](GemmCall& c) { c.args.d.data = c.args.a.data; }},
    {"d begins in b", [](GemmCall& c) { c.args.d.data = static_cast<char*>(c.args.b.data) + 1024; }},
    {"d ends in sfa", [](GemmCall& c) { c.args.sfa.data = static_cast<char*>(c.args.d.data) + 16 * 256 * 2 - 4; }},
    {"d holds sfb", [](GemmCall& c) { c.args.sfb.data = static_cast<char*>(c.args.d.data) + 64; }},

    {"a is on an unknown device", [](GemmCall& c) { c.args.a.device_type = 7; }},
    {"a is on a GPU, d is not", [](GemmCall& c) { c.args.a.device_type = FINEGEMM_CUDA; }},
    {"sfb is on another GPU", [](GemmCall& c) { on_gpu(c, 0), c.args.sfb.device_index = 1; }},
    {"the GPU has a negative index", [](GemmCall& c) { on_gpu(c, -1); }},
    {"the GPU has an index that no GPU has", [](GemmCall& c) { on_gpu(c, 64); }},
    {"there is no driver", [](GemmCall& c) { on_gpu(c, 0); }},

    {"numerics are unknown", [](GemmCall& c) { c.options.numerics = 3; }},
    {"config is unknown", [](GemmCall& c) { c.options.config = "fastest"; }},
    {"config is unknown and m is 0",
     [](GemmCall& c) { c.options.config = "fastest", c.args.a.rows = c.args.sfa.rows = c.args.d.rows = 0; }},
    {"check_values is 3", [](GemmCall& c) { c.options.check_values = 3; }},
    {"options have no size", [](GemmCall& c) { c.options.struct_size = 0; }},
    {"num_sms is negative", [](GemmCall& c) { c.options.num_sms = -1; }},
    {"pdl is no switch", [](GemmCall& c) { c.options.pdl = 2; }},
    {"batch_invariant is no choice", [](GemmCall& c) { c.options.batch_invariant = 3; }},
    {"a uses its reserved field", [](GemmCall& c) { c.args.a.reserved = 1; }},

    {"a scale of a is NaN", [](GemmCall& c) { c.problem.sfa.at(5, 2) = kNan, c.options.check_values = FINEGEMM_ON; }},
    {"a scale of a is infinite",
     [](GemmCall& c) { c.problem.sfa.at(0, 1) = HUGE_VALF, c.options.check_values = FINEGEMM_ON; }},
    {"a scale of b is negative",
     [](GemmCall& c) { c.problem.sfb.at(1, 2) = -1, c.options.check_values = FINEGEMM_ON; }},
};

struct OptionsMisuse {
    const char* name;
    void (*spoil)(finegemm_options&);
};

const OptionsMisuse kOptions[] = {
    {"options have no size", [](finegemm_options& o) { o.struct_size = 0; }},
    {"batch_invariant is no switch", [](finegemm_options& o) { o.batch_invariant = -1; }},
    {"use_pack is 2", [](finegemm_options& o) { o.use_pack = 2; }},
    {"compiler is unknown", [](finegemm_options& o) { o.compiler = 2; }},
    {"cpu_threads are negative", [](finegemm_options& o) { o.cpu_threads = -1; }},
    {"the cache limit is negative", [](finegemm_options& o) { o.cache_limit_bytes = -1; }},
    {"there is no name of a driver", [](finegemm_options& o) { o.driver_path[0] = '\0'; }},
    {"a path has no end", [](finegemm_options& o) { std::memset(o.cache_dir, 'x', sizeof o.cache_dir); }},
};

using Sentences = std::map<std::string, std::pair<int32_t, std::string>>;

Sentences gemm_misuses() {
    Sentences said;
    const CContext context;
    for (const Misuse& m : kGemm) {
        GemmCall call;
        m.spoil(call);
        call.run(context.get());
        said[std::string("gemm: ") + m.name] = {call.error.code, call.error.message};
        const uint16_t* d = call.problem.d.data();
        const bool untouched =
            std::all_of(d, d + 16 * 256, [](uint16_t x) { return x == Buffer<uint16_t>::kPattern * 0x101; });
        EXPECT_TRUE(untouched && call.problem.d.surroundings_intact())
            << m.name << ": was rejected, but wrote to memory";
    }
    return said;
}

Sentences grouped_misuses() {
    Sentences said;
    const CContext context;
    for (const GroupedMisuse& m : kGrouped) {
        GroupedCall call(m.masked ? GroupedCall::masked() : GroupedCall().problem.grouping);
        m.spoil(call);
        call.run(context.get());
        said[std::string("grouped: ") + m.name] = {call.error.code, call.error.message};
        bool untouched = call.problem.d.surroundings_intact();
        for (int64_t r = 0; r < call.problem.rows(); ++r) untouched &= call.problem.row_is(r, kUntouched);
        EXPECT_TRUE(untouched) << m.name << ": was rejected, but wrote to memory";
    }
    GroupedCall call;
    call.run(nullptr), said["grouped: context is null"] = {call.error.code, call.error.message};
    finegemm_grouped_gemm(context.get(), nullptr, nullptr, &call.error);
    said["grouped: args are null"] = {call.error.code, call.error.message};
    return said;
}

Sentences k_grouped_misuses() {
    Sentences said;
    const CContext context;
    for (const KGroupedMisuse& m : kKGrouped) {
        KGroupedCall call;
        m.spoil(call);
        call.run(context.get());
        said[std::string("k-grouped: ") + m.name] = {call.error.code, call.error.message};
        bool untouched = call.problem.d.surroundings_intact();
        for (int64_t r = 0; r < 3 * 40; ++r)
            untouched &=
                std::all_of(&call.problem.d.at(r, 0), &call.problem.d.at(r, 0) + 256, [](float x) { return x == 7; });
        EXPECT_TRUE(untouched) << m.name << ": was rejected, but wrote to memory";
    }
    KGroupedCall call;
    call.run(nullptr), said["k-grouped: context is null"] = {call.error.code, call.error.message};
    finegemm_k_grouped_gemm(context.get(), nullptr, nullptr, &call.error);
    said["k-grouped: args are null"] = {call.error.code, call.error.message};
    return said;
}

Sentences explain_misuses() {
    Sentences said;
    char text[16];
    const auto spoiled = [&](const char* name, void (*spoil)(finegemm_shape&)) {
        finegemm_shape shape{};
        shape.struct_size = sizeof shape, shape.device = "h200";
        shape.m = 1, shape.n = 8, shape.k = 128;
        spoil(shape);
        finegemm_error e;
        finegemm_explain(&shape, text, sizeof text, nullptr, &e);
        said[std::string("explain: ") + name] = {e.code, e.message};
    };
    spoiled("shape has no size", [](finegemm_shape& s) { s.struct_size = 0; });
    spoiled("m is 0", [](finegemm_shape& s) { s.m = 0; });
    spoiled("n is 12", [](finegemm_shape& s) { s.n = 12; });
    spoiled("k is 24", [](finegemm_shape& s) { s.k = 24; });
    spoiled("k is 2^31", [](finegemm_shape& s) { s.k = int64_t{1} << 31; });
    spoiled("device is unknown", [](finegemm_shape& s) { s.device = "a100"; });
    spoiled("num_sms is -1", [](finegemm_shape& s) { s.num_sms = -1; });
    spoiled("dtype is f32", [](finegemm_shape& s) { s.dtype = FINEGEMM_F32; });
    spoiled("f16 gives bf16", [](finegemm_shape& s) { s.dtype = FINEGEMM_F16, s.out_dtype = FINEGEMM_BF16; });
    spoiled("bf16 with row_b_scales", [](finegemm_shape& s) { s.dtype = FINEGEMM_BF16, s.row_b_scales = 1; });
    spoiled("a_mx without b_mx", [](finegemm_shape& s) { s.a_mx = 1; });
    spoiled("b_mx with row_b_scales", [](finegemm_shape& s) { s.b_mx = s.row_b_scales = 1; });
    spoiled("b_mx of i8", [](finegemm_shape& s) { s.b_mx = 1, s.dtype = FINEGEMM_I8; });
    spoiled("b_mx with groups of k", [](finegemm_shape& s) { s.b_mx = 1, s.k_groups = 2; });
    spoiled("row_b_scales is 2", [](finegemm_shape& s) { s.row_b_scales = 2; });
    spoiled("accumulate with affine", [](finegemm_shape& s) { s.affine = s.accumulate = 1; });
    spoiled("affine with row_b_scales", [](finegemm_shape& s) { s.affine = s.row_b_scales = 1; });
    spoiled("affine with groups of k", [](finegemm_shape& s) { s.affine = 1, s.k_groups = 2; });
    spoiled("bf16 with f16", [](finegemm_shape& s) { s.dtype = FINEGEMM_BF16, s.out_dtype = FINEGEMM_F16; });
    spoiled("f32 of blocks is added to", [](finegemm_shape& s) { s.out_dtype = FINEGEMM_F32, s.accumulate = 1; });
    spoiled("bf16 is added to", [](finegemm_shape& s) { s.row_b_scales = s.accumulate = 1; });
    spoiled("expected_m of no groups", [](finegemm_shape& s) { s.expected_m = 20; });
    spoiled("alignment of no groups", [](finegemm_shape& s) { s.alignment = 128; });
    spoiled("groups are -1", [](finegemm_shape& s) { s.groups = -1; });
    spoiled("groups are 4097", [](finegemm_shape& s) { s.groups = 4097; });
    spoiled("m of groups is 0", [](finegemm_shape& s) { s.groups = 4, s.m = 0; });
    spoiled("expected_m is -1", [](finegemm_shape& s) { s.groups = 4, s.expected_m = -1; });
    spoiled("alignment is 48", [](finegemm_shape& s) { s.groups = 4, s.alignment = 48; });
    spoiled("groups are added to", [](finegemm_shape& s) { s.groups = 4, s.accumulate = 1; });
    spoiled("groups and groups of k", [](finegemm_shape& s) { s.groups = s.k_groups = 4; });
    spoiled("groups of k are -1", [](finegemm_shape& s) { s.k_groups = -1; });
    spoiled("k of groups is 144", [](finegemm_shape& s) { s.k_groups = 2, s.k = 144; });
    finegemm_error e;
    finegemm_explain(nullptr, text, sizeof text, nullptr, &e), said["explain: shape is null"] = {e.code, e.message};
    finegemm_shape shape{};
    shape.struct_size = sizeof shape, shape.m = 1, shape.n = 8, shape.k = 16;
    finegemm_explain(&shape, nullptr, 16, nullptr, &e), said["explain: buffer is null"] = {e.code, e.message};
    return said;
}

Sentences other_misuses() {
    Sentences said;
    const CContext context;
    const auto record = [&](std::string name, const finegemm_error& e) { said[std::move(name)] = {e.code, e.message}; };
    finegemm_error e;
    for (const OptionsMisuse& m : kOptions) {
        finegemm_options options = c_options();
        m.spoil(options);
        finegemm_context* made = context.get();
        finegemm_context_create(&options, &made, &e);
        EXPECT_EQ(made, nullptr) << m.name;
        record(std::string("context: ") + m.name, e);
    }
    GemmCall call;
    call.run(nullptr), record("gemm: context is null", call.error);
    finegemm_gemm(context.get(), nullptr, nullptr, &e), record("gemm: args are null", e);
    finegemm_context_create(nullptr, nullptr, &e), record("context: nowhere to put it", e);
    finegemm_options_init(nullptr, sizeof(finegemm_options), &e), record("options: are null", e);
    finegemm_options options;
    finegemm_options_init(&options, 8, &e), record("options: have 8 bytes", e);
    struct {
        finegemm_gemm_options known = {
            sizeof(finegemm_gemm_options) + 8, 0, 0, 0, nullptr, nullptr, 0, 0, 0, 0, nullptr, nullptr, nullptr};
        int64_t unknown = 1;
    } newer;
    finegemm_gemm(context.get(), &call.args, &newer.known, &e), record("gemm: options of a later version", e);
    said.merge(explain_misuses());
    said.merge(epilogue_misuses());
    return said;
}

Sentences all_misuses() {
    Sentences said;
    for (const auto misuses :
         {gemm_misuses, grouped_misuses, k_grouped_misuses, layout_misuses, einsum_misuses<Sentences>,
          quantize_misuses<Sentences>, reencode_misuses<Sentences>, scale_layout_misuses<Sentences>,
          mqa_misuses<Sentences>, prenorm_misuses<Sentences>, swiglu_misuses<Sentences>, routing_misuses<Sentences>,
          moe_misuses<Sentences>, ep_misuses<Sentences>, topk_misuses<Sentences>, four_bit_misuses<Sentences>,
          other_misuses})
        said.merge(misuses());
    return said;
}

TEST(Misuse, IsRejectedWithASentenceThatHasAWayOut) {
    for (const auto& [name, sentence] : all_misuses()) {
        const auto& [code, message] = sentence;
        EXPECT_TRUE(code == FINEGEMM_INVALID_ARGUMENT || code == FINEGEMM_UNSUPPORTED) << name << ": " << code;
        EXPECT_NE(message.find("; "), std::string::npos) << name << ": " << message;
    }
}

TEST(Misuse, SaysWhatTheGoldenFileSays) {
    const std::string path = FINEGEMM_TEST_DIR "/golden/misuse.json";
    Sentences now = all_misuses();
    for (auto& [name, sentence] : now)  // a release changes no more than the version
        if (const size_t at = sentence.second.find(finegemm_version()); at != std::string::npos)
            sentence.second.replace(at, std::string_view(finegemm_version()).size(), "VERSION");
    if (std::getenv("FG_UPDATE_GOLDEN")) {
        nlohmann::ordered_json out;
        for (const auto& [name, sentence] : now) out[name] = {{"code", sentence.first}, {"message", sentence.second}};
        std::ofstream(path) << out.dump(1) << '\n';
    }
    std::ifstream file(path);
    ASSERT_TRUE(file) << path << " is missing; FG_UPDATE_GOLDEN=1 writes it";
    const auto golden = nlohmann::json::parse(file);
    EXPECT_EQ(golden.size(), now.size());
    EXPECT_GE(now.size(), 40u);
    for (const auto& [name, sentence] : now) {
        ASSERT_TRUE(golden.contains(name)) << name;
        EXPECT_EQ(golden[name]["code"], sentence.first) << name;
        EXPECT_EQ(golden[name]["message"], sentence.second) << name;
    }
}

}  // namespace
}  // namespace finegemm::test
