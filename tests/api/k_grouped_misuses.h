// K-grouped GEMMs that are wrong, for misuse_test.cpp. Layer tests.
#pragma once

#include "api/calls.h"

namespace finegemm::test {

struct KGroupedMisuse {
    const char* name;
    void (*spoil)(KGroupedCall&);
};

inline void on_gpu(KGroupedCall& c) {
    for (finegemm_matrix* x : {&c.args.a, &c.args.sfa, &c.args.b, &c.args.sfb, &c.args.d.matrix})
        x->device_type = FINEGEMM_CUDA;
    c.args.device_type = FINEGEMM_CUDA;
}

inline const KGroupedMisuse kKGrouped[] = {
    {"there is no group", [](KGroupedCall& c) { c.args.groups = 0; }},
    {"there are 65536 groups", [](KGroupedCall& c) { c.args.groups = c.args.d.count = 65536; }},
    {"d has two matrices", [](KGroupedCall& c) { c.args.d.count = 2; }},
    {"d is e4m3", [](KGroupedCall& c) { c.args.d.matrix.dtype = FINEGEMM_E4M3; }},
    {"a is f32", [](KGroupedCall& c) { c.args.a.dtype = FINEGEMM_F32; }},
    {"sfb is of blocks", [](KGroupedCall& c) { c.args.sfb.rows = 2; }},
    {"sfa has one scale a row, in a row", [](KGroupedCall& c) { set_shape(c.args.sfa, 1, 40); }},
    {"sfa and sfb are swapped", [](KGroupedCall& c) { std::swap(c.args.sfa, c.args.sfb); }},
    {"a and b differ in k", [](KGroupedCall& c) { c.args.b.cols = 256; }},
    {"k is not a multiple of 128", [](KGroupedCall& c) { c.args.a.cols = c.args.b.cols = 272; }},
    {"n is not a multiple of 8", [](KGroupedCall& c) { c.args.b.rows = c.args.d.matrix.cols = 252; }},
    {"d has overlapping matrices", [](KGroupedCall& c) { c.args.d.stride -= 8; }},
    {"d has matrices off 16 bytes", [](KGroupedCall& c) { on_gpu(c), c.args.d.stride += 2; }},
    {"a has rows off 16 bytes", [](KGroupedCall& c) { on_gpu(c), c.args.a.row_stride = 392; }},
    {"offsets are null", [](KGroupedCall& c) { c.args.offsets = nullptr; }},
    {"offsets are off 4 bytes", [](KGroupedCall& c) { c.args.offsets = static_cast<const int32_t*>(address(2)); }},
    {"offsets are on a GPU", [](KGroupedCall& c) { c.args.device_type = FINEGEMM_CUDA; }},
    {"d holds the offsets",
     [](KGroupedCall& c) { c.args.offsets = static_cast<const int32_t*>(c.args.d.matrix.data) + 2; }},
    {"weights of groups are prefetched", [](KGroupedCall& c) { c.options.pdl = 1, c.options.prefetch_weights = 1; }},
    {"config is unknown", [](KGroupedCall& c) { c.options.config = "fastest"; }},
    {"sfa uses its reserved field", [](KGroupedCall& c) { c.args.sfa.reserved = 1; }},
    {"args use their reserved field", [](KGroupedCall& c) { c.args.reserved = 1; }},
    {"layout is unknown", [](KGroupedCall& c) { c.args.layout = 2; }},
    {"groups are blocks and a has gaps",
     [](KGroupedCall& c) { c.args.layout = FINEGEMM_BLOCKS, c.args.a.row_stride = 400; }},
    {"groups are blocks and offsets are on a GPU", [](KGroupedCall& c) { on_gpu(c), c.args.layout = FINEGEMM_BLOCKS; }},
    {"offsets on the host are wrong, the rest is on a GPU",
     [](KGroupedCall& c) { on_gpu(c), c.args.device_type = FINEGEMM_CPU, c.set_offsets({0, 128, 64, 384}); }},
    {"offsets are on another GPU", [](KGroupedCall& c) { on_gpu(c), c.args.device_index = 1; }},
    {"there is no driver", [](KGroupedCall& c) { on_gpu(c); }},

    {"an offset is negative", [](KGroupedCall& c) { c.set_offsets({-128, 0, 128, 256}); }},
    {"offsets descend", [](KGroupedCall& c) { c.set_offsets({0, 256, 128, 384}); }},
    {"an offset is beyond k", [](KGroupedCall& c) { c.set_offsets({0, 128, 256, 512}); }},
    {"an offset is within a block", [](KGroupedCall& c) { c.set_offsets({0, 128, 200, 384}); }},
    {"a scale of b is NaN",
     [](KGroupedCall& c) { c.problem.sfb.at(200, 1) = kNan, c.options.check_values = FINEGEMM_ON; }},
};

}  // namespace finegemm::test
