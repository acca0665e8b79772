// All finishes as the host knows them. Layer engine.
#pragma once

#include <tuple>
#include <utility>

#include "ops/gemm/finish/affine.h"
#include "ops/gemm/finish/gated.h"
#include "ops/gemm/finish/head_gaps.h"
#include "ops/gemm/finish/indexed.h"

namespace finegemm {

/// In the order of the enumerators.
using Finishes = std::tuple<ProductAlone, Affine, HeadGaps, Gated, Indexed>;
static_assert(std::tuple_size_v<Finishes> == kFinishes);

/// Calls visit.operator()<T>() for the type of a finish.
template <typename Visit>
void with_finish(Finish finish, const Visit& visit) {
    const auto visit_if = [&]<typename T, size_t I>() {
        static_assert(T::kFinish == static_cast<Finish>(I));
        if (finish == T::kFinish) visit.template operator()<T>();
    };
    [&]<size_t... I>(std::index_sequence<I...>) {
        (visit_if.template operator()<std::tuple_element_t<I, Finishes>, I>(), ...);
    }(std::make_index_sequence<kFinishes>());
}

}  // namespace finegemm
