// Changes of scales' layout that are wrong, for misuse_test.cpp. Layer tests.
#pragma once

#include "api/calls.h"

namespace finegemm::test {

struct ScaleLayoutMisuse {
    const char* name;
    void (*spoil)(ScaleLayoutCall&);
};

inline constexpr int32_t kEnds[] = {10, 20, 300};

inline void give_groups(ScaleLayoutCall& c, int32_t form) {
    c.args.form = form, c.args.groups = kEnds, c.args.size = 3;
}

inline const ScaleLayoutMisuse kScaleLayout[] = {
    {"sf is bf16", [](ScaleLayoutCall& c) { c.args.sf.matrix.dtype = FINEGEMM_BF16; }},
    {"out is e4m3", [](ScaleLayoutCall& c) { c.args.out.matrix.dtype = FINEGEMM_E4M3; }},
    {"sf has too many rows", [](ScaleLayoutCall& c) { c.args.sf.matrix.rows = int64_t{1} << 40; }},
    {"sf has 4 rows", [](ScaleLayoutCall& c) { c.args.sf.matrix.rows = 4; }},
    {"out has 3 columns", [](ScaleLayoutCall& c) { c.args.out.matrix.cols = 3; }},
    {"out has 2 columns of f32", [](ScaleLayoutCall& c) { c.args.out.matrix.dtype = FINEGEMM_F32; }},
    {"out is unpacked to too few columns",
     [](ScaleLayoutCall& c) { c.args.sf.matrix.dtype = FINEGEMM_UE8M0X4, c.args.out.matrix.dtype = FINEGEMM_F32; }},
    {"sf has three matrices", [](ScaleLayoutCall& c) { c.args.sf.count = 3; }},
    {"out has no matrix", [](ScaleLayoutCall& c) { c.args.out.count = 0; }},
    {"sf is upside down", [](ScaleLayoutCall& c) { c.args.sf.matrix.row_stride = -7; }},
    {"out is broadcast", [](ScaleLayoutCall& c) { set_strides(c.args.out.matrix, 0, 1); }},
    {"matrices of out overlap",
     [](ScaleLayoutCall& c) { c.args.sf.count = c.args.out.count = 2, c.args.out.stride = 599; }},
    {"sf is null", [](ScaleLayoutCall& c) { c.args.sf.matrix.data = nullptr; }},
    {"out is sf", [](ScaleLayoutCall& c) { c.args.out.matrix.data = c.args.sf.matrix.data; }},
    {"out is on a GPU", [](ScaleLayoutCall& c) { c.args.out.matrix.device_type = FINEGEMM_CUDA; }},
    {"sf is at an odd address of a GPU",
     [](ScaleLayoutCall& c) {
         c.args.sf.matrix.device_type = c.args.out.matrix.device_type = FINEGEMM_CUDA;
         c.args.sf.matrix.data = reinterpret_cast<void*>(uintptr_t{0x1001});
     }},
    {"form is 9", [](ScaleLayoutCall& c) { give_groups(c, 9); }},
    {"groups of K are copied",
     [](ScaleLayoutCall& c) {
         give_groups(c, FINEGEMM_K_SIZES);
         c.args.out.matrix.dtype = FINEGEMM_F32;
     }},
    {"groups of several matrices",
     [](ScaleLayoutCall& c) {
         give_groups(c, FINEGEMM_ROW_GROUPS);
         c.args.sf.count = c.args.out.count = 2, c.args.out.stride = 600;
         c.args.out.matrix.data = reinterpret_cast<void*>(uintptr_t{0x10000});  // apart from sf, wherever that lies
     }},
    {"no groups", [](ScaleLayoutCall& c) { give_groups(c, FINEGEMM_ROW_GROUPS), c.args.size = 0; }},
    {"alignment is 0", [](ScaleLayoutCall& c) { give_groups(c, FINEGEMM_ROW_GROUPS), c.args.alignment = 0; }},
    {"scale_k is 2^31",
     [](ScaleLayoutCall& c) { give_groups(c, FINEGEMM_K_SIZES), c.args.scale_k = int64_t{1} << 31; }},
    {"groups are null", [](ScaleLayoutCall& c) { give_groups(c, FINEGEMM_ROW_GROUPS), c.args.groups = nullptr; }},
    {"groups are on a GPU",
     [](ScaleLayoutCall& c) { give_groups(c, FINEGEMM_ROW_GROUPS), c.args.device_type = FINEGEMM_CUDA; }},
    {"power_of_two_scales is 2", [](ScaleLayoutCall& c) { c.options.power_of_two_scales = 2; }},
    {"packed scales are rounded",
     [](ScaleLayoutCall& c) {
         c.args.sf.matrix.dtype = FINEGEMM_UE8M0X4, c.options.power_of_two_scales = 1;
         set_shape(c.args.sf.matrix, 300, 2);
     }},
    {"reserved is 1", [](ScaleLayoutCall& c) { c.args.reserved = 1; }},
    {"options have half their size", [](ScaleLayoutCall& c) { c.options.struct_size /= 2; }},
};

/// What the library says to each, by name.
template <typename Sentences>
Sentences scale_layout_misuses() {
    Sentences said;
    const CContext context;
    for (const ScaleLayoutMisuse& m : kScaleLayout) {
        ScaleLayoutCall call;
        m.spoil(call);
        call.run(context.get());
        said[std::string("scale_layout: ") + m.name] = {call.error.code, call.error.message};
    }
    finegemm_error e;
    finegemm_scale_layout(context.get(), nullptr, nullptr, &e);
    said["scale_layout: args are null"] = {e.code, e.message};
    return said;
}

}  // namespace finegemm::test
