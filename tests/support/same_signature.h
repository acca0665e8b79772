// Whether our declaration of a function is passed what the library's own is. Layer tests.
#pragma once

#include <type_traits>

namespace finegemm::test {

/// Passed in the same way: both pointers, both integers (or enumerators) of a size, both floating.
template <typename Ours, typename Theirs>
inline constexpr bool kSameArgument =
    sizeof(Ours) == sizeof(Theirs) && std::is_pointer_v<Ours> == std::is_pointer_v<Theirs> &&
    std::is_floating_point_v<Ours> == std::is_floating_point_v<Theirs>;
template <typename Ours, typename Theirs>
inline constexpr bool kSameSignature = false;
template <typename R, typename S, typename... Ours, typename... Theirs>
    requires(sizeof...(Ours) == sizeof...(Theirs))
inline constexpr bool kSameSignature<R (*)(Ours...), S (*)(Theirs...)> =
    kSameArgument<R, S> && (kSameArgument<Ours, Theirs> && ...);

}  // namespace finegemm::test
