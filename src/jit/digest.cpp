// Digests by xxHash. Layer jit.
#include "jit/digest.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <memory>

#include "jit/kernel_files.h"

namespace finegemm::jit {

namespace {

class Hasher {
public:
    Hasher() : state_(XXH3_createState(), XXH3_freeState) { XXH3_128bits_reset(state_.get()); }
    void add(std::string_view part) {
        const uint64_t size = part.size();
        XXH3_128bits_update(state_.get(), &size, sizeof size);
        XXH3_128bits_update(state_.get(), part.data(), part.size());
    }
    Digest digest() const {
        const XXH128_hash_t h = XXH3_128bits_digest(state_.get());
        return {h.high64, h.low64};
    }

private:
    std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

}  // namespace

std::string Digest::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

Digest digest(std::initializer_list<std::string_view> parts) {
    Hasher hasher;
    for (const std::string_view part : parts) hasher.add(part);
    return hasher.digest();
}

Digest kernel_files_digest() {
    Hasher hasher;
    for (const auto& [name, text] : kernel_files()) {
        hasher.add(name);
        hasher.add(text);
    }
    return hasher.digest();
}

uint64_t checksum(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace finegemm::jit
