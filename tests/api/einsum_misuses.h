// Equations' calls that are wrong, for misuse_test.cpp. Layer tests.
#pragma once

#include "api/einsum_calls.h"

namespace finegemm::test {

struct EinsumMisuse {
    const char* name;
    const char* equation;
    void (*spoil)(EinsumCall&);
};

inline constexpr char kHeads[] = "bhr,hdr->bhd", kSum[] = "bmk,bnk->mn";

inline void set_dtype(finegemm_stack& x, int32_t dtype) { x.matrix.dtype = dtype; }

inline const EinsumMisuse kEinsum[] = {
    {"equation has spaces", "bhr, hdr -> bhd", [](EinsumCall&) {}},
    {"equation is of one letter more", "bhr,hdr->bhdr", [](EinsumCall&) {}},
    {"equation is null", kHeads, [](EinsumCall& c) { c.equation = nullptr; }},
    {"a and b differ in r", kHeads, [](EinsumCall& c) { c.args.b.matrix.cols = 8; }},
    {"a and b differ in h", kHeads, [](EinsumCall& c) { c.args.b.count = 2; }},
    {"a and d differ in b", kHeads, [](EinsumCall& c) { c.args.d.count = 2; }},
    {"b and d differ in d", kHeads, [](EinsumCall& c) { c.args.d.matrix.cols = 8; }},
    {"weights of codes are transposed", "bhd,hdr->bhr",
     [](EinsumCall& c) {
         set_dtype(c.args.a, FINEGEMM_E4M3), set_dtype(c.args.b, FINEGEMM_E4M3);
         c.args.b.matrix.rows = 16, c.args.b.matrix.cols = 24, c.args.b.matrix.row_stride = 24;
     }},
    {"a and d differ in m", kSum, [](EinsumCall& c) { c.args.d.matrix.rows = 2; }},
    {"d of a sum is a stack", kSum, [](EinsumCall& c) { c.args.d.count = 2; }},
    {"a and b differ in b", kSum, [](EinsumCall& c) { c.args.b.count = 2; }},
    {"a of a sum is e4m3", kSum, [](EinsumCall& c) { set_dtype(c.args.a, FINEGEMM_E4M3); }},
    {"b is f16", kHeads, [](EinsumCall& c) { set_dtype(c.args.b, FINEGEMM_F16); }},
    {"b of a sum is f16", kSum, [](EinsumCall& c) { set_dtype(c.args.b, FINEGEMM_F16); }},
    {"d of a sum is f16", kSum, [](EinsumCall& c) { set_dtype(c.args.d, FINEGEMM_F16); }},
    {"a sum has scales", kSum, [](EinsumCall& c) { c.args.sfa = c.args.a; }},
    {"n of a sum is not a multiple of 8", kSum,
     [](EinsumCall& c) { c.args.b.matrix.rows = c.args.d.matrix.cols = 20; }},
    {"k of a sum is not a multiple of 8", kSum,
     [](EinsumCall& c) { c.args.a.matrix.cols = c.args.b.matrix.cols = 12; }},
    {"b and k are 2^31 together", kSum, [](EinsumCall& c) { c.args.a.count = c.args.b.count = int64_t{1} << 27; }},
    {"a sum has a bias", kSum, [](EinsumCall& c) { c.add_bias(); }},
    {"a sum of bf16 is added to", kSum,
     [](EinsumCall& c) { set_dtype(c.args.d, FINEGEMM_BF16), c.options.accumulate = 1; }},
    {"heads are added to", kHeads, [](EinsumCall& c) { c.options.accumulate = 1; }},
    {"d has overlapping heads", kHeads, [](EinsumCall& c) { c.args.d.matrix.row_stride = 8; }},
    {"d shares memory with a", kHeads, [](EinsumCall& c) { c.args.d.matrix.data = c.args.a.matrix.data; }},
    {"a of a sum is stored by columns", kSum,
     [](EinsumCall& c) { c.args.a.matrix.row_stride = 1, c.args.a.matrix.col_stride = 3; }},
    {"there is no driver", kSum,
     [](EinsumCall& c) {
         for (finegemm_stack* x : {&c.args.a, &c.args.b, &c.args.d}) x->matrix.device_type = FINEGEMM_CUDA;
     }},
};

template <typename Sentences>
Sentences einsum_misuses() {
    Sentences said;
    const CContext context;
    for (const EinsumMisuse& m : kEinsum) {
        EinsumCall call(m.equation == kSum ? kSum : kHeads);
        call.equation = m.equation;
        m.spoil(call);
        call.run(context.get());
        said[std::string("einsum: ") + m.name] = {call.error.code, call.error.message};
        EXPECT_TRUE(call.is_untouched()) << m.name << ": was rejected, but wrote to memory";
    }
    EinsumCall call(kSum);
    finegemm_einsum(context.get(), kSum, nullptr, nullptr, &call.error);
    said["einsum: args are null"] = {call.error.code, call.error.message};
    return said;
}

}  // namespace finegemm::test
