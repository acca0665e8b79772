// Which shapes there are products of. Layer plan.
#include "plan/fields.h"

#include <bit>

#include "plan/reject.h"

namespace finegemm::plan {

namespace {

constexpr int64_t kMaxAlignment = 1 << 30;

const char* name_of(Grouping grouping) {
    return grouping == Grouping::None ? "one product" : grouping == Grouping::Rows ? "groups of rows" : "groups of K";
}

/// Kernels that add to D in L2 add nothing else, and those for scales of rows of B write the product alone.
void check_affine(const GemmShape& s) {
    if (!s.affine) return;
    if (s.accumulate) reject("accumulate", "is set, but so is affine; leave it out, D can be C");
    if (s.row_b_scales)
        reject("affine", "is set, but with scales for each row of B D is the product alone; leave one of them out");
}

/// D of bf16 products is bf16 or f32, whatever the groups.
void check_bf16(const GemmShape& s) {
    if (s.out_dtype == DType::F16)
        reject("out_dtype", "is f16, must be bf16 or f32 where a and b are of bf16; pass one of them");
    if (s.row_b_scales) reject("row_b_scales", "is set, but a and b are of bf16, which has no scales; leave it out");
    if (s.accumulate && s.out_dtype.value_or(s.k_groups ? DType::F32 : DType::BF16) != DType::F32)
        reject("accumulate", "is set, but d is of bf16, must be of f32; set out_dtype, or leave it out");
}

void check_types(const GemmShape& s) {
    if (s.dtype && *s.dtype != DType::E4M3 && *s.dtype != DType::BF16)
        reject("dtype", "is {}, must be e4m3 or bf16, as a and b are; pass one of them", value_text(s.dtype));
    const DType type = s.out_dtype.value_or(s.k_groups ? DType::F32 : DType::BF16);
    if (type != DType::BF16 && type != DType::F16 && type != DType::F32)
        reject("out_dtype", "is {}, must be bf16, f16 or f32, as d is; pass one of them", value_text(s.out_dtype));
    check_affine(s);
    if (s.dtype == DType::BF16) return check_bf16(s);
    if (type != DType::F32 && s.k_groups)
        reject("out_dtype", "is {}, must be f32 with groups of K; leave it out", value_text(s.out_dtype));
    if (type == DType::F16 && s.row_b_scales)
        reject("out_dtype", "is f16, must be bf16 or f32 with scales for each row of B; pass one of them");
    if (type == DType::F32 && s.groups && s.row_b_scales)
        reject("out_dtype", "is f32, must be bf16 with groups of rows and scales for each row of B; leave it out");
    if (s.accumulate && (type != DType::F32 || (!s.row_b_scales && !s.k_groups)))
        reject("accumulate",
               "is set, but d is of {}, must be of f32, with scales for each row of B; set out_dtype and row_b_scales, "
               "or leave it out",
               name_of(type));
}

void check_extents(const GemmShape& s) {
    const auto reject_extent = [](const char* name, int64_t extent, const std::string& rule) {
        throw Error(Errc::InvalidArgument, fmt::format("{} is {}, must be {}", name, extent, rule));
    };
    for (const auto& [name, extent] : {std::pair{"M", s.m}, {"N", s.n}, {"K", s.k}})
        if (extent < 1 || extent > INT32_MAX)
            reject_extent(name, extent, fmt::format("from 1 to {}; gemm needs no kernel for 0", INT32_MAX));
    if (s.n % 8 != 0) reject_extent("N", s.n, "a multiple of 8; pad B with rows of zeros");
    const int64_t unit = s.dtype == DType::BF16 ? 8 : 16;  // elements of 16 bytes, which TMA steps by
    if (s.k % unit != 0) reject_extent("K", s.k, fmt::format("a multiple of {}; pad A and B with zeros", unit));
    if (s.k_groups && s.k % kScaleBlock != 0) reject("K", "is {}, {}", s.k, kWholeBlocks);
}

}  // namespace

void check_group_count(int64_t groups, const char* name) {
    if (groups < 1 || groups > kMaxGroups)
        reject(name, "is {}, must be from 1 to {}; use several calls for more", groups, kMaxGroups);
}

void check_expected_m(int64_t rows) {
    if (rows < 0) reject("expected_m", "is {}, must not be negative; 0 lets the library guess", rows);
}

void check_alignment(int64_t alignment, int64_t least, std::string_view form) {
    if (alignment < least || alignment > kMaxAlignment || !std::has_single_bit(static_cast<uint64_t>(alignment)))
        reject("alignment", "is {}, must be a power of two from {} to {} for {}; 128 is usual", alignment, least,
               kMaxAlignment, form);
}

void check_num_sms(int32_t num_sms) {
    if (num_sms < 0) reject("num_sms", "is {}, must not be negative; 0 allows all SMs of the GPU", num_sms);
}

void check_fields(const GemmShape& s) {
    const Grouping grouping = grouping_of(s);
    fields(
        [&](const Field& field, const auto& value) {
            if (is_set(value) && !field.takers.have(grouping))
                reject(field.name, "is {}, does not belong to {}; leave it out", value_text(value), name_of(grouping));
        },
        s);
    if (s.groups) check_group_count(*s.groups, "groups");
    if (s.k_groups) check_group_count(*s.k_groups, "k_groups");
    check_expected_m(s.expected_m);
    if (s.alignment != 0) check_alignment(s.alignment, kMinIndexAlignment, "indices");
    check_types(s);
    check_num_sms(s.num_sms);
}

void check_shape(const GemmShape& s) {
    check_fields(s);
    check_extents(s);
}

}  // namespace finegemm::plan
