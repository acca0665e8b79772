// The C ABI of the product before a norm. Layer api.
#include <finegemm/c_api.h>

#include <finegemm/prenorm.h>

#include "api/c_values.h"
#include "api/option_lists.h"

namespace {

using namespace finegemm;

PrenormOptions to_options(const finegemm_prenorm_options& caller) {
    const finegemm_prenorm_options given = known_part(caller, "options");
    require_zero(given.reserved, "options");
    PrenormOptions o{.stream = given.stream, .poll = to_poll(given.poll, given.poll_data)};
    prenorm_options([](const char* name, const auto& from, auto& to) { take(name, from, to); }, given, o);
    return o;
}

}  // namespace

int32_t finegemm_prenorm_gemm(finegemm_context* context, const finegemm_prenorm_args* args,
                              const finegemm_prenorm_options* options, finegemm_error* error) {
    return guarded(error, [&] {
        require(context, "context", kMakeContext);
        require(args, "args");
        prenorm_gemm(context->context,
                     {.a = to_matrix(args->a, "a"),
                      .b = to_matrix(args->b, "b"),
                      .d = to_stack(args->d, "d"),
                      .sqrsum = to_matrix(args->sqrsum, "sqrsum")},
                     options ? to_options(*options) : PrenormOptions{});
    });
}

int32_t finegemm_explain_prenorm(const finegemm_prenorm_shape* shape, char* buffer, size_t capacity, size_t* needed,
                                 finegemm_error* error) {
    return guarded(error, [&] {
        require(shape, "shape");
        const finegemm_prenorm_shape given = known_part(*shape, "shape");
        PrenormShape s;
        prenorm_fields([](const char* name, const auto& from, auto& to) { take(name, from, to); }, given, s);
        put_text(explain(s, given.device ? given.device : ""), buffer, capacity, needed);
    });
}
