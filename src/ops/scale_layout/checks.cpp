// Argument checks of changes of scales' layout. Layer api.
#include "ops/scale_layout/checks.h"

#include <algorithm>

#include "api/argument.h"
#include "ops/scale_layout/hopper.h"
#include "plan/fields.h"

namespace finegemm {

namespace {

int64_t words_of(int64_t cols) { return (cols + kExponentsPerWord - 1) / kExponentsPerWord; }

void check_format(const Argument& x) {
    if (x.x.dtype != DType::F32 && x.x.dtype != DType::UE8M0x4)
        reject(x.name, "has dtype {}, must be f32 or ue8m0x4 (four exponents in an int32); convert it",
               name_of(x.x.dtype));
}

void check_rows(const Argument& sf, const Argument& out) {
    const int64_t blocks = (out.x.rows + kScaleBlock - 1) / kScaleBlock;
    if (sf.x.rows != out.x.rows && sf.x.rows != blocks)
        reject("sf",
               "has {} rows, must have {}, as out, or {}, one for each {} rows of out; pass the scales of all rows",
               sf.x.rows, out.x.rows, blocks, kScaleBlock);
}

void check_cols(const Argument& sf, const Argument& out, ScaleTransform transform) {
    const auto check = [&](int64_t wanted, const char* meaning) {
        if (out.x.cols != wanted)
            reject("out", "has {} columns, but sf has {}, so that it must have {} ({}); pass memory of that shape",
                   out.x.cols, sf.x.cols, wanted, meaning);
    };
    switch (transform) {
        case ScaleTransform::Copy:
        case ScaleTransform::Round: return check(sf.x.cols, "as many");
        case ScaleTransform::Pack: return check(words_of(sf.x.cols), "one for each four");
        case ScaleTransform::Unpack:
            if (words_of(out.x.cols) != sf.x.cols) check(sf.x.cols * kExponentsPerWord, "or up to three fewer");
    }
}

void check_bound(const char* what, int64_t x) {
    constexpr int64_t kMost = int64_t{1} << 30;
    if (x < 1 || x > kMost) reject("groups", "have {} {}, must be from 1 to 2^30; pass that of the scales", what, x);
}

void check_groups(const ScaleLayoutCall& call, const Argument& out) {
    const ScaleGroups& groups = call.groups;
    if (groups.form != ScaleGroupForm::Rows && groups.form != ScaleGroupForm::KSizes &&
        groups.form != ScaleGroupForm::KPrefixSums)
        reject("groups", "have form {}, must be 0 (none), 1 (rows), 2 (k_sizes) or 3 (k_prefix_sums); pass one of them",
               static_cast<int32_t>(groups.form));
    if (groups.form != ScaleGroupForm::Rows && call.transform() != ScaleTransform::Pack)
        reject("groups",
               "are of K, but sf has dtype {} and out {}; only f32 that are packed have those: leave them out",
               name_of(call.sf.matrix.dtype), name_of(call.out.matrix.dtype));
    if (call.out.count != 1)
        reject("groups", "are given, but out has {} matrices, must have 1; call for each matrix", call.out.count);
    plan::check_group_count(groups.size);
    check_bound("alignment", groups.alignment);
    check_bound("scale_k", groups.scale_k);
    check_numbers({"groups", groups.data, groups.size, groups.device}, call.out.matrix.device, out);
}

void check_places(const ScaleLayoutCall& call, const Argument& sf, const Argument& out) {
    const Device& device = call.out.matrix.device;
    for (const Argument& x : {out, sf}) {
        x.check_device(device, "out");
        x.check_pointer(std::min<int64_t>(alignment_on(device), alignof(float)));
        x.check_steps_not_negative();
    }
    out.check_elements_apart();
    sf.check_apart_from(out);
    if (device.type == DeviceType::Cuda && !out.empty() && scale_tiles(call) > INT32_MAX)
        reject("out", "has {} matrices of shape [{}, {}], which are {} tiles, must be at most 2^31 - 1; split the call",
               out.count, out.x.rows, out.x.cols, scale_tiles(call));
}

}  // namespace

void check_scale_layout(const ScaleLayoutCall& call) {
    const ConstMatrix out_view = call.out.matrix;
    const Argument sf{"sf", call.sf.matrix, call.sf.count, call.sf.stride};
    const Argument out{"out", out_view, call.out.count, call.out.stride};
    for (const Argument& x : {sf, out}) {
        check_format(x);
        x.check_extents();
    }
    if (out.count < 1) reject("out", "has {} matrices, must have at least 1; leave the call out", out.count);
    if (sf.count != out.count) reject("sf", "has {} matrices, but out has {}; pass as many", sf.count, out.count);
    check_rows(sf, out);
    if (call.groups.form == ScaleGroupForm::None || call.groups.form == ScaleGroupForm::Rows)
        check_cols(sf, out, call.transform());
    check_places(call, sf, out);
    if (call.groups.form != ScaleGroupForm::None) check_groups(call, out);
    if (call.options.power_of_two_scales && sf.x.dtype != DType::F32)
        reject("power_of_two_scales", "is set, but sf has dtype {}, whose scales are powers of two; leave it out",
               name_of(sf.x.dtype));
}

}  // namespace finegemm
