// Argument checks of gemm and quantisation. Layer api.
#include "api/checks.h"

#include <algorithm>

#include "api/argument.h"

namespace finegemm {

void check_gemm(const GemmArgs& args, const GemmOptions& options) {
    const ConstMatrix d_view = args.d;
    const Argument a{"a", args.a}, sfa{"sfa", args.sfa}, b{"b", args.b}, sfb{"sfb", args.sfb}, d{"d", d_view};
    check_operands(a, sfa, b, sfb, d, BScales::BlocksOrRows);
    if (options.accumulate && d.x.dtype != DType::F32)
        reject("accumulate",
               "is set, but d has dtype {}, must be f32; pass memory of f32{}, or add the result to yours",
               name_of(d.x.dtype),
               has_row_b_scales(args) ? "" : " and scales for each row of b (quantize_rows makes them)");
    check_gemm_options(options, d.x.device.type == DeviceType::Cuda && !a.empty() && !b.empty());
}

void check_gemm_shape(const GemmShape& shape) {
    if (shape.out_dtype != DType::BF16 && shape.out_dtype != DType::F32)
        reject("out_dtype", "is {}, must be bf16 or f32, as d is; pass one of them", name_of(shape.out_dtype));
    if (shape.out_dtype == DType::F32 && !shape.row_b_scales)
        reject("out_dtype",
               "is f32, must be bf16 where b has a scale for each 128x128 block; leave it out, or set row_b_scales");
    if (shape.accumulate && shape.out_dtype != DType::F32)
        reject("accumulate",
               "is set, but d is of bf16, must be of f32; set out_dtype and row_b_scales, or leave it out");
}

void check_quantize(ScaleShape shape, const ConstMatrix& x, const Matrix& q, const Matrix& scales) {
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
    // The CPU's loads and stores need no alignment.
    const int64_t alignment = x.device.type == DeviceType::Cuda ? Argument::kAlignment : 1;
    in.check_pointer(std::max(alignment, size_of(x.dtype)));
    out.check_pointer(alignment);
    s.check_pointer(alignof(float));
    in.check_rows(std::max(alignment, size_of(x.dtype)));
    out.check_rows(alignment);
    in.check_apart_from(out);
    in.check_apart_from(s);
    out.check_apart_from(s);
}

}  // namespace finegemm
