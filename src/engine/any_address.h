// Loads and stores of the CPU backend, whose callers' memory may begin at any address. Layer engine.
#pragma once

#include <cstdint>
#include <cstring>

namespace finegemm {

/// Element `index` of an array at `data`.
template <typename T>
T load(const void* data, int64_t index) {
    T element;
    std::memcpy(&element, static_cast<const char*>(data) + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return element;
}

template <typename T>
void store(void* data, int64_t index, T element) {
    std::memcpy(static_cast<char*>(data) + index * static_cast<int64_t>(sizeof(T)), &element, sizeof(T));
}

}  // namespace finegemm
