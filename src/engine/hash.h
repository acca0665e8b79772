// Hash of plain values by their bytes, for the caches on the hot path. Layer engine.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstddef>
#include <type_traits>

namespace finegemm {

struct BytesHash {
    /// Not noexcept: libstdc++ then keeps each key's hash beside it instead of hashing neighbours at every look-up.
    template <typename T>
        requires std::has_unique_object_representations_v<T>
    size_t operator()(const T& value) const {
        return XXH3_64bits(&value, sizeof value);
    }
};

}  // namespace finegemm
