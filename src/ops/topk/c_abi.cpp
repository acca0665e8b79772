// The C ABI of selections. Layer api.
#include <finegemm/c_api.h>

#include <finegemm/topk.h>

#include "api/c_values.h"
#include "api/option_lists.h"

namespace {

using namespace finegemm;

TopkOptions to_options(const finegemm_topk_options* caller) {
    if (!caller) return {};
    const finegemm_topk_options given = known_part(*caller, "options");
    require_zero(given.reserved, "options");
    TopkOptions o{.stream = given.stream, .poll = to_poll(given.poll, given.poll_data)};
    topk_options([](const char* name, const auto& from, auto& to) { take(name, from, to); }, given, o);
    return o;
}

TopkOutputs to_outputs(const finegemm_topk_outputs& out) {
    return {.indices = to_matrix(out.indices, "indices"),
            .values = to_matrix(out.values, "values"),
            .histogram = to_matrix(out.histogram, "histogram")};
}

}  // namespace

int32_t finegemm_topk(finegemm_context* context, const finegemm_topk_args* args, const finegemm_topk_options* options,
                      finegemm_error* error) {
    return guarded(error, [&] {
        require(context, "context", kMakeContext);
        require(args, "args");
        topk(context->context,
             {.logits = to_matrix(args->logits, "logits"),
              .starts = to_matrix(args->starts, "starts"),
              .ends = to_matrix(args->ends, "ends"),
              .out = to_outputs(args->out)},
             to_options(options));
    });
}

int32_t finegemm_mqa_topk(finegemm_context* context, const finegemm_mqa_topk_args* args,
                          const finegemm_topk_options* options, finegemm_error* error) {
    return guarded(error, [&] {
        require(context, "context", kMakeContext);
        require(args, "args");
        mqa_topk(context->context,
                 {.q = to_stack(args->q, "q"),
                  .k = to_matrix(args->k, "k"),
                  .sfk = to_matrix(args->sfk, "sfk"),
                  .w = to_matrix(args->w, "w"),
                  .starts = to_matrix(args->starts, "starts"),
                  .ends = to_matrix(args->ends, "ends"),
                  .out = to_outputs(args->out),
                  .logits = to_matrix(args->logits, "logits")},
                 to_options(options));
    });
}

int32_t finegemm_paged_mqa_topk(finegemm_context* context, const finegemm_paged_mqa_topk_args* args,
                                const finegemm_topk_options* options, finegemm_error* error) {
    return guarded(error, [&] {
        require(context, "context", kMakeContext);
        require(args, "args");
        paged_mqa_topk(context->context,
                       {.q = to_stack(args->q, "q"),
                        .cache = to_matrix(args->cache, "cache"),
                        .w = to_matrix(args->w, "w"),
                        .lengths = to_matrix(args->lengths, "lengths"),
                        .block_table = to_matrix(args->block_table, "block_table"),
                        .keys = args->keys,
                        .out = to_outputs(args->out),
                        .logits = to_matrix(args->logits, "logits")},
                       to_options(options));
    });
}

int32_t finegemm_explain_topk(const finegemm_topk_shape* shape, char* buffer, size_t capacity, size_t* needed,
                              finegemm_error* error) {
    return guarded(error, [&] {
        require(shape, "shape");
        const finegemm_topk_shape given = known_part(*shape, "shape");
        TopkShape known;
        topk_fields([](const char* name, const auto& from, auto& to) { take(name, from, to); }, given, known);
        put_text(explain(known, given.device ? given.device : ""), buffer, capacity, needed);
    });
}
