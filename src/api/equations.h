// The equations of batched products, once: the library and Python read this list. Layer api.
#pragma once

#include <iterator>
#include <string>
#include <string_view>

#include <finegemm/gemm.h>

#include "plan/reject.h"

namespace finegemm {

/// Which letters of an equation are what: of the stacks, of rows and columns of D, and of what is summed over.
struct Equation {
    std::string_view text;
    char batch, m, n, k;
    bool summed;  // over the stacks, too: D is one matrix
    constexpr std::string_view a() const { return text.substr(0, 3); }
    constexpr std::string_view b() const { return text.substr(4, 3); }
    constexpr std::string_view d() const { return text.substr(9); }
};

inline constexpr Equation kEquations[] = {
    {"bhr,hdr->bhd", 'h', 'b', 'd', 'r', false},
    {"bhd,hdr->bhr", 'h', 'b', 'r', 'd', false},
    {"bmk,bnk->mn", 'b', 'm', 'n', 'k', true},
};

/// Throws Error(InvalidArgument) for a text that is none of them.
inline const Equation& equation_named(std::string_view text) {
    std::string all;
    for (const Equation& e : kEquations) {
        if (e.text == text) return e;
        if (&e != kEquations) all += &e == std::end(kEquations) - 1 ? " or " : ", ";
        all += '\'' + std::string(e.text) + '\'';
    }
    reject("equation",
           "is '{}', must be {}, with these letters and without spaces; rename yours, or use einsum of "
           "your arrays' library",
           text, all);
}

/// A dimension of a tensor: its extent and the elements from one place to the next.
struct Dimension {
    int64_t extent, stride;
};

/// The dimension of a tensor that has this letter; of two letters it is one matrix.
template <typename AnyStack>
Dimension dimension(const AnyStack& x, std::string_view letters, char letter) {
    const auto& m = x.matrix;
    const Dimension all[] = {{x.count, x.stride}, {m.rows, m.row_stride}, {m.cols, m.col_stride}};
    return all[letters.find(letter) + std::size(all) - letters.size()];
}

}  // namespace finegemm
