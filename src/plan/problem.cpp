// Problems: how they are made of shapes, and their line of text. Layer plan.
#include "plan/problem.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "plan/fields.h"
#include "plan/reject.h"

namespace finegemm::plan {

namespace {

constexpr const char* kLine =
    "gemm MxNxK [A B D] [option ...], like 'gemm 64x2112x7168 e4m3:row128 e4m3:block128 bf16'";

[[noreturn]] void reject_line(std::string_view line, std::string_view word) {
    reject("problem", "'{}' is not understood at '{}', must be {}; leave the word out, or mend it", line, word, kLine);
}

uint32_t clamped(int64_t extent) { return static_cast<uint32_t>(std::min<int64_t>(extent, INT32_MAX)); }

std::string text_of(const Operand& x) {
    const std::string_view name = type_of(x.element).name;
    if (x.scaling == Scaling::None) return std::string(name);
    return fmt::format("{}:{}", name,
                       x.scaling == Scaling::Mx     ? "row32"
                       : x.scaling == Scaling::Rows ? "row128"
                                                    : "block128");
}

/// A of this type.
Operand a_of(const ElementType& x) { return {x.operand.value(), x.scaled ? Scaling::Rows : Scaling::None}; }
/// A or B with MX scales.
Operand mx_of(const ElementType& x) { return {x.operand.value(), x.scaled ? Scaling::Mx : Scaling::None}; }

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    for (size_t begin = 0; begin <= text.size();) {
        const size_t end = std::min(text.find(separator, begin), text.size());
        if (end > begin) parts.push_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    return parts;
}

template <typename Int>
bool read(std::string_view text, Int& to) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to);
    return error == std::errc() && end == text.data() + text.size();
}
bool read(std::string_view text, std::optional<int64_t>& to) { return read(text, to.emplace()); }
/// A switch is set by its name alone.
bool read(std::string_view text, bool& to) { return to = text.empty(); }

/// The type that a word says; null for none.
const ElementType* operands_said(std::string_view word) {
    for (const ElementType& x : kElementTypes)
        if (is_operand(x) && (word == text_of(a_of(x)) || word == text_of(mx_of(x)))) return &x;
    return nullptr;
}
/// That of B, whose word may say other scales.
const ElementType* type_of_b_said(std::string_view word) {
    for (const ElementType& x : kElementTypes)
        if (is_operand(x) && word.substr(0, word.find(':')) == x.name) return &x;
    return nullptr;
}
const ElementType* output_said(std::string_view word) {
    for (const ElementType& x : kElementTypes)
        if (is_output(x) && word == x.name) return &x;
    return nullptr;
}

bool read_extents(std::string_view text, GemmShape& to) {
    const auto extents = split(text, 'x');
    return extents.size() == 3 && read(extents[0], to.m) && read(extents[1], to.n) && read(extents[2], to.k);
}

/// "name" or "name=value"
bool read_option(std::string_view word, GemmShape& to) {
    const size_t equals = std::min(word.find('='), word.size());
    const std::string_view name = word.substr(0, equals), value = word.substr(std::min(equals + 1, word.size()));
    bool understood = false;
    option_fields(
        [&](const Field& field, auto& member) {
            if (name == field.name) understood = read(value, member);
        },
        to);
    return understood;
}

}  // namespace

Problem problem_of(const GemmShape& s) {
    const Grouping kind = grouping_of(s);
    Operand a = a_of(operand_type(s)), b = a_of(type_of_b(s));
    if (b.scaling == Scaling::Rows && !s.row_b_scales && kind != Grouping::K) b.scaling = Scaling::Blocks;
    if (s.a_mx) a.scaling = Scaling::Mx;
    if (s.b_mx) b.scaling = Scaling::Mx;
    if (s.a_mn_major) a.major = Major::MN;
    if (s.b_mn_major) b.major = Major::MN;
    return {.m = clamped(s.m),
            .n = clamped(s.n),
            .k = clamped(s.k),
            .batch_invariant = s.batch_invariant && kind != Grouping::Rows,  // whose kernels all are
            .num_sms = static_cast<uint32_t>(s.num_sms),
            .a = a,
            .b = b,
            .d = {result_type(s), s.accumulate, finish_of(s)},
            .groups = {kind, clamped(s.groups.value_or(s.k_groups.value_or(s.summed.value_or(0)))),
                       clamped(s.expected_m), static_cast<uint32_t>(s.alignment)}};
}

