// Catching the library's errors in tests. Layer tests.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include <finegemm/error.h>

namespace finegemm::test {

/// What `call` throws; a test failure when it throws nothing.
template <typename Call>
Error error_of(const Call& call) {
    try {
        call();
    } catch (const Error& e) {
        return e;
    }
    ADD_FAILURE() << "nothing was thrown";
    return {Errc::Internal, ""};
}

inline bool contains(const Error& error, const std::string& text) {
    return std::string(error.what()).find(text) != std::string::npos;
}

}  // namespace finegemm::test
