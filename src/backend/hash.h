// Hash of plain values by their bytes, for the caches on the hot path. Layer backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace finegemm {

/// Multiply and fold, eight bytes at a time: a handful of nanoseconds for a key of a hundred bytes.
struct BytesHash {
    __extension__ using Wide = unsigned __int128;

    template <typename T>
        requires std::has_unique_object_representations_v<T>
    size_t operator()(const T& value) const noexcept {
        uint64_t words[(sizeof(T) + 7) / 8] = {};
        std::memcpy(words, &value, sizeof(T));
        uint64_t hash = 0x9e3779b97f4a7c15;
        for (const uint64_t word : words) {
            const Wide product = static_cast<Wide>(hash ^ word) * 0xd6e8feb86659fd93u;
            hash = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
        }
        return static_cast<size_t>(hash);
    }
};

}  // namespace finegemm
