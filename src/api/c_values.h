// The values of the C ABI as those of C++, and its calls, for the files that have its functions. Layer api.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include <finegemm/c_api.h>
#include <finegemm/context.h>
#include <finegemm/error.h>
#include <finegemm/gemm.h>
#include <finegemm/tensor.h>

#include "plan/reject.h"

struct finegemm_context {
    finegemm::Context context;
};

namespace finegemm {

inline int32_t report(finegemm_error* error, int32_t code, std::string_view message) {
    if (error) {
        error->code = code;
        const size_t length = std::min(message.size(), sizeof error->message - 1);
        std::memcpy(error->message, message.data(), length);
        error->message[length] = '\0';
    }
    return code;
}

/// A call was ended by its caller.
struct Ended {};

inline Poll to_poll(finegemm_poll poll, void* data) {
    if (!poll) return {};
    return [poll, data](double share) {
        if (poll(data, share) != 0) throw Ended();
    };
}

/// Runs `body`; what it throws becomes a code and a message.
template <typename Body>
int32_t guarded(finegemm_error* error, const Body& body) noexcept {
    try {
        body();
        return report(error, FINEGEMM_OK, "");
    } catch (const Error& e) {
        return report(error, static_cast<int32_t>(e.code()), e.what());
    } catch (const Ended&) {
        return report(error, FINEGEMM_ENDED, "poll ended the call; its output has parts of the result");
    } catch (const std::bad_alloc&) {
        return report(error, FINEGEMM_OUT_OF_MEMORY, "the host has no memory left");
    } catch (const std::exception& e) {
        return report(error, FINEGEMM_INTERNAL, e.what());
    } catch (...) {
        return report(error, FINEGEMM_INTERNAL, "unknown exception; please report it");
    }
}

inline void require(const void* pointer, const char* name, const char* way_out = "pass its address") {
    if (!pointer) reject(name, "is null; {}", way_out);
}

inline void require_zero(int32_t reserved, const char* name) {
    if (reserved != 0)
        reject(name, "has {} in its reserved field, must be 0; zero the struct before you fill it", reserved);
}

inline bool to_bool(int64_t value, const char* name) {
    if (value != 0 && value != 1) reject(name, "is {}, must be 0 or 1; pass one of them", value);
    return value == 1;
}

/// Nothing: as the context has it.
inline std::optional<bool> to_choice(int64_t value, const char* name) {
    if (value < FINEGEMM_AS_CONTEXT || value > FINEGEMM_OFF)
        reject(name, "is {}, must be 0 (as the context has it), 1 (on) or 2 (off); pass one of them", value);
    return value == FINEGEMM_AS_CONTEXT ? std::nullopt : std::optional(value == FINEGEMM_ON);
}

inline void check_size(size_t size, size_t known, const char* name) {
    if (size < known)
        reject(name, "has struct_size {}, must be at least {}; set it to sizeof the struct, zero the rest", size,
               known);
}

/// Bytes of a struct in its first version: callers have at least these.
template <typename T>
inline constexpr size_t kFirstSize = sizeof(T);
template <>
inline constexpr size_t kFirstSize<finegemm_options> = offsetof(finegemm_options, plan_table);
template <>
inline constexpr size_t kFirstSize<finegemm_gemm_options> = offsetof(finegemm_gemm_options, accumulate);
template <>
inline constexpr size_t kFirstSize<finegemm_epilogue> =
    offsetof(finegemm_epilogue, c) + sizeof(finegemm_stack) + sizeof(finegemm_matrix);
template <>
inline constexpr size_t kFirstSize<finegemm_quantize_options> = offsetof(finegemm_quantize_options, poll);
template <>
inline constexpr size_t kFirstSize<finegemm_moe_options> = offsetof(finegemm_moe_options, gate_up_bias);
template <>
inline constexpr size_t kFirstSize<finegemm_moe_shape> = offsetof(finegemm_moe_shape, four_bit);
template <>
inline constexpr size_t kFirstSize<finegemm_shape> =
    offsetof(finegemm_shape, plan_table) + sizeof(finegemm_shape::plan_table);

/// Copies the caller's struct. It may be older than the library: what it lacks is zero. It may be newer: what the
/// library does not know must not be used.
template <typename T>
T known_part(const T& given, const char* name) {
    check_size(given.struct_size, kFirstSize<T>, name);
    const char* bytes = reinterpret_cast<const char*>(&given);
    if (given.struct_size > sizeof(T) &&
        std::any_of(bytes + sizeof(T), bytes + given.struct_size, [](char byte) { return byte != 0; }))
        throw Error(Errc::Unsupported,
                    fmt::format("{}: uses fields that version {} does not know; update the library, or zero "
                                "what follows the first {} bytes",
                                name, FINEGEMM_VERSION, sizeof(T)));
    T known{};
    std::memcpy(&known, &given, std::min<size_t>(given.struct_size, sizeof(T)));
    return known;
}

inline Matrix to_matrix(const finegemm_matrix& x, const char* name) {
    require_zero(x.reserved, name);
    return {x.data,
            static_cast<DType>(x.dtype),
            x.rows,
            x.cols,
            x.row_stride,
            x.col_stride,
            {static_cast<DeviceType>(x.device_type), x.device_index}};
}

inline Stack to_stack(const finegemm_stack& x, const char* name) {
    return {to_matrix(x.matrix, name), x.count, x.stride};
}

inline Groups to_groups(const finegemm_groups& x) {
    require_zero(x.reserved, "groups");
    return {.form = static_cast<GroupForm>(x.form),
            .data = x.data,
            .size = x.size,
            .alignment = x.alignment,
            .expected_m = x.expected_m,
            .device = {static_cast<DeviceType>(x.device_type), x.device_index}};
}

/// What fits of a text, and a zero; `needed`, which may be null, gets the bytes of all.
inline void put_text(std::string_view text, char* buffer, size_t capacity, size_t* needed) {
    if (capacity > 0) require(buffer, "buffer");
    if (needed) *needed = text.size() + 1;
    if (capacity == 0) return;
    const size_t length = std::min(text.size(), capacity - 1);
    std::memcpy(buffer, text.data(), length);
    buffer[length] = '\0';
}

inline constexpr const char* kMakeContext = "make one with finegemm_context_create";

using Path = char[FINEGEMM_PATH_BYTES];

// Members of C structs, where 0 is what is not set, as those of the C++ structs that they stand for.
inline void take(const char* name, int64_t given, bool& to) { to = to_bool(given, name); }
inline void take(const char* name, int64_t given, std::optional<bool>& to) { to = to_choice(given, name); }
template <std::integral T>
void take(const char* name, int64_t given, T& to) {
    if (!std::in_range<T>(given))
        reject(name, "is {}, must fit into {} bits; look at what computed it", given, 8 * sizeof(T));
    to = static_cast<T>(given);
}
template <typename Enum>
    requires std::is_enum_v<Enum>
void take(const char* name, int64_t given, Enum& to) {
    std::underlying_type_t<Enum> value = 0;
    take(name, given, value);
    to = static_cast<Enum>(value);
}
void take(const char*, std::same_as<const char*> auto given, std::string& to) { to = given ? given : ""; }
inline void take(const char* name, const Path& given, std::string& to) {
    const size_t length = strnlen(given, sizeof given);
    if (length == sizeof given)
        reject(name, "has no terminating zero in its {} bytes; use a shorter path", sizeof given);
    to.assign(given, length);
}
template <typename T>
void take(const char* name, int64_t given, std::optional<T>& to) {
    if (given != 0) take(name, given, to.emplace());
}
void take(const char*, std::floating_point auto given, auto& to) { to = static_cast<float>(given); }
inline void take(const char* name, const finegemm_matrix& given, ConstMatrix& to) { to = to_matrix(given, name); }
inline void take(const char* name, const finegemm_stack& given, ConstStack& to) { to = to_stack(given, name); }
inline void take(const char* name, const finegemm_stack& given, Stack& to) { to = to_stack(given, name); }
inline void take(const char* name, const finegemm_stack& given, RowNumbers& to) { take(name, given, to.rows); }
inline void take(const char* name, const finegemm_matrix& given, RowIndices& to) { take(name, given, to.rows); }

}  // namespace finegemm
