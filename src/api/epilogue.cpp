// Checks of what is added to a product. Layer api.
#include "api/epilogue.h"

#include <cmath>

namespace finegemm {

namespace {

bool is_given(const ConstMatrix& x) { return x.data || x.rows != 0 || x.cols != 0; }

/// The first argument that asks for more than the product; null where none does.
const char* first_given(const Epilogue& epilogue) {
    if (epilogue.alpha != 1) return "alpha";
    if (epilogue.beta.value_or(0) != 0) return "beta";
    if (is_given(epilogue.c.matrix)) return "c";
    return is_given(epilogue.bias) ? "bias" : nullptr;
}

void check_factor(const char* name, float factor) {
    if (!std::isfinite(factor)) reject(name, "is {}, must be finite; look at what computed it", factor);
}

/// Products that have no such kernels.
void check_takes_epilogue(const Call& call, const char* given) {
    if (call.of_k())
        reject(given,
               "is given, but d of groups of K is the product alone, or added to; leave it out, or set accumulate");
    if (call.row_b_scales())
        reject(given,
               "is given, but where each row of b has scales d is the product alone; leave it out, or pass scales for "
               "128x128 blocks of b (quantize_blocks makes them)");
    if (call.a.matrix.dtype == DType::F16)
        reject(given, "is given, but of a and b of f16 d is the product alone; leave it out, or pass them in bf16");
    if (call.options.accumulate) reject("accumulate", "is set, but so is {}; leave it out, and pass d as c", given);
    if (call.a.matrix.cols == 0)
        reject("a", "has K = 0 columns, must have some where {} is given; there is no product to add to", given);
}

void check_c(const Argument& c, const Argument& d) {
    c.check_dtype(d.x.dtype, "convert it to the type of d, or pass a d of its type");
    c.check_extents();
    if (!c.has_shape(d.x.rows, d.x.cols) || c.count != d.count)
        reject("c", "has shape [{}, {}] in {} matrices, must be [{}, {}] in {}, as d; pass it so", c.x.rows, c.x.cols,
               c.count, d.x.rows, d.x.cols, d.count);
    c.check_device(d.x.device, "d");
    c.check_pointer(alignment_on(d.x.device));
    c.check_rows(alignment_on(d.x.device));
    if (c.is_same_as(d)) return;
    if (c.overlaps(d)) reject("c", "overlaps d, must be d itself, with its strides, or memory apart from it; copy it");
}

void check_bias(const Argument& bias, const Argument& d) {
    bias.check_dtype(DType::F32, "convert it, which loses nothing");
    bias.check_extents();
    if (!bias.has_shape(1, d.x.cols))
        reject("bias", "has shape [{}, {}], must be [1, {}], a number for each column of d; pass as many", bias.x.rows,
               bias.x.cols, d.x.cols);
    bias.check_device(d.x.device, "d");
    bias.check_pointer(alignment_on(d.x.device));
    bias.check_rows(1);
    bias.check_apart_from(d);
}

}  // namespace

void check_epilogue(const Call& call, const Argument& d) {
    const Epilogue& epilogue = call.epilogue();
    const char* const given = first_given(epilogue);
    if (!given) return;
    check_takes_epilogue(call, given);
    check_factor("alpha", epilogue.alpha);
    check_factor("beta", epilogue.beta.value_or(1));
    if (is_given(epilogue.c.matrix)) check_c({"c", epilogue.c.matrix, epilogue.c.count, epilogue.c.stride}, d);
    else if (epilogue.beta.value_or(0) != 0)
        reject("beta", "is {}, but there is no c that it could multiply; pass c, or leave beta out", *epilogue.beta);
    if (is_given(epilogue.bias)) check_bias({"bias", epilogue.bias}, d);
}

}  // namespace finegemm
