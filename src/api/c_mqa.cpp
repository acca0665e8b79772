// The C ABI of an indexer's scores. Layer api.
#include <finegemm/c_api.h>

#include <finegemm/mqa.h>

#include "api/c_values.h"
#include "api/option_lists.h"

namespace {

using namespace finegemm;

MqaOptions to_options(const finegemm_mqa_options& caller) {
    const finegemm_mqa_options given = known_part(caller, "options");
    MqaOptions o{.stream = given.stream};
    o.poll = to_poll(given.poll, given.poll_data);
    mqa_options([](const char* name, const auto& from, auto& to) { take(name, from, to); }, given, o);
    return o;
}

PagedMqaScheduleOptions to_options(const finegemm_paged_mqa_schedule_options& caller) {
    const finegemm_paged_mqa_schedule_options given = known_part(caller, "options");
    return {.stream = given.stream, .pdl = to_bool(given.pdl, "pdl"), .poll = to_poll(given.poll, given.poll_data)};
}

MqaShape to_shape(const finegemm_mqa_shape& caller) {
    const finegemm_mqa_shape given = known_part(caller, "shape");
    require_zero(given.reserved, "shape");
    MqaShape shape;
    mqa_fields([](const char* name, const auto& from, auto& to) { take(name, from, to); }, given, shape);
    if (given.dtype != 0) take("dtype", given.dtype, shape.dtype);
    return shape;
}

}  // namespace

int32_t finegemm_mqa_logits(finegemm_context* context, const finegemm_mqa_logits_args* args,
                            const finegemm_mqa_options* options, finegemm_error* error) {
    return guarded(error, [&] {
        require(context, "context", kMakeContext);
        require(args, "args");
        mqa_logits(context->context,
                   {.q = to_stack(args->q, "q"),
                    .k = to_matrix(args->k, "k"),
                    .sfk = to_matrix(args->sfk, "sfk"),
                    .w = to_matrix(args->w, "w"),
                    .starts = to_matrix(args->starts, "starts"),
                    .ends = to_matrix(args->ends, "ends"),
                    .d = to_matrix(args->d, "d")},
                   options ? to_options(*options) : MqaOptions{});
    });
}

int32_t finegemm_paged_mqa_logits(finegemm_context* context, const finegemm_paged_mqa_logits_args* args,
                                  const finegemm_mqa_options* options, finegemm_error* error) {
    return guarded(error, [&] {
        require(context, "context", kMakeContext);
        require(args, "args");
        paged_mqa_logits(context->context,
                         {.q = to_stack(args->q, "q"),
                          .cache = to_matrix(args->cache, "cache"),
                          .w = to_matrix(args->w, "w"),
                          .lengths = to_matrix(args->lengths, "lengths"),
                          .block_table = to_matrix(args->block_table, "block_table"),
                          .schedule = to_matrix(args->schedule, "schedule"),
                          .d = to_matrix(args->d, "d")},
                         options ? to_options(*options) : MqaOptions{});
    });
}

int32_t finegemm_paged_mqa_schedule(finegemm_context* context, const finegemm_paged_mqa_schedule_args* args,
                                    const finegemm_paged_mqa_schedule_options* options, finegemm_error* error) {
    return guarded(error, [&] {
        require(context, "context", kMakeContext);
        require(args, "args");
        paged_mqa_schedule(context->context,
                           {.lengths = to_matrix(args->lengths, "lengths"),
                            .queries_each = args->queries_each,
                            .schedule = to_matrix(args->schedule, "schedule")},
                           options ? to_options(*options) : PagedMqaScheduleOptions{});
    });
}

int32_t finegemm_explain_mqa(const finegemm_mqa_shape* shape, char* buffer, size_t capacity, size_t* needed,
                             finegemm_error* error) {
    return guarded(error, [&] {
        require(shape, "shape");
        put_text(explain(to_shape(*shape)), buffer, capacity, needed);
    });
}