GemmShape shape_of(const Problem& p) {
    GemmShape s{.m = p.m,
                .n = p.n,
                .k = p.k,
                .row_b_scales = p.groups.kind != Grouping::K && p.b.scaling == Scaling::Rows,
                .a_mx = p.a.scaling == Scaling::Mx,
                .b_mx = p.b.scaling == Scaling::Mx,
                .expected_m = p.groups.expected_m,
                .alignment = p.groups.alignment,
                .accumulate = p.d.accumulate,
                .num_sms = static_cast<int32_t>(p.num_sms),
                .batch_invariant = p.batch_invariant,
                .a_mn_major = p.a.major == Major::MN,
                .b_mn_major = p.b.major == Major::MN};
    for (const FinishField& x : kFinishFields) s.*x.asked = p.d.finish == x.finish;
    if (p.a.element != Element::E4M3) s.dtype = type_of(p.a.element).dtype;
    if (p.b.element != p.a.element) s.dtype_of_b = type_of(p.b.element).dtype;
    const DType usual = p.groups.kind == Grouping::K ? DType::F32 : DType::BF16;
    if (s.row_b_scales || !p.scaled() || p.d.element != usual) s.out_dtype = p.d.element;
    if (p.groups.kind == Grouping::Rows) s.groups = p.groups.count;
    if (p.groups.kind == Grouping::K) s.k_groups = p.groups.count;
    if (p.groups.kind == Grouping::Sum) s.summed = p.groups.count;
    return s;
}

std::string text_of(const Problem& p) {
    std::string line =
        fmt::format("gemm {}x{}x{} {} {} {}", p.m, p.n, p.k, text_of(p.a), text_of(p.b), name_of(p.d.element));
    const GemmShape shape = shape_of(p);
    option_fields(
        [&]<typename T>(const Field& field, const T& value) {
            if (!is_set(value)) return;
            line += fmt::format(" {}", field.name);
            if constexpr (!std::is_same_v<T, bool>) line += '=' + value_text(value);
        },
        shape);
    return line;
}

GemmShape parse_shape(std::string_view line) {
    const auto words = split(line.substr(0, line.find('#')), ' ');
    const auto word = [&](size_t i) { return i < words.size() ? words[i] : std::string_view(); };
    GemmShape shape;
    if (word(0) != "gemm") reject_line(line, word(0));
    if (!read_extents(word(1), shape)) reject_line(line, word(1));
    const ElementType* const operands = operands_said(word(2));
    if (operands) {
        const ElementType* b = type_of_b_said(word(3));
        if (operands->operand != Element::E4M3) shape.dtype = operands->dtype;
        if (b && b != operands && b->scaled == operands->scaled) shape.dtype_of_b = b->dtype;
        shape.row_b_scales = b && b->scaled && word(3) == text_of(a_of(*b));
        shape.a_mx = operands->scaled && word(2) == text_of(mx_of(*operands));
        shape.b_mx = b && b->scaled && word(3) == text_of(mx_of(*b));
        const ElementType* d = output_said(word(4));
        if (!d) reject_line(line, word(4));
        shape.out_dtype = d->dtype;
    }
    for (size_t i = operands ? 5 : 2; i < words.size(); ++i)
        if (!read_option(words[i], shape)) reject_line(line, words[i]);
    if (operands && word(3) != text_of(problem_of(shape).b)) reject_line(line, word(3));
    return shape;
}

size_t ProblemHash::operator()(const Problem& p) const {
    size_t hash = 0;
    const auto add = [&](uint64_t value) { hash = (hash ^ value) * 0x9e3779b97f4a7c15; };
    const GemmShape shape = shape_of(p);
    for (const uint32_t extent : {p.m, p.n, p.k}) add(extent);
    fields([&](const Field&, const auto& value) { add(std::hash<std::decay_t<decltype(value)>>()(value)); }, shape);
    return hash;
}

}  // namespace finegemm::plan
