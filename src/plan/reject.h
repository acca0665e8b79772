// Errors about arguments: each names the argument, what came, the rule and the way out. Layer plan.
#pragma once

#include <utility>

#include <finegemm/error.h>
#include <fmt/format.h>

namespace finegemm {

template <typename... Args>
[[noreturn, gnu::noinline, gnu::cold]] void reject(const char* argument, fmt::format_string<Args...> message,
                                                   Args&&... args) {
    throw Error(Errc::InvalidArgument,
                fmt::format("{}: {}", argument, fmt::format(message, std::forward<Args>(args)...)));
}

}  // namespace finegemm
