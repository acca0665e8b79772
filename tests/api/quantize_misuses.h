// Quantisations that are refused, for misuse_test.cpp. Layer tests.
#pragma once

#include <string>

#include "api/calls.h"

namespace finegemm::test {

struct QuantizeMisuse {
    const char* name;
    void (*spoil)(QuantizeCall&);
    bool blocks = false;
};

inline const QuantizeMisuse kQuantize[] = {
    {"x is e4m3", [](QuantizeCall& c) { c.x.dtype = FINEGEMM_E4M3; }},
    {"q is bf16", [](QuantizeCall& c) { c.q.dtype = FINEGEMM_BF16; }},
    {"scales are f16", [](QuantizeCall& c) { c.scales.dtype = FINEGEMM_F16; }},
    {"x has too many columns", [](QuantizeCall& c) { c.x.cols = c.q.cols = int64_t{1} << 40; }},
    {"q has another shape", [](QuantizeCall& c) { c.q.rows = 255; }},
    {"x has 380 columns", [](QuantizeCall& c) { c.x.cols = c.q.cols = 380; }},
    {"scales of rows for blocks", [](QuantizeCall&) {}, true},
    {"scales of whole rows for blocks", [](QuantizeCall& c) { set_shape(c.scales, 256, 1); }, true},
    {"scales of whole rows overlap", [](QuantizeCall& c) { set_shape(c.scales, 256, 1), set_strides(c.scales, 0, 1); }},
    {"scales of whole rows are f16",
     [](QuantizeCall& c) { set_shape(c.scales, 256, 1), c.scales.dtype = FINEGEMM_F16; }},
    {"scales of blocks for rows", [](QuantizeCall& c) { set_shape(c.scales, 2, 3); }},
    {"scales are broadcast", [](QuantizeCall& c) { set_strides(c.scales, 0, 1); }},
    {"scales overlap", [](QuantizeCall& c) { set_strides(c.scales, 2, 1); }},
    {"x has overlapping rows", [](QuantizeCall& c) { c.x.row_stride = 383; }},
    {"x is stored by columns", [](QuantizeCall& c) { set_strides(c.x, 1, 256); }},
    {"q is upside down", [](QuantizeCall& c) { c.q.row_stride = -384; }},
    {"q is upside down, of e5m2", [](QuantizeCall& c) { c.q.dtype = FINEGEMM_E5M2, c.q.row_stride = -384; }},
    {"q of e5m2 is off 16 bytes on a GPU",
     [](QuantizeCall& c) {
         c.x.device_type = c.q.device_type = c.scales.device_type = FINEGEMM_CUDA;
         c.q.dtype = FINEGEMM_E5M2, c.q.data = address(8);
     }},
    {"x is null", [](QuantizeCall& c) { c.x.data = nullptr; }},
    {"scales are off 4 bytes on a GPU",
     [](QuantizeCall& c) {
         c.x.device_type = c.q.device_type = c.scales.device_type = FINEGEMM_CUDA, c.scales.data = address(2);
     }},
    {"q is x", [](QuantizeCall& c) { c.q.data = c.x.data; }},
    {"scales lie in x", [](QuantizeCall& c) { c.scales.data = c.x.data; }},
    {"scales lie in q", [](QuantizeCall& c) { c.scales.data = c.q.data; }},
    {"q is on a GPU", [](QuantizeCall& c) { c.q.device_type = FINEGEMM_CUDA; }},
    {"x is off 16 bytes on a GPU",
     [](QuantizeCall& c) {
         c.x.device_type = c.q.device_type = c.scales.device_type = FINEGEMM_CUDA, c.x.data = address(8);
     }},
    {"power_of_two_scales is 2", [](QuantizeCall& c) { c.options.power_of_two_scales = 2; }},
    {"options have half the size of their first version",
     [](QuantizeCall& c) { c.options.struct_size = offsetof(finegemm_quantize_options, poll) / 2; }},
};

struct QuantizeWeightsMisuse {
    const char* name;
    void (*spoil)(QuantizeWeightsCall&);
};

inline const QuantizeWeightsMisuse kQuantizeWeights[] = {
    {"x has no matrix",
     [](QuantizeWeightsCall& c) {
         c.args.x.count = c.args.q.count = c.args.scales.count = c.args.transposed.count = 0;
     }},
    {"q has another count", [](QuantizeWeightsCall& c) { c.args.q.count = 1; }},
    {"matrices of q overlap", [](QuantizeWeightsCall& c) { c.args.q.stride = 16; }},
    {"scales of all matrices are one", [](QuantizeWeightsCall& c) { c.args.scales.stride = 0; }},
    {"transposed has another count", [](QuantizeWeightsCall& c) { c.args.transposed.count = 3; }},
    {"transposed is x's shape", [](QuantizeWeightsCall& c) { set_shape(c.args.transposed.matrix, 256, 384); }},
    {"transposed is e4m3, q e5m2", [](QuantizeWeightsCall& c) { c.args.q.matrix.dtype = FINEGEMM_E5M2; }},
    {"matrices of q overlap, of e5m2",
     [](QuantizeWeightsCall& c) {
         c.args.q.matrix.dtype = c.args.transposed.matrix.dtype = FINEGEMM_E5M2, c.args.q.stride = 16;
     }},
    {"transposed is bf16", [](QuantizeWeightsCall& c) { c.args.transposed.matrix.dtype = FINEGEMM_BF16; }},
    {"x has 250 rows",
     [](QuantizeWeightsCall& c) { c.args.x.matrix.rows = c.args.q.matrix.rows = c.args.transposed.matrix.cols = 250; }},
    {"transposed is q", [](QuantizeWeightsCall& c) { c.args.transposed.matrix.data = c.args.q.matrix.data; }},
    {"transposed is on a GPU", [](QuantizeWeightsCall& c) { c.args.transposed.matrix.device_type = FINEGEMM_CUDA; }},
};

struct QuantizeColumnsMisuse {
    const char* name;
    void (*spoil)(QuantizeColumnsCall&);
};

inline const QuantizeColumnsMisuse kQuantizeColumns[] = {
    {"x is e4m3", [](QuantizeColumnsCall& c) { c.args.x.dtype = FINEGEMM_E4M3; }},
    {"x has 380 columns", [](QuantizeColumnsCall& c) { c.args.x.cols = c.args.q.rows = 380; }},
    {"q is bf16", [](QuantizeColumnsCall& c) { c.args.q.dtype = FINEGEMM_BF16; }},
    {"q is x's shape", [](QuantizeColumnsCall& c) { set_shape(c.args.q, 256, 384); }},
    {"q has 264 columns", [](QuantizeColumnsCall& c) { c.args.q.cols = 264; }},
    {"q has too few columns", [](QuantizeColumnsCall& c) { c.args.q.cols = 240; }},
    {"q has too few columns for groups", [](QuantizeColumnsCall& c) { c.args.q.cols = 384; }},
    {"q has columns that are no blocks", [](QuantizeColumnsCall& c) { c.args.q.cols = 528; }},
    {"scales are those of blocks", [](QuantizeColumnsCall& c) { set_shape(c.args.scales, 3, 4); }},
    {"scales overlap", [](QuantizeColumnsCall& c) { set_strides(c.args.scales, 1, 5); }},
    {"row_q without row_scales", [](QuantizeColumnsCall& c) { c.args.row_scales = {}; }},
    {"row_scales without row_q", [](QuantizeColumnsCall& c) { c.args.row_q = {}; }},
    {"row_q has another shape", [](QuantizeColumnsCall& c) { c.args.row_q.rows = 255; }},
    {"row_q is q", [](QuantizeColumnsCall& c) { c.args.row_q.data = c.args.q.data; }},
    {"row_scales lie in x", [](QuantizeColumnsCall& c) { c.args.row_scales.data = c.args.x.data; }},
    {"row_q is on a GPU", [](QuantizeColumnsCall& c) { c.args.row_q.device_type = FINEGEMM_CUDA; }},
    {"offsets are on a GPU", [](QuantizeColumnsCall& c) { c.args.offsets.device_type = FINEGEMM_CUDA; }},
    {"offsets are f32", [](QuantizeColumnsCall& c) { c.args.offsets.dtype = FINEGEMM_F32; }},
    {"offsets are a column", [](QuantizeColumnsCall& c) { set_shape(c.args.offsets, 3, 1); }},
    {"offsets are of no group", [](QuantizeColumnsCall& c) { c.args.offsets.cols = 1; }},
    {"begins are too few", [](QuantizeColumnsCall& c) { c.args.begins.cols = 2; }},
    {"begins are missing", [](QuantizeColumnsCall& c) { c.args.begins = {}; }},
    {"begins without offsets", [](QuantizeColumnsCall& c) { c.args.offsets = {}; }},
    {"begins are the offsets", [](QuantizeColumnsCall& c) { c.args.begins.data = c.args.offsets.data; }},
    {"begins lie in q", [](QuantizeColumnsCall& c) { c.args.begins.data = c.args.q.data; }},
    {"offsets lie in the scales", [](QuantizeColumnsCall& c) { c.args.offsets.data = c.args.scales.data; }},
    {"power_of_two_scales is 2", [](QuantizeColumnsCall& c) { c.options.power_of_two_scales = 2; }},
};

template <typename Sentences>
Sentences quantize_misuses() {
    Sentences said;
    const CContext context;
    for (const QuantizeMisuse& m : kQuantize) {
        QuantizeCall call;
        m.spoil(call);
        if (m.blocks) call.run_blocks(context.get());
        else call.run_rows(context.get());
        said[std::string("quantize: ") + m.name] = {call.error.code, call.error.message};
    }
    for (const QuantizeWeightsMisuse& m : kQuantizeWeights) {
        QuantizeWeightsCall call;
        m.spoil(call);
        call.run(context.get());
        said[std::string("quantize_weights: ") + m.name] = {call.error.code, call.error.message};
    }
    for (const QuantizeColumnsMisuse& m : kQuantizeColumns) {
        QuantizeColumnsCall call;
        m.spoil(call);
        call.run(context.get());
        said[std::string("quantize_columns: ") + m.name] = {call.error.code, call.error.message};
    }
    finegemm_error e;
    finegemm_quantize_rows(context.get(), nullptr, nullptr, nullptr, nullptr, &e);
    said["quantize: x is no matrix"] = {e.code, e.message};
    finegemm_quantize_weights(context.get(), nullptr, nullptr, &e);
    said["quantize_weights: args are null"] = {e.code, e.message};
    finegemm_quantize_columns(context.get(), nullptr, nullptr, &e);
    said["quantize_columns: args are null"] = {e.code, e.message};
    return said;
}

}  // namespace finegemm::test
