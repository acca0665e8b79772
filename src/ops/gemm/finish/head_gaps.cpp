// Finish::HeadGaps: the check of its arguments. Layer engine.
#include "ops/gemm/finish/head_gaps.h"

#include <tuple>

#include "plan/reject.h"

namespace finegemm {

void HeadGaps::check(const Call& call) {
    const Epilogue& x = call.epilogue();
    for (const auto& [name, cols, least] :
         {std::tuple{"head_left", x.head_left, 0}, {"head_gap", x.head_gap, 8}, {"head_right", x.head_right, 0}})
        if (!plan::is_head_part(cols, least))
            reject(name, "is {}, must be a multiple of 8 from {} to {}; pad the heads", cols, least,
                   plan::kMaxHeadPart);
    const int64_t n = call.b.matrix.rows, head = plan::head_cols(x), width = plan::width_of_d(x, n);
    if (head == 0 || n % head != 0)
        reject("head_left", "is {} and head_right {}, must add up to a divisor of N = {}, the rows of b; check both",
               x.head_left, x.head_right, n);
    if (call.d_width != width)
        reject("d", "has {} columns, must have {}: {} heads of {}, {} and {}; pass memory with the gaps", call.d_width,
               width, n / head, x.head_left, x.head_gap, x.head_right);
}

}  // namespace finegemm
