// Finish::Gated: the check of its arguments. Layer engine.
#include "ops/gemm/finish/gated.h"

#include <cmath>
#include <tuple>

#include "plan/reject.h"

namespace finegemm {

void Gated::check(const Call& call) {
    const Epilogue& x = call.epilogue();
    for (const auto& [name, factor] : {std::pair{"gate_limit", limit(x)}, {"gate_alpha", slope(x)}})
        if (!(factor > 0)) reject(name, "is {}, must be above 0; leave it out for a SwiGLU without it", factor);
    for (const auto& [name, number] : {std::pair{"gate_alpha", slope(x)}, {"up_offset", x.up_offset}})
        if (!std::isfinite(number)) reject(name, "is {}, must be finite; look at what computed it", number);
    if (!call.scaled())
        reject("sfd", "is given, but a is of {}, must be of e4m3 where d is quantised; leave it out",
               name_of(call.a.matrix.dtype));
    if (!plan::is_given(x.sfd, {}))
        reject("sfd", "is left out, but d is quantised, as {} is given; pass memory for its scales",
               plan::first_given(x));
    if (call.options.accumulate) reject("accumulate", "is set, but so is sfd; leave it out");
    const int64_t n = call.b.matrix.rows;
    if (n % (2 * kScaleBlock) != 0)
        reject("b",
               "has {} rows, must have a multiple of 256 where sfd is given: gates above ups, each a multiple of "
               "128; pad both with rows of zeros",
               n);
    if (2 * call.d_width != n)
        reject("d", "has {} columns, must have {}, half of the {} rows of b, as gates and ups are pairs; pass it so",
               call.d_width, n / 2, n);
}

}  // namespace finegemm
