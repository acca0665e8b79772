// The C ABI over the C++ one. Layer api.
#include <finegemm/c_api.h>

#include <algorithm>
#include <concepts>
#include <cstring>
#include <optional>
#include <string>

#include <fmt/format.h>

#include <finegemm/einsum.h>
#include <finegemm/gemm.h>
#include <finegemm/quantize.h>
#include <finegemm/scale_layout.h>
#include <finegemm/swiglu.h>

#include "api/c_values.h"
#include "api/option_lists.h"
#include "plan/fields.h"

namespace {

using namespace finegemm;

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

SwigluOptions to_options(const finegemm_swiglu_options& caller) {
    const finegemm_swiglu_options given = known_part(caller, "options");
    require_zero(given.reserved, "options");
    SwigluOptions o{.stream = given.stream, .poll = to_poll(given.poll, given.poll_data)};
    swiglu_options([](const char* name, const auto& from, auto& to) { take(name, from, to); }, given, o);
    return o;
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

int32_t finegemm_einsum(finegemm_context* context, const char* equation, const finegemm_einsum_args* args,
                        const finegemm_gemm_options* options, finegemm_error* error) {
    return guarded(error, [&] {
        require(context, "context", kMakeContext);
        require(equation, "equation");
        require(args, "args");
        einsum(context->context, equation,
               {to_stack(args->a, "a"), to_stack(args->sfa, "sfa"), to_stack(args->b, "b"), to_stack(args->sfb, "sfb"),
                to_stack(args->d, "d")},
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

int32_t finegemm_quantize_weights(finegemm_context* context, const finegemm_quantize_weights_args* args,
                                  const finegemm_quantize_options* options, finegemm_error* error) {
    return guarded(error, [&] {
        require(context, "context", kMakeContext);
        require(args, "args");
        quantize_weights(context->context,
                         {.x = to_stack(args->x, "x"),
                          .q = to_stack(args->q, "q"),
                          .scales = to_stack(args->scales, "scales"),
                          .transposed = to_stack(args->transposed, "transposed")},
                         options ? to_options(*options) : QuantizeOptions{});
    });
}

int32_t finegemm_quantize_columns(finegemm_context* context, const finegemm_quantize_columns_args* args,
                                  const finegemm_quantize_options* options, finegemm_error* error) {
    return guarded(error, [&] {
        require(context, "context", kMakeContext);
        require(args, "args");
        quantize_columns(context->context,
                         {.x = to_matrix(args->x, "x"),
                          .q = to_matrix(args->q, "q"),
                          .scales = to_matrix(args->scales, "scales"),
                          .row_q = to_matrix(args->row_q, "row_q"),
                          .row_scales = to_matrix(args->row_scales, "row_scales"),
                          .offsets = to_matrix(args->offsets, "offsets"),
                          .begins = to_matrix(args->begins, "begins")},
                         options ? to_options(*options) : QuantizeOptions{});
    });
}

int32_t finegemm_swiglu_quantize(finegemm_context* context, const finegemm_swiglu_args* args,
                                 const finegemm_swiglu_options* options, finegemm_error* error) {
    return guarded(error, [&] {
        require(context, "context", kMakeContext);
        require(args, "args");
        swiglu_quantize(context->context,
                        {.x = to_stack(args->x, "x"),
                         .q = to_stack(args->q, "q"),
                         .scales = to_stack(args->scales, "scales"),
                         .weights = to_matrix(args->weights, "weights"),
                         .groups = to_groups(args->groups)},
                        options ? to_options(*options) : SwigluOptions{});
    });
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
        put_text(explain(*shape), buffer, capacity, needed);
    });
}
