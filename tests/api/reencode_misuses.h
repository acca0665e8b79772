// MXFP8 that is refused its scales for 128, for misuse_test.cpp. Layer tests.
#pragma once

#include <string>

#include "api/calls.h"

namespace finegemm::test {

struct ReencodeMisuse {
    const char* name;
    void (*spoil)(ReencodeCall&);
};

inline const ReencodeMisuse kReencode[] = {
    {"codes are e5m2", [](ReencodeCall& c) { c.args.codes.matrix.dtype = FINEGEMM_E5M2; }},
    {"q is e5m2", [](ReencodeCall& c) { c.args.q.matrix.dtype = FINEGEMM_E5M2; }},
    {"words are f32", [](ReencodeCall& c) { c.args.words.matrix.dtype = FINEGEMM_F32; }},
    {"words are i32", [](ReencodeCall& c) { c.args.words.matrix.dtype = FINEGEMM_I32; }},
    {"scales are f16", [](ReencodeCall& c) { c.args.scales.matrix.dtype = FINEGEMM_F16; }},
    {"codes have 380 columns", [](ReencodeCall& c) { c.args.codes.matrix.cols = c.args.q.matrix.cols = 380; }},
    {"codes have too many rows", [](ReencodeCall& c) { c.args.codes.matrix.rows = kHuge; }},
    {"q has another shape", [](ReencodeCall& c) { c.args.q.matrix.rows = 255; }},
    {"words are for 32 columns", [](ReencodeCall& c) { set_shape(c.args.words.matrix, 256, 12); }},
    {"words have a negative step", [](ReencodeCall& c) { set_strides(c.args.words.matrix, -3, 1); }},
    {"scales are for whole rows", [](ReencodeCall& c) { set_shape(c.args.scales.matrix, 256, 1); }},
    {"scales are of one block", [](ReencodeCall& c) { set_shape(c.args.scales.matrix, 1, 3); }},
    {"scales overlap", [](ReencodeCall& c) { set_strides(c.args.scales.matrix, 2, 1); }},
    {"scales of all matrices are one", [](ReencodeCall& c) { c.args.scales.stride = 0; }},
    {"matrices of q overlap", [](ReencodeCall& c) { c.args.q.stride = 16; }},
    {"there is no matrix",
     [](ReencodeCall& c) {
         for (finegemm_stack* x : {&c.args.codes, &c.args.words, &c.args.q, &c.args.scales}) x->count = 0;
     }},
    {"words have another count", [](ReencodeCall& c) { c.args.words.count = 1; }},
    {"q has another count", [](ReencodeCall& c) { c.args.q.count = 1; }},
    {"codes are stored by columns", [](ReencodeCall& c) { set_strides(c.args.codes.matrix, 1, 256); }},
    {"q is upside down", [](ReencodeCall& c) { c.args.q.matrix.row_stride = -384; }},
    {"codes are null", [](ReencodeCall& c) { c.args.codes.matrix.data = nullptr; }},
    {"words are null", [](ReencodeCall& c) { c.args.words.matrix.data = nullptr; }},
    {"q is codes", [](ReencodeCall& c) { c.args.q.matrix.data = c.args.codes.matrix.data; }},
    {"scales lie in q", [](ReencodeCall& c) { c.args.scales.matrix.data = c.args.q.matrix.data; }},
    {"scales are the words", [](ReencodeCall& c) { c.args.scales.matrix.data = c.args.words.matrix.data; }},
    {"changed lies in the codes", [](ReencodeCall& c) { c.args.changed.data = c.args.codes.matrix.data; }},
    {"changed lies in the words", [](ReencodeCall& c) { c.args.changed.data = c.args.words.matrix.data; }},
    {"changed lies in the scales", [](ReencodeCall& c) { c.args.changed.data = c.args.scales.matrix.data; }},
    {"changed is f32", [](ReencodeCall& c) { c.args.changed.dtype = FINEGEMM_F32; }},
    {"changed is a row", [](ReencodeCall& c) { set_shape(c.args.changed, 1, 2); }},
    {"changed is on a GPU", [](ReencodeCall& c) { c.args.changed.device_type = FINEGEMM_CUDA; }},
    {"words are on a GPU", [](ReencodeCall& c) { c.args.words.matrix.device_type = FINEGEMM_CUDA; }},
    {"codes are off 16 bytes on a GPU", [](ReencodeCall& c) { c.on_gpu(), c.args.codes.matrix.data = address(8); }},
    {"rows of q are off 16 bytes on a GPU", [](ReencodeCall& c) { c.on_gpu(), c.args.q.matrix.row_stride = 392; }},
    {"matrices of codes are off 16 bytes on a GPU", [](ReencodeCall& c) { c.on_gpu(), c.args.codes.stride += 8; }},
    {"matrices of q are off 16 bytes on a GPU", [](ReencodeCall& c) { c.on_gpu(), c.args.q.stride += 8; }},
    {"words are off 4 bytes on a GPU", [](ReencodeCall& c) { c.on_gpu(), c.args.words.matrix.data = address(2); }},
    {"changed is off 4 bytes on a GPU", [](ReencodeCall& c) { c.on_gpu(), c.args.changed.data = address(2); }},
    {"pdl is 2", [](ReencodeCall& c) { c.options.pdl = 2; }},
    {"options have half the size of their first version",
     [](ReencodeCall& c) { c.options.struct_size = sizeof(finegemm_reencode_options) / 2; }},
};

template <typename Sentences>
Sentences reencode_misuses() {
    Sentences said;
    const CContext context;
    for (const ReencodeMisuse& m : kReencode) {
        ReencodeCall call;
        m.spoil(call);
        call.run(context.get());
        said[std::string("reencode: ") + m.name] = {call.error.code, call.error.message};
    }
    finegemm_error e;
    finegemm_reencode(context.get(), nullptr, nullptr, &e);
    said["reencode: args are null"] = {e.code, e.message};
    return said;
}

}  // namespace finegemm::test
