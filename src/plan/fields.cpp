// Which shapes there are products of. Layer plan.
#include "plan/fields.h"

#include <bit>

#include "plan/plan.h"
#include "plan/reject.h"

namespace finegemm::plan {

namespace {

constexpr int64_t kMaxAlignment = 1 << 30;

const char* name_of(Grouping grouping) {
    switch (grouping) {
        case Grouping::None: return "one product";
        case Grouping::Rows: return "groups of rows";
        case Grouping::K: return "groups of K";
        case Grouping::Sum: return "sums over stacks";
    }
    return "";
}

/// Kernels that add to D in L2 add nothing else, and there are no others for scales of rows of B.
void check_finish(const GemmShape& s) {
    if (finish_of(s) == Finish::None) return;
    const FinishFacts facts = facts_of(finish_of(s));
    const char* const name = facts.name;
    for (const FinishField& x : kFinishFields)
        if (s.*x.asked && x.finish != finish_of(s))
            reject(facts_of(x.finish).name, "is set, but so is {}; leave one of them out", name);
    if (!facts.any_result && result_type(s) != operand_type(s).results[0])
        reject("out_dtype", "is {}, must be {} where {} is set; leave it out", finegemm::name_of(result_type(s)),
               finegemm::name_of(operand_type(s).results[0]), name);
    if (s.accumulate)
        reject("accumulate", "is set, but so is {}; leave it out{}", name, facts.loads_source ? ", D can be C" : "");
    if (s.row_b_scales || s.b_mx)
        reject(name, "is set, but with scales for each row of B D is the product alone; leave one of them out");
}

/// "e5m2 by e4m3"
std::string types_of(const Problem& p) {
    return fmt::format("{} by {}", type_of(p.a.element).name, type_of(p.b.element).name);
}

/// D of products without scales is of any type that these may give, whatever the groups.
void check_unscaled(const GemmShape& s, DType result) {
    if (s.row_b_scales)
        reject("row_b_scales", "is set, but a and b are of {}, which has no scales; leave it out",
               operand_type(s).name);
    if (s.accumulate && result != DType::F32)
        reject("accumulate", "is set, but d is of {}, must be of f32; set out_dtype, or leave it out", name_of(result));
}

/// Layouts that there are kernels for.
void check_layouts(const GemmShape& s) {
    const char* const name = s.a_mn_major ? "a_mn_major" : "b_mn_major";
    if (!s.a_mn_major && !s.b_mn_major) return;
    if (operand_type(s).scaled)
        reject(name, "is set, but a and b are of {}, must be of {}; leave it out, or set dtype", operand_type(s).name,
               names_of(is_unscaled));
    if (s.k_groups && s.a_mn_major != s.b_mn_major)
        reject(name, "is set, but {} is not; groups of K take both or neither",
               s.a_mn_major ? "b_mn_major" : "a_mn_major");
}

/// MX scales of B come with those of A or with its scales of 128 columns.
void check_mx(const GemmShape& s) {
    if (s.a_mx && !s.b_mx) reject("a_mx", "is set, but b_mx is not; set it, too");
    if (s.b_mx && s.row_b_scales) reject("row_b_scales", "is set, but so is b_mx: rows of b have those; leave it out");
}

void check_types(const GemmShape& s) {
    operand_fields(
        [&]<typename T>(const Field& field, const T& value) {
            if constexpr (std::is_same_v<T, std::optional<DType>>)
                if (value && !are(field.may_be, *value))
                    reject(field.name, "is {}, must be {}; pass one of them", value_text(value),
                           names_of(field.may_be));
        },
        s);
    const DType type = result_type(s);
    if (!may_give(operand_type(s), type))
        reject("out_dtype", "is {}, must be {} where a and b are of {}; pass one of them", name_of(type),
               names_of_results(operand_type(s)), operand_type(s).name);
    check_mx(s);
    check_operand_types(problem_of(s), "dtype");
    check_finish(s);
    check_layouts(s);
    if (!operand_type(s).scaled) return check_unscaled(s, type);
    if (s.summed)
        reject("dtype", "is {}, must be {} where products are summed; set it", operand_type(s).name,
               names_of(is_unscaled));
    if (s.accumulate && type != DType::F32)
        reject("accumulate", "is set, but d is of {}, must be of f32; set out_dtype and row_b_scales, or leave it out",
               name_of(type));
    if (s.accumulate && !s.row_b_scales && !s.k_groups)
        reject("accumulate",
               "is set, but b has a scale for each 128x128 block; set row_b_scales, or leave it out, as d can be c");
}

void check_extents(const GemmShape& s) {
    const auto reject_extent = [](const char* name, int64_t extent, const std::string& rule) {
        throw Error(Errc::InvalidArgument, fmt::format("{} is {}, must be {}", name, extent, rule));
    };
    for (const auto& [name, extent] : {std::pair{"M", s.m}, {"N", s.n}, {"K", s.k}})
        if (extent < 1 || extent > INT32_MAX)
            reject_extent(name, extent, fmt::format("from 1 to {}; gemm needs no kernel for 0", INT32_MAX));
    if (s.n % 8 != 0) reject_extent("N", s.n, "a multiple of 8; pad B with rows of zeros");
    const int64_t unit = 16 / size_of(operand_type(s).dtype);  // TMA steps by 16 bytes
    if (s.k % unit != 0) reject_extent("K", s.k, fmt::format("a multiple of {}; pad A and B with zeros", unit));
    if (s.k_groups && s.k % kScaleBlock != 0) reject("K", "is {}, {}", s.k, kWholeBlocks);
    if (s.summed && s.k % (unit * *s.summed) != 0)
        reject("K", "is {}, must be {} times the K of each matrix, a multiple of {}; pad A and B with zeros", s.k,
               *s.summed, unit);
}

}  // namespace

void check_operand_types(const Problem& p, const char* name) {
    const bool mx = p.b.scaling == Scaling::Mx;
    const bool usual = p.a.element == p.b.element && p.a.element != Element::E5M2 && p.a.element != Element::I8 &&
                       !mx && !finds_rows(p.d.finish);
    if (usual || !candidates(p.kind()).empty()) return;
    reject(name,
           "is multiplied in {}, of which there is no kernel for {}{}, with D of {}{}; {} has those that there are",
           types_of(p), name_of(p.groups.kind),
           mx                             ? " and scales for each 32 of K"
           : p.b.scaling == Scaling::Rows ? " and scales for each row of B"
                                          : "",
           finegemm::name_of(p.d.element), p.d.finish == Finish::None ? "" : " and an epilogue", "docs/scales.md");
}

void check_group_count(int64_t groups, int64_t most, const char* name) {
    if (groups < 1 || groups > most)
        reject(name, "is {}, must be from 1 to {}; use several calls for more", groups, most);
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
    if (s.groups) check_group_count(*s.groups);
    if (s.k_groups) check_group_count(*s.k_groups, kMaxKGroups, "k_groups");
    if (s.summed && (*s.summed < 1 || *s.summed > INT32_MAX))
        reject("summed", "is {}, must be from 1 to {}; split larger problems", *s.summed, INT32_MAX);
    check_expected_m(s.expected_m);
    if (s.alignment != 0) check_alignment(s.alignment, 1, "groups");
    check_types(s);
    check_num_sms(s.num_sms);
}

void check_shape(const GemmShape& s) {
    check_fields(s);
    check_extents(s);
}

}  // namespace finegemm::plan
