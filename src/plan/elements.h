// The types of elements, once: what each is called, what it may be, and how the host converts it. Layer elements.
// Checks, lines of text, JSON, options of the command line, the names of Python's arrays, the planner's lists, sources
// of kernels, the CPU backend and its bounds read this table: a new type is a row here, what kernels need for it, and a
// list of candidates (plan/candidates/). tools/gen_fields.py reads the rows for Python.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <finegemm/core/fp8.h>
#include <finegemm/gemm/config.h>
#include <finegemm/tensor.h>

namespace finegemm {

/// The codes of a type: `value` is exact, `rounded` rounds once, to nearest even. `magnitude`: the code without its
/// sign, as bounds of errors count it.
template <DType>
struct Codes;
template <>
struct Codes<DType::E4M3> {
    using Code = uint8_t;
    static constexpr float value(Code c) { return float_of_e4m3(c); }
    /// The tensor cores' sums lose as if subnormal numbers were 2^-6, the smallest normal one.
    static constexpr Code magnitude(Code c) { return (c & 0x7f) > 0 && (c & 0x7f) < 8 ? Code{8} : c & 0x7f; }
};
template <>
struct Codes<DType::E5M2> {
    using Code = uint8_t;
    static constexpr float value(Code c) { return float_of_e5m2(c); }
    /// As of e4m3: 2^-14 is the smallest normal one.
    static constexpr Code magnitude(Code c) { return (c & 0x7f) > 0 && (c & 0x7f) < 4 ? Code{4} : c & 0x7f; }
};
template <>
struct Codes<DType::I8> {
    using Code = uint8_t;
    static constexpr float value(Code c) { return static_cast<int8_t>(c); }
    /// -128, which quantisation does not make, has no code without its sign: the next one.
    static constexpr Code magnitude(Code c) { return c == 0x80 ? Code{0x7f} : c < 0x80 ? c : static_cast<Code>(-c); }
};
template <>
struct Codes<DType::BF16> {
    using Code = uint16_t;
    static constexpr float value(Code c) { return float_of_bf16(c); }
    static constexpr Code rounded(float x) { return bf16_of_float(x); }
    static constexpr Code rounded(double x) { return bf16_of_double(x); }
    static constexpr Code magnitude(Code c) { return c & 0x7fff; }
};
template <>
struct Codes<DType::F16> {
    using Code = uint16_t;
    static constexpr float value(Code c) { return float_of_f16(c); }
    static constexpr Code rounded(float x) { return f16_of_float(x); }
    static constexpr Code rounded(double x) { return f16_of_double(x); }
    static constexpr Code magnitude(Code c) { return c & 0x7fff; }
};
template <>
struct Codes<DType::F32> {
    using Code = float;
    static constexpr float value(Code c) { return c; }
    static constexpr Code rounded(double x) { return static_cast<float>(x); }
    static constexpr Code magnitude(Code c) { return c < 0 ? -c : c; }
};

/// One rounding to a type: relative to what is rounded, at most; half of the smallest number; and from where on
/// infinity is the nearest.
struct Rounding {
    double relative = 0, smallest = 0, overflow = 0;
};

struct ElementType {
    DType dtype;
    std::string_view name;             // in lines of text, errors and options
    std::string_view array_name;       // of NumPy, torch and JAX
    std::string_view enumerator;       // of Element and Output
    std::optional<Element> operand{};  // as A and B
    bool scaled = false;               // as A and B: with scales
    std::array<DType, 3> results{};    // as A and B: what D may be; the first one where nobody says
    std::optional<Output> output{};    // as D
    Rounding rounding{};               // as D
};

// clang-format off
inline constexpr ElementType kElementTypes[] = {
    {.dtype = DType::E4M3, .name = "e4m3", .array_name = "float8_e4m3fn", .enumerator = "E4M3",
     .operand = Element::E4M3, .scaled = true, .results = {DType::BF16, DType::F32, DType::F16}},
    {.dtype = DType::BF16, .name = "bf16", .array_name = "bfloat16", .enumerator = "BF16",
     .operand = Element::BF16, .results = {DType::BF16, DType::F32},
     .output = Output::BF16, .rounding = {0x1p-8, 0x1p-134, 0x1.ffp127}},
    {.dtype = DType::F16, .name = "f16", .array_name = "float16", .enumerator = "F16",
     .operand = Element::F16, .results = {DType::F16, DType::F32},
     .output = Output::F16, .rounding = {0x1p-11, 0x1p-25, 65520}},
    {.dtype = DType::F32, .name = "f32", .array_name = "float32", .enumerator = "F32",
     .output = Output::F32, .rounding = {0x1p-24, 0x1p-150, 0x1.ffffffp127}},
    {.dtype = DType::E5M2, .name = "e5m2", .array_name = "float8_e5m2", .enumerator = "E5M2",
     .operand = Element::E5M2, .scaled = true, .results = {DType::BF16, DType::F32, DType::F16}},
    {.dtype = DType::I8, .name = "i8", .array_name = "int8", .enumerator = "I8",
     .operand = Element::I8, .scaled = true, .results = {DType::BF16}},
};
// clang-format on

/// Null for a number that is no type.
constexpr const ElementType* find_type(DType type) {
    for (const ElementType& x : kElementTypes)
        if (x.dtype == type) return &x;
    return nullptr;
}
constexpr const ElementType& type_of(Element element) {
    for (const ElementType& x : kElementTypes)
        if (x.operand == element) return x;
    return kElementTypes[0];
}
constexpr const ElementType& type_of(Output output) {
    for (const ElementType& x : kElementTypes)
        if (x.output == output) return x;
    return kElementTypes[0];
}

// Which types a thing may have.
using MayHave = bool(const ElementType&);
constexpr bool is_operand(const ElementType& x) { return x.operand.has_value(); }
constexpr bool is_scaled(const ElementType& x) { return x.operand && x.scaled; }
constexpr bool is_unscaled(const ElementType& x) { return x.operand && !x.scaled; }
constexpr bool is_output(const ElementType& x) { return x.output.has_value(); }
constexpr bool are(MayHave* may_have, DType type) {
    const ElementType* x = find_type(type);
    return x && may_have(*x);
}
/// May D of products of A and B of type `x` have this type?
constexpr bool may_give(const ElementType& x, DType d) {
    return find_type(d) && std::ranges::find(x.results, d) != x.results.end();
}

/// "e4m3"; "unknown (99)" for a number that is no type.
std::string name_of(DType type);
/// "e4m3, bf16 or f32": of those types that may be.
std::string names_of(MayHave* may_be, std::string_view ElementType::* name = &ElementType::name);
/// The same of what D of such products may be.
std::string names_of_results(const ElementType& x);

/// Calls visit(Codes<type>()).
template <typename Visit>
constexpr void visit_codes(DType type, const Visit& visit) {
    [&]<size_t... I>(std::index_sequence<I...>) {
        (void)((kElementTypes[I].dtype == type && (visit(Codes<kElementTypes[I].dtype>()), true)) || ...);
    }(std::make_index_sequence<std::size(kElementTypes)>());
}

}  // namespace finegemm
