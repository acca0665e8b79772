// Either: a type by a condition. Layer device.
#pragma once

namespace finegemm::device {

template <bool First, typename A, typename B>
struct EitherOf {
    using Type = A;
};
template <typename A, typename B>
struct EitherOf<false, A, B> {
    using Type = B;
};
/// A if `First`, else B: NVRTC has no <type_traits>.
template <bool First, typename A, typename B>
using Either = typename EitherOf<First, A, B>::Type;

}  // namespace finegemm::device
