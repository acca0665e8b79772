// Digests: names for contents. Layer jit.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace finegemm::jit {

/// 128 bits of XXH3.
struct Digest {
    uint64_t high = 0, low = 0;
    bool operator==(const Digest&) const = default;
    std::string hex() const;
};

/// Digest of a list of texts; the lengths are part of it, so ("ab", "c") and ("a", "bc") differ.
Digest digest(std::initializer_list<std::string_view> parts);

/// Digest of all embedded kernel headers, names and texts.
Digest kernel_files_digest();

uint64_t checksum(std::string_view bytes);

}  // namespace finegemm::jit
