// The C ABI of routing. Layer api.
#include <finegemm/c_api.h>

#include <finegemm/routing.h>

#include "api/c_values.h"
#include "api/option_lists.h"

namespace {

using namespace finegemm;

const auto take_one = [](const char* name, const auto& from, auto& to) { take(name, from, to); };

template <typename Options, typename Given>
Options with_stream(const Given& given) {
    Options o;
    o.stream = given.stream, o.poll = to_poll(given.poll, given.poll_data);
    return o;
}

RouteOptions to_options(const finegemm_route_options& caller) {
    const finegemm_route_options given = known_part(caller, "options");
    require_zero(given.reserved, "options");
    auto o = with_stream<RouteOptions>(given);
    route_options(take_one, given, o);
    return o;
}

PermuteOptions to_options(const finegemm_permute_options& caller) {
    const finegemm_permute_options given = known_part(caller, "options");
    require_zero(given.reserved, "options");
    auto o = with_stream<PermuteOptions>(given);
    permute_options(take_one, given, o);
    return o;
}

CombineOptions to_options(const finegemm_combine_options& caller) {
    const finegemm_combine_options given = known_part(caller, "options");
    auto o = with_stream<CombineOptions>(given);
    combine_options(take_one, given, o);
    return o;
}

}  // namespace

int32_t finegemm_route(finegemm_context* context, const finegemm_route_args* args,
                       const finegemm_route_options* options, finegemm_error* error) {
    return guarded(error, [&] {
        require(context, "context", kMakeContext);
        require(args, "args");
        require_zero(args->reserved, "args");
        route(context->context,
              {.ids = to_matrix(args->ids, "ids"),
               .inverse = to_matrix(args->inverse, "inverse"),
               .numbers = to_matrix(args->numbers, "numbers"),
               .permutation = to_matrix(args->permutation, "permutation"),
               .form = static_cast<GroupForm>(args->form),
               .experts = args->experts,
               .first = args->first,
               .rows = args->rows,
               .alignment = args->alignment},
              options ? to_options(*options) : RouteOptions{});
    });
}

int32_t finegemm_permute_quantize(finegemm_context* context, const finegemm_permute_quantize_args* args,
                                  const finegemm_permute_options* options, finegemm_error* error) {
    return guarded(error, [&] {
        require(context, "context", kMakeContext);
        require(args, "args");
        permute_quantize(context->context,
                         {.x = to_matrix(args->x, "x"),
                          .x_scales = to_matrix(args->x_scales, "x_scales"),
                          .inverse = to_matrix(args->inverse, "inverse"),
                          .q = to_stack(args->q, "q"),
                          .scales = to_stack(args->scales, "scales")},
                         options ? to_options(*options) : PermuteOptions{});
    });
}

int32_t finegemm_combine(finegemm_context* context, const finegemm_combine_args* args,
                         const finegemm_combine_options* options, finegemm_error* error) {
    return guarded(error, [&] {
        require(context, "context", kMakeContext);
        require(args, "args");
        combine(context->context,
                {.y = to_stack(args->y, "y"),
                 .inverse = to_matrix(args->inverse, "inverse"),
                 .weights = to_matrix(args->weights, "weights"),
                 .out = to_matrix(args->out, "out")},
                options ? to_options(*options) : CombineOptions{});
    });
}
