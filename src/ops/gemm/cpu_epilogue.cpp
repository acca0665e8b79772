// What a product becomes on the CPU before it is rounded to the type of D. Layer engine.
#include "ops/gemm/cpu_epilogue.h"

#include "ops/gemm/groups.h"

namespace finegemm {

std::vector<CpuEpilogue> epilogues_of(const Call& call, const std::vector<GemmArgs>& products) {
    std::vector<CpuEpilogue> epilogues(products.size());
    for (CpuEpilogue& x : epilogues) x.columns = plan::columns_of(call.epilogue());
    if (call.finish() != Finish::Affine) return epilogues;
    const Epilogue& all = call.epilogue();
    // C is cut as D is: its parts are those of a call that has it as its D.
    std::vector<GemmArgs> parts;
    if (call.adds_c()) {
        Call with_c = call;
        const ConstMatrix& c = all.c.matrix;
        with_c.d = {{const_cast<void*>(c.data), c.dtype, c.rows, c.cols, c.row_stride, c.col_stride, c.device},
                    all.c.count,
                    all.c.stride};
        parts = products_of(with_c);
    }
    for (size_t i = 0; i < products.size(); ++i)
        if (products[i].a.cols > 0)
            epilogues[i] = {.alpha = all.alpha,
                            .beta = call.beta(),
                            .c = call.adds_c() ? parts[i].d : ConstMatrix{},
                            .bias = all.bias.data,
                            .affine = true,
                            .adds_c = call.adds_c(),
                            .columns = epilogues[i].columns};
    return epilogues;
}

}  // namespace finegemm
