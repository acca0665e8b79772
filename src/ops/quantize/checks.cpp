// Argument checks of quantisation. Layer api.
#include "ops/quantize/checks.h"

#include <algorithm>

#include "api/argument.h"

namespace finegemm {

void check_quantize(const QuantizeCall& call) {
    const auto& [shape, x, q, scales, options] = call;
    const ConstMatrix q_view = q, scales_view = scales;
    const Argument in{"x", x}, out{"q", q_view}, s{"scales", scales_view};
    if (x.dtype != DType::BF16 && x.dtype != DType::F16 && x.dtype != DType::F32)
        reject("x", "has dtype {}, must be bf16, f16 or f32; convert it", name_of(x.dtype));
    out.check_dtype(DType::E4M3, "pass memory of one byte for each element of x");
    in.check_extents();
    if (!out.has_shape(x.rows, x.cols))
        reject("q", "has shape [{}, {}], but x has [{}, {}]; pass memory of the same shape", q.rows, q.cols, x.rows,
               x.cols);
    if (x.cols % 16 != 0) reject("x", "has {} columns, must be a multiple of 16; pad it with zeros", x.cols);
    check_scales(s, shape == ScaleShape::Rows ? scales_of_rows(x, "one for each row and 128 columns of x")
                                              : scales_of_blocks(x, "one for each 128x128 block of x"));
    s.check_elements_apart();

    for (const Argument& argument : {in, out, s}) argument.check_device(x.device, "x");
    const int64_t alignment = alignment_on(x.device);
    for (const Argument& argument : {in, out}) argument.check_pointer(alignment);
    s.check_pointer(std::min<int64_t>(alignment, alignof(float)));
    for (const Argument& argument : {in, out}) argument.check_rows(alignment);
    in.check_apart_from(out);
    in.check_apart_from(s);
    out.check_apart_from(s);
}

}  // namespace finegemm
