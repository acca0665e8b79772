// Argument checks of the grouped GEMM. Layer api.
#include <bit>

#include "api/argument.h"
#include "api/checks.h"
#include "backend/groups.h"

namespace finegemm {

namespace {

constexpr const char* kGroups = "groups";  // the name of the argument
constexpr int64_t kMaxAlignment = 1 << 30;
/// Rows of the smallest tile: a tile reads the index of its first row only, so none may have rows of two groups.
constexpr int64_t kMinIndexAlignment = 64;

/// Number of matrices in each stack.
void check_counts(const Argument& a, const Argument& sfa, const Argument& b, const Argument& sfb, const Argument& d,
                  bool masked) {
    if (b.count < 1 || b.count > kMaxGroups)
        reject("b", "has {} matrices, must have 1 to {}, one for each group; use several calls for more", b.count,
               kMaxGroups);
    if (sfb.count != b.count)
        reject("sfb", "has {} matrices, must have {}, one for each of b; quantize_blocks makes them", sfb.count,
               b.count);
    for (const Argument& x : {a, sfa, d}) {
        if (masked && x.count != b.count)
            reject(x.name, "has {} matrices, must have {}, one for each of b; pass a stack, as b is", x.count, b.count);
        if (!masked && x.count != 1)
            reject(x.name,
                   "has {} matrices, must have 1, with the rows of all groups; only masked groups have a matrix each",
                   x.count);
    }
}

void check_size(const Groups& groups, int64_t rows, int64_t count) {
    const auto check = [&](int64_t wanted, const char* meaning) {
        if (groups.size != wanted)
            reject(kGroups, "has {} {}, must have {} ({}); pass as many", groups.size, name_of(groups.form), wanted,
                   meaning);
    };
    switch (groups.form) {
        case GroupForm::Offsets: return check(count + 1, "the begin of each group and the end of the last one");
        case GroupForm::Indices: return check(rows, "one for each row of a");
        case GroupForm::PrefixSums: return check(count, "the end of each group");
        case GroupForm::Masked: return check(count, "the number of rows of each group");
    }
}

void check_alignment(int64_t alignment, int64_t least, GroupForm form) {
    if (alignment < least || alignment > kMaxAlignment || !std::has_single_bit(static_cast<uint64_t>(alignment)))
        reject(kGroups, "has alignment {}, must be a power of two from {} to {} for {}; 128 is usual", alignment, least,
               kMaxAlignment, name_of(form));
}

void check_expected_m(int64_t rows) {
    if (rows < 0) reject(kGroups, "has expected_m {}, must not be negative; 0 lets the library guess", rows);
}

void check_form(const Groups& groups) {
    if (name_of(groups.form).empty())
        reject(kGroups, "has form {}, must be 1 (offsets), 2 (indices), 3 (prefix_sums) or 4 (masks); pass one of them",
               static_cast<int32_t>(groups.form));
    const bool indices = groups.form == GroupForm::Indices;
    if (indices || groups.form == GroupForm::PrefixSums)
        check_alignment(groups.alignment, indices ? kMinIndexAlignment : 1, groups.form);
    check_expected_m(groups.expected_m);
}

}  // namespace

void check_grouped_shape(const GroupedShape& shape) {
    check_group_count(shape.groups);
    check_expected_m(shape.expected_m);
    if (shape.alignment != 0) check_alignment(shape.alignment, kMinIndexAlignment, GroupForm::Indices);
}

void check_grouped(const GroupedGemmArgs& args, const GemmOptions& options) {
    const ConstMatrix d_view = args.d.matrix;
    const auto argument = [](const char* name, const ConstStack& s) {
        return Argument{name, s.matrix, s.count, s.stride};
    };
    const Argument a = argument("a", args.a), sfa = argument("sfa", args.sfa), b = argument("b", args.b);
    const Argument sfb = argument("sfb", args.sfb), d{"d", d_view, args.d.count, args.d.stride};
    const Groups& groups = args.groups;
    check_form(groups);
    check_counts(a, sfa, b, sfb, d, groups.form == GroupForm::Masked);
    check_operands(a, sfa, b, sfb, d, BScales::Blocks);
    if (options.accumulate) reject("accumulate", "is set, but d of groups is overwritten; add the result to yours");
    check_no_prefetch(options);
    if (a.x.cols == 0) reject("a", "has K = 0 columns, must have at least 16; fill d with zeros instead");

    check_size(groups, a.x.rows, b.count);
    check_numbers({kGroups, groups.data, groups.size, groups.device}, d.x.device, d);
    check_gemm_options(options, d.x.device.type == DeviceType::Cuda && !d.empty());
}

}  // namespace finegemm
