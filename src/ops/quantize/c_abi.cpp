// The C ABI of MXFP8 as codes with scales for 128. Layer api.
#include <finegemm/c_api.h>

#include <finegemm/quantize.h>

#include "api/c_values.h"

namespace {

using namespace finegemm;

ReencodeOptions to_options(const finegemm_reencode_options& caller) {
    const finegemm_reencode_options given = known_part(caller, "options");
    return {.stream = given.stream, .pdl = to_bool(given.pdl, "pdl"), .poll = to_poll(given.poll, given.poll_data)};
}

}  // namespace

int32_t finegemm_reencode(finegemm_context* context, const finegemm_reencode_args* args,
                          const finegemm_reencode_options* options, finegemm_error* error) {
    return guarded(error, [&] {
        require(context, "context", kMakeContext);
        require(args, "args");
        reencode(context->context,
                 {.codes = to_stack(args->codes, "codes"),
                  .words = to_stack(args->words, "words"),
                  .q = to_stack(args->q, "q"),
                  .scales = to_stack(args->scales, "scales"),
                  .changed = to_matrix(args->changed, "changed")},
                 options ? to_options(*options) : ReencodeOptions{});
    });
}
