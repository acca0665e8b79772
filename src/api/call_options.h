// The options of a call, once: the C struct and Python's keywords are read by this list. Layer api.
#pragma once

#include <finegemm/gemm.h>

namespace finegemm {

/// Calls visit(name, its member of each of `options`), which have members of these names. Not `stream`, which Python
/// asks the arrays' library for.
template <typename Visit, typename... Options>
constexpr void call_options(const Visit& visit, Options&... options) {
    visit("numerics", options.numerics...);
    visit("config", options.config...);
    visit("check_values", options.check_values...);
    visit("batch_invariant", options.batch_invariant...);
    visit("num_sms", options.num_sms...);
    visit("pdl", options.pdl...);
    visit("prefetch_weights", options.prefetch_weights...);
    visit("accumulate", options.accumulate...);
}

}  // namespace finegemm
