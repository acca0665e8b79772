// Argument checks of products with weights of 4 bits, and their packing. Layer api.
#include "ops/four_bit/checks.h"

#include <algorithm>
#include <utility>

#include "api/argument.h"
#include "ops/four_bit/cpu_pack.h"
#include "ops/four_bit/planner.h"
#include "ops/gemm/groups.h"
#include "plan/elements.h"
#include "plan/fields.h"

namespace finegemm {

namespace {

constexpr int64_t kMostTiles = INT32_MAX;

void check_format(FourBitFormat format) {
    if (format != FourBitFormat::Mxfp4 && format != FourBitFormat::Int4)
        reject("format", "is {}, must be 1 (mxfp4) or 2 (int4); pass that of the weights",
               static_cast<int32_t>(format));
}

/// Columns that share a scale.
int64_t scaled_cols(FourBitFormat format) { return format == FourBitFormat::Mxfp4 ? 32 : kScaleBlock; }

void check_weight_shape(const char* name, FourBitFormat format, int64_t rows, int64_t cols) {
    check_format(format);
    const int64_t unit = scaled_cols(format);
    if (rows < 8 || rows > INT32_MAX || rows % 8 != 0)
        reject(name, "has N = {} rows, must be a multiple of 8 from 8 on; pad with rows of zeros", rows);
    if (cols < unit || cols > INT32_MAX || cols % unit != 0)
        reject(name, "has K = {} columns, must be a multiple of {}, which share a scale of {}; pad with zeros", cols,
               unit, name_of(format));
}

void check_weights(const FourBitWeights& b) {
    check_weight_shape("b", b.format, b.rows, b.cols);
    plan::check_group_count(b.groups, plan::kMaxGroups, "b");
}

/// Matrices that a call has of A, scales and D.
void check_counts(const FourBitCall& call, const Argument& a, const Argument& sfa, const Argument& d) {
    const int64_t wanted = call.stacked() ? call.b.groups : 1;
    for (const Argument& x : {a, sfa, d})
        if (x.count != wanted)
            reject(x.name, "has {} matrices, must have {}: {}; pass as many", x.count, wanted,
                   call.stacked() ? "masked and whole groups have a matrix each" : "groups share one");
}

void check_groups(const FourBitCall& call, const Argument& d) {
    const Groups& groups = call.groups;
    const auto check_size = [&](int64_t wanted, const char* meaning) {
        if (groups.size != wanted)
            reject("groups", "has {} {}, must have {} ({}); pass as many", groups.size, name_of(groups.form), wanted,
                   meaning);
    };
    const bool indices = groups.form == GroupForm::Indices;
    switch (groups.form) {
        case GroupForm::Offsets:
            check_size(call.b.groups + 1, "the begin of each group and the end of the last one");
            break;
        case GroupForm::Indices: check_size(d.x.rows, "one for each row of a"); break;
        case GroupForm::PrefixSums: check_size(call.b.groups, "the end of each group"); break;
        case GroupForm::Masked: check_size(call.b.groups, "the number of rows of each group"); break;
        case GroupForm::Whole: return check_size(0, "all rows are used");
    }
    if (indices || groups.form == GroupForm::PrefixSums)
        plan::check_alignment(groups.alignment, indices ? plan::kMinIndexAlignment : 1, name_of(groups.form));
    plan::check_expected_m(groups.expected_m);
    check_numbers({"groups", groups.data, groups.size, groups.device}, d.x.device, d);
}

void check_shapes(const FourBitCall& call, const Argument& a, const Argument& d) {
    const FourBitWeights& b = call.b;
    a.check_dtype(DType::E4M3, "quantize_rows makes it");
    d.check_dtype(DType::BF16, "pass memory of bf16");
    a.check_extents();
    if (a.x.cols != b.cols) reject("a", "has K = {} columns, but b has {}; both have the same K", a.x.cols, b.cols);
    if (!d.has_shape(a.x.rows, b.rows))
        reject("d",
               "has shape [{}, {}], must be [{}, {}] (a row for each of a, a column for each row of b); pass memory of "
               "that shape",
               d.x.rows, d.x.cols, a.x.rows, b.rows);
    constexpr FourBitConfig least{FourBitCodes::Mxfp4, FourBitRows::Few};
    const int64_t tiles = (a.x.rows / least.tile_rows() + 1) * (call.stacked() ? b.groups : 1) + b.groups;
    if (tiles > kMostTiles / call.n_blocks())
        reject("a", "has {} rows, too many for N = {}; split the call", a.x.rows, b.rows);
}

bool is_left_out(const ConstStack& x) { return !x.matrix.data && x.matrix.rows == 0 && x.matrix.cols == 0; }

/// The weights as FP8, where they are given.
void check_fp8(const FourBitCall& call, const Argument& d) {
    if (is_left_out(call.fp8) != is_left_out(call.fp8_scales))
        reject(is_left_out(call.fp8) ? "fp8" : "fp8_scales",
               "is left out, but the other is given; pass both or neither");
    if (is_left_out(call.fp8)) return;
    const Argument fp8{"fp8", call.fp8.matrix, call.fp8.count, call.fp8.stride},
        scales{"fp8_scales", call.fp8_scales.matrix, call.fp8_scales.count, call.fp8_scales.stride};
    fp8.check_dtype(DType::E4M3, "unpack_four_bit makes it");
    if (!fp8.has_shape(call.b.rows, call.b.cols))
        reject("fp8", "has shape [{}, {}], must be [{}, {}], that of b; unpack_four_bit makes it", fp8.x.rows,
               fp8.x.cols, call.b.rows, call.b.cols);
    check_scales(scales, call.b.format == FourBitFormat::Mxfp4
                             ? scales_of_blocks(fp8.x, "one for each block of 128 x 128", "unpack_four_bit")
                             : scales_of_rows(fp8.x, "one for each row and 128 columns", "unpack_four_bit"));
    const int64_t alignment = alignment_on(d.x.device);
    for (const auto& [x, unit] : {std::pair(fp8, alignment), {scales, std::min<int64_t>(alignment, alignof(float))}}) {
        if (x.count != call.b.groups)
            reject(x.name, "has {} matrices, but b has {}; unpack all of them", x.count, call.b.groups);
        x.check_device(d.x.device, "d");
        x.check_pointer(unit);
        x.check_apart_from(d);
    }
    fp8.check_rows(alignment);
}

}  // namespace

void check_four_bit(const FourBitCall& call) {
    const ConstMatrix d_matrix = call.d.matrix;
    const Argument a{"a", call.a.matrix, call.a.count, call.a.stride},
        sfa{"sfa", call.sfa.matrix, call.sfa.count, call.sfa.stride}, d{"d", d_matrix, call.d.count, call.d.stride};
    if (name_of(call.groups.form).empty())
        reject("groups",
               "has form {}, must be 1 (offsets), 2 (indices), 3 (prefix_sums), 4 (masks) or 5 (whole); pass one of "
               "them",
               static_cast<int32_t>(call.groups.form));
    check_gemm_options({.numerics = call.options.numerics, .num_sms = call.options.num_sms}, false);
    check_weights(call.b);
    check_counts(call, a, sfa, d);
    check_shapes(call, a, d);
    check_scales(sfa, scales_of_rows(a.x, "one for each row and 128 columns of a", "quantize_rows"));

    const int64_t bytes = packed_bytes(call.b.format, call.b.rows, call.b.cols);
    const ConstMatrix packed{call.b.data, DType::E4M3, call.b.groups, bytes, bytes, 1, call.b.device};
    const Argument b{"b", packed};
    const int64_t alignment = alignment_on(d.x.device), of_floats = std::min<int64_t>(alignment, alignof(float));
    for (const auto& [x, unit] : {std::pair(d, alignment), {a, alignment}, {sfa, of_floats}, {b, alignment}}) {
        x.check_device(d.x.device, "d");
        x.check_pointer(unit);
    }
    a.check_rows(alignment);
    d.check_rows(alignment);
    d.check_matrices_apart();
    for (const Argument& x : {a, sfa, b}) x.check_apart_from(d);
    check_fp8(call, d);
    check_groups(call, d);
}

void check_four_bit(const FourBitShape& s) {
    check_weight_shape("shape", s.format, s.n, s.k);
    plan::check_shape(fp8_shape(s));
}

int64_t four_bit_bytes(FourBitFormat format, int64_t rows, int64_t cols) {
    check_weight_shape("weights", format, rows, cols);
    return packed_bytes(format, rows, cols);
}

namespace {

void check_on_host(const Argument& x) {
    if (x.x.device.type != DeviceType::Cpu) reject(x.name, "is not on the CPU, must be there; copy it");
    x.check_pointer(1);
}

}  // namespace

void pack_four_bit(const FourBitSource& source, void* packed) {
    const ConstMatrix &codes = source.codes, &scales = source.scales;
    const bool mxfp4 = source.format == FourBitFormat::Mxfp4;
    const Argument of_codes{"codes", codes}, of_scales{mxfp4 ? "exponents" : "scales", scales};
    if (size_of(codes.dtype) != 1)
        reject("codes", "has dtype {}, must have one byte for two weights; view it so", name_of(codes.dtype));
    check_weight_shape("codes", source.format, codes.rows, codes.cols * 2);
    if (mxfp4 && size_of(scales.dtype) != 1)
        reject(of_scales.name, "has dtype {}, must have one byte for each 32 weights; view it so",
               name_of(scales.dtype));
    if (!mxfp4) of_scales.check_dtype(DType::BF16, "convert it");
    if (mxfp4 && source.offset) reject("offset", "is set, but only int4 has such codes; leave it out");
    const int64_t unit = scaled_cols(source.format);
    if (!of_scales.has_shape(codes.rows, codes.cols * 2 / unit))
        reject(of_scales.name,
               "has shape [{}, {}], must be [{}, {}] (one for each row and {} columns); pass those of codes",
               scales.rows, scales.cols, codes.rows, codes.cols * 2 / unit, unit);
    check_on_host(of_codes);
    check_on_host(of_scales);
    of_codes.check_rows(1);
    of_scales.check_steps_not_negative();
    of_scales.check_span();
    if (!packed) reject("packed", "is null, must have four_bit_bytes; pass memory of the host");
    pack_blocks(source, static_cast<uint8_t*>(packed));
}

void unpack_four_bit(const FourBitWeights& weights, int64_t group, const Matrix& q, const Matrix& scales) {
    check_weights(weights);
    if (group < 0 || group >= weights.groups)
        reject("group", "is {}, but b has {} matrices; pass one from 0 on", group, weights.groups);
    const bool mxfp4 = weights.format == FourBitFormat::Mxfp4;
    const ConstMatrix q_matrix = q, scale_matrix = scales;
    const ConstMatrix bytes{weights.data, DType::E4M3, 1, 1, 1, 1, weights.device};
    const Argument of_q{"q", q_matrix}, of_scales{"scales", scale_matrix}, b{"b", bytes};
    of_q.check_dtype(DType::E4M3, "pass memory of one byte for each weight");
    if (!of_q.has_shape(weights.rows, weights.cols))
        reject("q", "has shape [{}, {}], must be [{}, {}], that of b; pass memory of that shape", q.rows, q.cols,
               weights.rows, weights.cols);
    check_scales(of_scales, mxfp4 ? scales_of_blocks(q_matrix, "one for each block of 128 x 128")
                                  : scales_of_rows(q_matrix, "one for each row and 128 columns"));
    for (const Argument& x : {of_q, of_scales, b}) check_on_host(x);
    for (const Argument& x : {of_q, of_scales}) {
        x.check_steps_not_negative();
        x.check_span();
    }
    const int64_t n_blocks = (weights.rows + kScaleBlock - 1) / kScaleBlock;
    for (int64_t n_block = 0; n_block < n_blocks; ++n_block) unpack_rows(weights, group, n_block, q, scales);
}

}  // namespace finegemm
