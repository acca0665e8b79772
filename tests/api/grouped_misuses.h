// Grouped GEMMs that are wrong, for misuse_test.cpp. Layer tests.
#pragma once

#include <utility>
#include <vector>

#include "api/calls.h"

namespace finegemm::test {

struct GroupedMisuse {
    const char* name;
    void (*spoil)(GroupedCall&);
    bool masked = false;
};

inline void on_gpu(GroupedCall& c) {
    for (finegemm_stack* x : {&c.args.a, &c.args.sfa, &c.args.b, &c.args.sfb, &c.args.d})
        x->matrix.device_type = FINEGEMM_CUDA;
    c.args.groups.device_type = FINEGEMM_CUDA;
}
inline void set_form(GroupedCall& c, int32_t form, int64_t size) {
    c.args.groups.form = form, c.args.groups.size = size;
}
inline void set_numbers(GroupedCall& c, std::vector<int32_t> numbers) {
    c.problem.grouping.numbers = std::move(numbers);
    c.args.groups.data = c.problem.grouping.numbers.data();
    c.args.groups.size = static_cast<int64_t>(c.problem.grouping.numbers.size());
    c.options.check_values = FINEGEMM_ON;
}

inline const GroupedMisuse kGrouped[] = {
    {"form is 0", [](GroupedCall& c) { c.args.groups.form = 0; }},
    {"indices have an alignment of 32",
     [](GroupedCall& c) { set_form(c, FINEGEMM_INDICES, 40), c.args.groups.alignment = 32; }},
    {"prefix sums have an alignment of 96",
     [](GroupedCall& c) { set_form(c, FINEGEMM_PREFIX_SUMS, 4), c.args.groups.alignment = 96; }},
    {"prefix sums have no alignment",
     [](GroupedCall& c) { set_form(c, FINEGEMM_PREFIX_SUMS, 4), c.args.groups.alignment = 0; }},
    {"prefix sums have an alignment of 2^31",
     [](GroupedCall& c) { set_form(c, FINEGEMM_PREFIX_SUMS, 4), c.args.groups.alignment = int64_t{1} << 31; }},
    {"expected_m is negative", [](GroupedCall& c) { c.args.groups.expected_m = -1; }},
    {"there is an offset for each group", [](GroupedCall& c) { c.args.groups.size = 4; }},
    {"there is an index for each group", [](GroupedCall& c) { set_form(c, FINEGEMM_INDICES, 4); }},
    {"there are prefix sums with a zero before them", [](GroupedCall& c) { set_form(c, FINEGEMM_PREFIX_SUMS, 5); }},
    {"there are masks for fewer groups", [](GroupedCall& c) { c.args.groups.size = 3; }, true},
    {"numbers are null", [](GroupedCall& c) { c.args.groups.data = nullptr; }},
    {"numbers are off 4 bytes",
     [](GroupedCall& c) { c.args.groups.data = reinterpret_cast<const int32_t*>(address(2)); }},
    {"numbers are on a GPU", [](GroupedCall& c) { c.args.groups.device_type = FINEGEMM_CUDA; }},
    {"numbers are on an unknown device", [](GroupedCall& c) { c.args.groups.device_type = 3; }},
    {"groups use their reserved field", [](GroupedCall& c) { c.args.groups.reserved = 1; }},
    {"sfa uses its reserved field", [](GroupedCall& c) { c.args.sfa.matrix.reserved = 1; }},

    {"b has no matrix", [](GroupedCall& c) { c.args.b.count = 0; }},
    {"b has 4097 matrices", [](GroupedCall& c) { c.args.b.count = 4097; }},
    {"sfb has one matrix", [](GroupedCall& c) { c.args.sfb.count = 1; }},
    {"a has four matrices", [](GroupedCall& c) { c.args.a.count = 4; }},
    {"d has no matrix", [](GroupedCall& c) { c.args.d.count = 0; }},
    {"masked a has one matrix", [](GroupedCall& c) { c.args.a.count = 1; }, true},
    {"masked sfa has 3 matrices", [](GroupedCall& c) { c.args.sfa.count = 3; }, true},
    {"b is f32", [](GroupedCall& c) { c.args.b.matrix.dtype = FINEGEMM_F32; }},
    {"k is 0",
     [](GroupedCall& c) {
         c.args.a.matrix.cols = c.args.b.matrix.cols = c.args.sfa.matrix.cols = c.args.sfb.matrix.cols = 0;
     }},
    {"k is not a multiple of 16", [](GroupedCall& c) { c.args.a.matrix.cols = c.args.b.matrix.cols = 376; }},
    {"n is not a multiple of 8", [](GroupedCall& c) { c.args.b.matrix.rows = c.args.d.matrix.cols = 252; }},
    {"m is 2^31", [](GroupedCall& c) { c.args.a.matrix.rows = c.args.d.matrix.rows = int64_t{1} << 31; }},
    {"a and d differ in m", [](GroupedCall& c) { c.args.a.matrix.rows = 41; }},
    {"sfa has one scale a row, in a row", [](GroupedCall& c) { set_shape(c.args.sfa.matrix, 1, 40); }},
    {"sfb has one scale a row, in a row", [](GroupedCall& c) { set_shape(c.args.sfb.matrix, 1, 256); }},

    {"b has matrices off 16 bytes", [](GroupedCall& c) { on_gpu(c), c.args.b.stride += 8; }},
    {"a has its matrices upside down", [](GroupedCall& c) { c.args.a.stride = -c.args.a.stride; }, true},
    {"d has matrices off 16 bytes", [](GroupedCall& c) { on_gpu(c), c.args.d.stride += 4; }, true},
    {"d has overlapping matrices", [](GroupedCall& c) { c.args.d.stride -= 8; }, true},
    {"d has one matrix for all groups", [](GroupedCall& c) { c.args.d.stride = 0; }, true},
    {"sfb has its matrices upside down", [](GroupedCall& c) { c.args.sfb.stride = -6; }},
    {"b reaches beyond the addresses", [](GroupedCall& c) { c.args.b.stride = kHuge; }},
    {"sfb reaches beyond the addresses", [](GroupedCall& c) { c.args.sfb.stride = kHuge; }},
    {"b is null", [](GroupedCall& c) { c.args.b.matrix.data = nullptr; }},
    {"d is off 16 bytes", [](GroupedCall& c) { on_gpu(c), c.args.d.matrix.data = address(8); }},
    {"d holds the last matrix of b",
     [](GroupedCall& c) {
         c.args.d.matrix.data = static_cast<char*>(c.args.b.matrix.data) + 3 * c.args.b.stride + 1024;
     }},
    {"d holds the numbers",
     [](GroupedCall& c) { c.args.groups.data = static_cast<const int32_t*>(c.args.d.matrix.data) + 2; }},
    {"weights of groups are prefetched", [](GroupedCall& c) { c.options.pdl = 1, c.options.prefetch_weights = 1; }},
    {"config is unknown", [](GroupedCall& c) { c.options.config = "fastest"; }},
    {"num_sms is negative", [](GroupedCall& c) { c.options.num_sms = -1; }},
    {"there is no driver", [](GroupedCall& c) { on_gpu(c); }},

    {"offsets descend", [](GroupedCall& c) { set_numbers(c, {2, 10, 9, 25, 40}); }},
    {"an offset is beyond m", [](GroupedCall& c) { set_numbers(c, {0, 10, 10, 25, 41}); }},
    {"a group ends before it begins",
     [](GroupedCall& c) {
         set_numbers(c, {2, 10, 11, 12});
         c.args.groups.form = FINEGEMM_PREFIX_SUMS, c.args.groups.alignment = 8;
     }},
    {"a mask is negative", [](GroupedCall& c) { set_numbers(c, {0, 0, -1, 0}); }, true},
    {"a row is of a fifth group",
     [](GroupedCall& c) {
         set_numbers(c, std::vector<int32_t>(40, 4));
         c.args.groups.form = FINEGEMM_INDICES;
     }},
    {"a row is behind the padding",
     [](GroupedCall& c) {
         std::vector<int32_t> indices(40, 3);
         indices[20] = -1;
         set_numbers(c, std::move(indices));
         c.args.groups.form = FINEGEMM_INDICES;
     }},
    {"a scale of a is NaN", [](GroupedCall& c) { c.problem.sfa.at(82, 1) = kNan, set_numbers(c, {2, 0, 40, 25}); },
     true},
    {"a scale of b is negative",
     [](GroupedCall& c) { c.problem.sfb.at(7, 2) = -1, c.options.check_values = FINEGEMM_ON; }},
};

}  // namespace finegemm::test
