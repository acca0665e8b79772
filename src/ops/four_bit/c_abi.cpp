// The C ABI of products with weights of 4 bits. Layer api.
#include <finegemm/c_api.h>

#include <finegemm/four_bit.h>

#include "api/c_values.h"
#include "api/option_lists.h"
#include "ops/moe/c_abi.h"

namespace {

using namespace finegemm;

FourBitOptions to_options(const finegemm_four_bit_options& caller) {
    const finegemm_four_bit_options given = known_part(caller, "options");
    FourBitOptions o{.stream = given.stream, .poll = to_poll(given.poll, given.poll_data)};
    four_bit_options([](const char* name, const auto& from, auto& to) { take(name, from, to); }, given, o);
    return o;
}

}  // namespace

int32_t finegemm_four_bit_bytes(int32_t format, int64_t rows, int64_t cols, int64_t* bytes, finegemm_error* error) {
    return guarded(error, [&] {
        require(bytes, "bytes");
        *bytes = four_bit_bytes(static_cast<FourBitFormat>(format), rows, cols);
    });
}

int32_t finegemm_pack_four_bit(const finegemm_four_bit_source* source, void* packed, finegemm_error* error) {
    return guarded(error, [&] {
        require(source, "source");
        require_zero(source->reserved, "source");
        pack_four_bit({.format = static_cast<FourBitFormat>(source->format),
                       .codes = to_matrix(source->codes, "codes"),
                       .scales = to_matrix(source->scales, "scales"),
                       .high_first = to_bool(source->high_first, "high_first"),
                       .offset = to_bool(source->offset, "offset")},
                      packed);
    });
}

int32_t finegemm_unpack_four_bit(const finegemm_four_bit_weights* weights, int64_t group, const finegemm_matrix* q,
                                 const finegemm_matrix* scales, finegemm_error* error) {
    return guarded(error, [&] {
        require(weights, "weights");
        require(q, "q");
        require(scales, "scales");
        unpack_four_bit(to_weights(*weights, "b"), group, to_matrix(*q, "q"), to_matrix(*scales, "scales"));
    });
}

int32_t finegemm_four_bit_gemm(finegemm_context* context, const finegemm_four_bit_args* args,
                               const finegemm_four_bit_options* options, finegemm_error* error) {
    return guarded(error, [&] {
        require(context, "context", kMakeContext);
        require(args, "args");
        four_bit_gemm(context->context,
                      {.a = to_stack(args->a, "a"),
                       .sfa = to_stack(args->sfa, "sfa"),
                       .b = to_weights(args->b, "b"),
                       .d = to_stack(args->d, "d"),
                       .groups = to_groups(args->groups),
                       .fp8 = to_stack(args->fp8, "fp8"),
                       .fp8_scales = to_stack(args->fp8_scales, "fp8_scales")},
                      options ? to_options(*options) : FourBitOptions{});
    });
}

int32_t finegemm_four_bit_moe(finegemm_context* context, const finegemm_moe_args* args,
                              const finegemm_four_bit_weights* gate_up, const finegemm_four_bit_weights* down,
                              const finegemm_moe_options* options, finegemm_error* error) {
    return guarded(error, [&] {
        require(context, "context", kMakeContext);
        require(args, "args");
        moe(context->context, to_args(*args, gate_up, down), options ? to_options(*options) : MoeOptions{});
    });
}

int32_t finegemm_explain_four_bit(const finegemm_four_bit_shape* shape, char* buffer, size_t capacity, size_t* needed,
                                  finegemm_error* error) {
    return guarded(error, [&] {
        require(shape, "shape");
        const finegemm_four_bit_shape given = known_part(*shape, "shape");
        FourBitShape s{.format = static_cast<FourBitFormat>(given.format)};
        if (given.groups != 0) s.groups = given.groups;
        four_bit_fields([](const char* name, const auto& from, auto& to) { take(name, from, to); }, given, s);
        put_text(explain(s, given.device ? given.device : ""), buffer, capacity, needed);
    });
}
