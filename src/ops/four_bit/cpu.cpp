// Products with weights of 4 bits on the CPU: those of the FP8 that the weights are. Layer engine.
#include "ops/four_bit/cpu.h"

#include <algorithm>
#include <vector>

#include "ops/four_bit/cpu_pack.h"
#include "ops/gemm/cpu.h"

namespace finegemm {

namespace {

/// All weights of a call as FP8: stacks of codes and of scales.
struct Unpacked {
    std::vector<uint8_t> codes;
    std::vector<float> scales;
    ConstStack b, sfb;

    /// Nothing is unpacked where the call has them.
    Unpacked(const FourBitCall& call, ThreadPool& pool) : b(call.fp8), sfb(call.fp8_scales) {
        if (call.has_fp8()) return;
        const FourBitWeights& w = call.b;
        const int64_t scale_rows = w.format == FourBitFormat::Mxfp4 ? call.n_blocks() : w.rows;
        const int64_t k_blocks = call.k_blocks(), n_blocks = call.n_blocks();
        const int64_t codes_of_one = w.rows * w.cols, scales_of_one = scale_rows * k_blocks;
        codes.resize(static_cast<size_t>(w.groups * codes_of_one));
        scales.resize(static_cast<size_t>(w.groups * scales_of_one));
        b = {{codes.data(), DType::E4M3, w.rows, w.cols, w.cols}, w.groups, codes_of_one};
        sfb = {{scales.data(), DType::F32, scale_rows, k_blocks, k_blocks}, w.groups, scales_of_one};
        const auto unpack = [&](int64_t i) {
            const int64_t group = i / n_blocks;
            unpack_rows(w, group, i % n_blocks,
                        {codes.data() + group * codes_of_one, DType::E4M3, w.rows, w.cols, w.cols},
                        {scales.data() + group * scales_of_one, DType::F32, scale_rows, k_blocks, k_blocks});
        };
        pool.parallel_for(w.groups * n_blocks, unpack, call.options.poll);
    }
};

}  // namespace

void run_on_cpu(const FourBitCall& call, ThreadPool& pool) {
    const Unpacked weights(call, pool);
    const GemmOptions options{.numerics = call.options.numerics};
    const Call fp8({call.a, call.sfa, weights.b, weights.sfb, call.d, call.groups}, options);
    std::vector<GemmArgs> products = products_of(fp8);
    std::erase_if(products, [](const GemmArgs& product) { return product.a.cols == 0; });  // rows of no group
    std::vector<int64_t> ends;  // of each product's tiles, in one count for all
    for (const GemmArgs& product : products)
        ends.push_back((ends.empty() ? 0 : ends.back()) + cpu_tiles_of(product, options.numerics));
    if (ends.empty()) return;
    const auto compute = [&](int64_t i) {
        const auto at = static_cast<size_t>(std::ranges::upper_bound(ends, i) - ends.begin());
        const CpuTile tile = cpu_tile_at(products[at], options.numerics, at == 0 ? i : i - ends[at - 1]);
        cpu_gemm_tile(tile, options.numerics, Arithmetic{});
    };
    pool.parallel_for(ends.back(), compute, call.options.poll);
}

}  // namespace finegemm
