// Names of types of elements, as texts have them. Layer elements.
#include "plan/elements.h"

#include <vector>

#include <fmt/format.h>

namespace finegemm {

namespace {

/// "a, b or c"
std::string alternatives(const std::vector<std::string_view>& names) {
    std::string text;
    for (size_t i = 0; i < names.size(); ++i) {
        if (i > 0) text += i + 1 < names.size() ? ", " : " or ";
        text += names[i];
    }
    return text;
}

}  // namespace

std::string name_of(DType type) {
    if (const ElementType* x = find_type(type)) return std::string(x->name);
    if (type == DType::UE8M0x4) return "ue8m0x4";  // of scales, never of elements
    if (type == DType::I32) return "i32";
    if (type == DType::I64) return "i64";
    return fmt::format("unknown ({})", static_cast<int32_t>(type));
}

std::string names_of(MayHave* may_be, std::string_view ElementType::* name) {
    std::vector<std::string_view> names;
    for (const ElementType& x : kElementTypes)
        if (may_be(x)) names.push_back(x.*name);
    return alternatives(names);
}

std::string names_of_results(const ElementType& x) {
    std::vector<std::string_view> names;
    for (const DType d : x.results)
        if (const ElementType* type = find_type(d)) names.push_back(type->name);
    return alternatives(names);
}

}  // namespace finegemm
