// The C ABI over the C++ one. Layer api.
#include <finegemm/c_api.h>

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

#include <finegemm/error.h>
#include <finegemm/gemm.h>
#include <finegemm/quantize.h>
#include <finegemm/scale_layout.h>

#include "api/option_lists.h"
#include "plan/fields.h"
#include "plan/reject.h"

struct finegemm_context {
    finegemm::Context context;
};

namespace {

using namespace finegemm;

int32_t report(finegemm_error* error, int32_t code, std::string_view message) {
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

Poll to_poll(finegemm_poll poll, void* data) {
    if (!poll) return {};
    return [poll, data](double share) {
        if (poll(data, share) != 0) throw Ended();
    };
}

Log to_log(finegemm_log log, void* data) {
    if (!log) return {};
    return [log, data](const LoggedCall& call) {
        const finegemm_logged_call c{.struct_size = sizeof c,
                                     .device_type = static_cast<int32_t>(call.device.type),
                                     .device_index = call.device.index,
                                     .reserved = 0,
                                     .line = call.line.c_str(),
                                     .kernel = call.kernel.c_str(),
                                     .origin = call.origin.c_str(),
                                     .host_us = call.host_us};
        log(data, &c);
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

void require(const void* pointer, const char* name, const char* way_out = "pass its address") {
    if (!pointer) reject(name, "is null; {}", way_out);
}

void require_zero(int32_t reserved, const char* name) {
    if (reserved != 0)
        reject(name, "has {} in its reserved field, must be 0; zero the struct before you fill it", reserved);
}

bool to_bool(int64_t value, const char* name) {
    if (value != 0 && value != 1) reject(name, "is {}, must be 0 or 1; pass one of them", value);
    return value == 1;
}

/// Nothing: as the context has it.
std::optional<bool> to_choice(int64_t value, const char* name) {
    if (value < FINEGEMM_AS_CONTEXT || value > FINEGEMM_OFF)
        reject(name, "is {}, must be 0 (as the context has it), 1 (on) or 2 (off); pass one of them", value);
    return value == FINEGEMM_AS_CONTEXT ? std::nullopt : std::optional(value == FINEGEMM_ON);
}

void check_size(size_t size, size_t known, const char* name) {
    if (size < known)
        reject(name, "has struct_size {}, must be at least {}; set it to sizeof the struct, zero the rest", size,
               known);
}

/// Bytes of a struct in its first version: callers have at least these.
template <typename T>
constexpr size_t kFirstSize = sizeof(T);
template <>
constexpr size_t kFirstSize<finegemm_options> = offsetof(finegemm_options, plan_table);
template <>
constexpr size_t kFirstSize<finegemm_gemm_options> = offsetof(finegemm_gemm_options, accumulate);
template <>
constexpr size_t kFirstSize<finegemm_epilogue> = offsetof(finegemm_epilogue, bias) + sizeof(finegemm_epilogue::bias);
template <>
constexpr size_t kFirstSize<finegemm_quantize_options> = offsetof(finegemm_quantize_options, poll);
template <>
constexpr size_t kFirstSize<finegemm_shape> = offsetof(finegemm_shape, plan_table) + sizeof(finegemm_shape::plan_table);

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

Matrix to_matrix(const finegemm_matrix& x, const char* name) {
    require_zero(x.reserved, name);
    return {x.data,
            static_cast<DType>(x.dtype),
            x.rows,
            x.cols,
            x.row_stride,
            x.col_stride,
            {static_cast<DeviceType>(x.device_type), x.device_index}};
}

Stack to_stack(const finegemm_stack& x, const char* name) { return {to_matrix(x.matrix, name), x.count, x.stride}; }

Groups to_groups(const finegemm_groups& x) {
    require_zero(x.reserved, "groups");
    return {.form = static_cast<GroupForm>(x.form),
            .data = x.data,
            .size = x.size,
            .alignment = x.alignment,
            .expected_m = x.expected_m,
            .device = {static_cast<DeviceType>(x.device_type), x.device_index}};
}

using Path = char[FINEGEMM_PATH_BYTES];

// Members of C structs, where 0 is what is not set, as those of the C++ structs that they stand for.
void take(const char* name, int64_t given, bool& to) { to = to_bool(given, name); }
void take(const char* name, int64_t given, std::optional<bool>& to) { to = to_choice(given, name); }
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
void take(const char* name, const Path& given, std::string& to) {
    const size_t length = strnlen(given, sizeof given);
    if (length == sizeof given)
        reject(name, "has no terminating zero in its {} bytes; use a shorter path", sizeof given);
    to.assign(given, length);
}
template <typename T>
void take(const char* name, int64_t given, std::optional<T>& to) {
    if (given != 0) take(name, given, to.emplace());
}
void take(const char*, std::same_as<float> auto given, auto& to) { to = given; }
void take(const char* name, const finegemm_matrix& given, ConstMatrix& to) { to = to_matrix(given, name); }
void take(const char* name, const finegemm_stack& given, ConstStack& to) { to = to_stack(given, name); }

// Members of Options as those of finegemm_options.
template <typename From, typename To>
void put(const char*, const From& from, To& to) {
    to = static_cast<To>(from);
}
void put(const char* name, const std::string& from, Path& to) {
    if (from.size() >= sizeof to)
        reject(name, "has {} bytes, must be below {}; use a shorter path", from.size(), sizeof to);
    std::memcpy(to, from.c_str(), from.size() + 1);
}

void from_options(const Options& o, finegemm_options& c) {
    context_options(
        [](const char* name, const auto& from, auto& to) { put(fmt::format("options.{}", name).c_str(), from, to); }, o,
        c);
}

Options to_options(const finegemm_options& caller) {
    const finegemm_options given = known_part(caller, "options");
    Options o;
    context_options(
        [](const char* name, const auto& from, auto& to) { take(fmt::format("options.{}", name).c_str(), from, to); },
        given, o);
    o.log = to_log(given.log, given.log_data);
    return o;
}

Epilogue to_epilogue(const finegemm_epilogue& caller) {
    const finegemm_epilogue given = known_part(caller, "epilogue");
    require_zero(given.reserved, "epilogue");
    Epilogue all;
    plan::epilogue_arguments([](const auto& x, const auto& from, auto& to) { take(x.name, from, to); }, given, all);
    return all;
}

GemmOptions to_options(const finegemm_gemm_options& caller) {
    const finegemm_gemm_options given = known_part(caller, "options");
    GemmOptions o{.stream = given.stream};
    o.poll = to_poll(given.poll, given.poll_data);
    call_options([](const char* name, const auto& from, auto& to) { take(name, from, to); }, given, o);
    if (given.epilogue) o.epilogue = to_epilogue(*given.epilogue);
    return o;
}

QuantizeOptions to_options(const finegemm_quantize_options& caller) {
    const finegemm_quantize_options given = known_part(caller, "options");
    return {.power_of_two_scales = to_bool(given.power_of_two_scales, "power_of_two_scales"),
            .stream = given.stream,
            .poll = to_poll(given.poll, given.poll_data)};
}

ScaleLayoutOptions to_options(const finegemm_scale_layout_options& caller) {
    const finegemm_scale_layout_options given = known_part(caller, "options");
    return {.power_of_two_scales = to_bool(given.power_of_two_scales, "power_of_two_scales"),
            .stream = given.stream,
            .poll = to_poll(given.poll, given.poll_data)};
}

ScaleGroups to_scale_groups(const finegemm_scale_layout_args& args) {
    require_zero(args.reserved, "args");
    return {.form = static_cast<ScaleGroupForm>(args.form),
            .data = args.groups,
            .size = args.size,
            .alignment = args.alignment,
            .scale_k = args.scale_k,
            .device = {static_cast<DeviceType>(args.device_type), args.device_index}};
}

constexpr const char* kMakeContext = "make one with finegemm_context_create";

int32_t quantize(decltype(quantize_rows)* call, finegemm_context* context, const finegemm_matrix* x,
                 const finegemm_matrix* q, const finegemm_matrix* scales, const finegemm_quantize_options* options,
                 finegemm_error* error) {
    return guarded(error, [&] {
        require(context, "context", kMakeContext);
        require(x, "x");
        require(q, "q");
        require(scales, "scales");
        call(context->context, to_matrix(*x, "x"), to_matrix(*q, "q"), to_matrix(*scales, "scales"),
             options ? to_options(*options) : QuantizeOptions{});
    });
}

std::string explain(const finegemm_shape& caller) {
    const finegemm_shape given = known_part(caller, "shape");
    GemmShape shape{.m = given.m, .n = given.n, .k = given.k};
    plan::fields([](const plan::Field& field, const auto& from, auto& to) { take(field.name, from, to); }, given,
                 shape);
    std::string device, plan_table;
    take("device", given.device, device);
    take("plan_table", given.plan_table, plan_table);
    return explain(shape, device, plan_table);
}

}  // namespace

const char* finegemm_version(void) { return FINEGEMM_VERSION; }

int32_t finegemm_options_init(finegemm_options* options, size_t struct_size, finegemm_error* error) {
    return guarded(error, [&] {
        require(options, "options");
        check_size(struct_size, kFirstSize<finegemm_options>, "options");
        finegemm_options filled{};
        filled.struct_size = static_cast<uint32_t>(struct_size);
        from_options(Options::from_environment(), filled);
        std::memset(options, 0, struct_size);
        std::memcpy(options, &filled, std::min(struct_size, sizeof filled));
    });
}

int32_t finegemm_context_create(const finegemm_options* options, finegemm_context** context, finegemm_error* error) {
    return guarded(error, [&] {
        require(context, "context");
        *context = nullptr;
        *context = new finegemm_context{Context(options ? to_options(*options) : Options::from_environment())};
    });
}

void finegemm_context_destroy(finegemm_context* context) { delete context; }

int32_t finegemm_gemm(finegemm_context* context, const finegemm_gemm_args* args, const finegemm_gemm_options* options,
                      finegemm_error* error) {
    return guarded(error, [&] {
        require(context, "context", kMakeContext);
        require(args, "args");
        gemm(context->context,
             {to_matrix(args->a, "a"), to_matrix(args->sfa, "sfa"), to_matrix(args->b, "b"),
              to_matrix(args->sfb, "sfb"), to_matrix(args->d, "d")},
             options ? to_options(*options) : GemmOptions{});
    });
}

int32_t finegemm_grouped_gemm(finegemm_context* context, const finegemm_grouped_gemm_args* args,
                              const finegemm_gemm_options* options, finegemm_error* error) {
    return guarded(error, [&] {
        require(context, "context", kMakeContext);
        require(args, "args");
        grouped_gemm(context->context,
                     {to_stack(args->a, "a"), to_stack(args->sfa, "sfa"), to_stack(args->b, "b"),
                      to_stack(args->sfb, "sfb"), to_stack(args->d, "d"), to_groups(args->groups)},
                     options ? to_options(*options) : GemmOptions{});
    });
}

int32_t finegemm_k_grouped_gemm(finegemm_context* context, const finegemm_k_grouped_gemm_args* args,
                                const finegemm_gemm_options* options, finegemm_error* error) {
    return guarded(error, [&] {
        require(context, "context", kMakeContext);
        require(args, "args");
        require_zero(args->reserved, "args");
        k_grouped_gemm(context->context,
                       {.a = to_matrix(args->a, "a"),
                        .sfa = to_matrix(args->sfa, "sfa"),
                        .b = to_matrix(args->b, "b"),
                        .sfb = to_matrix(args->sfb, "sfb"),
                        .d = to_stack(args->d, "d"),
                        .offsets = args->offsets,
                        .groups = args->groups,
                        .offsets_device = {static_cast<DeviceType>(args->device_type), args->device_index},
                        .layout = static_cast<KLayout>(args->layout)},
                       options ? to_options(*options) : GemmOptions{});
    });
}

int32_t finegemm_quantize_rows(finegemm_context* context, const finegemm_matrix* x, const finegemm_matrix* q,
                               const finegemm_matrix* scales, const finegemm_quantize_options* options,
                               finegemm_error* error) {
    return quantize(&quantize_rows, context, x, q, scales, options, error);
}

int32_t finegemm_quantize_blocks(finegemm_context* context, const finegemm_matrix* x, const finegemm_matrix* q,
                                 const finegemm_matrix* scales, const finegemm_quantize_options* options,
                                 finegemm_error* error) {
    return quantize(&quantize_blocks, context, x, q, scales, options, error);
}

int32_t finegemm_scale_layout(finegemm_context* context, const finegemm_scale_layout_args* args,
                              const finegemm_scale_layout_options* options, finegemm_error* error) {
    return guarded(error, [&] {
        require(context, "context", kMakeContext);
        require(args, "args");
        scale_layout(context->context, {to_stack(args->sf, "sf"), to_stack(args->out, "out"), to_scale_groups(*args)},
                     options ? to_options(*options) : ScaleLayoutOptions{});
    });
}

int32_t finegemm_explain(const finegemm_shape* shape, char* buffer, size_t capacity, size_t* needed,
                         finegemm_error* error) {
    return guarded(error, [&] {
        require(shape, "shape");
        if (capacity > 0) require(buffer, "buffer");
        const std::string text = explain(*shape);
        if (needed) *needed = text.size() + 1;
        if (capacity == 0) return;
        const size_t length = std::min(text.size(), capacity - 1);
        std::memcpy(buffer, text.data(), length);
        buffer[length] = '\0';
    });
}
