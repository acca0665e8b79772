// Paged logits without arithmetic: the loading warps of the library's own kernels, and in place of its math warpgroups
// some that take each tile, read its scales and store them where logits go. So the same bytes come in the same order
// with as many in flight, after the same look-ups, and as many go. Or the last tiles of each ring are multiplied, too,
// behind which there is nothing to hide that. mqa_table.py times both beside the library's kernel:
//     nvcc -std=c++20 -O3 -gencode=arch=compute_90a,code=sm_90a -Ikernels -shared -Xcompiler -fPIC bench/mqa_bytes.cu
// Layer bench.
#define FG_WGMMA_N 128
#define FG_WGMMA_TOO 64
#define FG_WGMMA_TYPE "e4m3"
#include <cuda.h>

#include <finegemm/device/mqa/load.cuh>
#include <finegemm/device/mqa/logits.cuh>
#include <finegemm/device/mqa/mqa.cuh>

#include "probes/probe.cuh"

namespace probe {

/// What the library's role of this name does, but for products and sums of the first `Hidden` tiles of a ring.
template <MqaConfig C, uint32_t Hidden>
class Reads {
public:
    __device__ Reads(const MqaParams& p, const device::MqaShared<C>& smem, uint32_t warpgroup)
        : p_(p),
          smem_(smem),
          rings_(device::MqaRings<C>::of(p, smem)),
          ring_(warpgroup >> rings_.sharers_log2),
          part_(warpgroup & (rings_.sharers() - 1)),
          first_key_(device::MqaSums<C>::first_key()) {}

    __device__ void run() {
        using Sums = device::MqaSums<C>;
        device::MqaWeights weights;
        device::MqaSteps<C> steps;
        uint32_t loaded = ~0u;  // the portion of the weights
        for (uint32_t portion = 0, tiles = 0;; at_.advance(rings_.stages())) {
            const uint32_t stage = rings_.stage_of(ring_, at_.stage);
            device::wait(smem_.full(stage), at_.parity);
            const ptx::Float2 told = ptx::load_shared_x2(smem_.tile(stage));
            const MqaTile tile = MqaTile::of(float_bits(told.part[0]), ptx::broadcast(float_bits(told.part[1])));
            for (; portion < tile.portion; ++portion) {
                const auto left = device::MqaSlot<C>::of(p_, portion);
                device::wait(smem_.queries_full(left.first), left.parity);
                ptx::mbarrier_arrive(smem_.queries_empty(left.first));
            }
            if (tile.stage == MqaStage::End) break;
            const auto slot = device::MqaSlot<C>::of(p_, portion);
            const bool keys = tile.stage == MqaStage::Keys && part_ * C.queries() < p_.item_queries;
            if (keys) device::wait(smem_.queries_full(slot.first), slot.parity);
            if (Hidden != ~0u && keys && loaded != portion) {
                loaded = portion;
                weights.load(smem_.weights(slot.first + part_));
                steps.load(smem_, slot.first);
            }
            float scales[Sums::kHalves];
            for (uint32_t half = 0; half < Sums::kHalves; ++half)
                scales[half] = ptx::load_shared(smem_.scales(stage) + (first_key_ + half * 8) * 4);
            Sums sums;
            for (float& x : sums.sum) x = 1.0f;
            if (keys && tiles++ >= Hidden) {
                device::MqaProduct<C, C.few_columns()> product;
                product.start(product.place_of(smem_.keys(stage)), product.place_of(smem_.queries(slot.first + part_)));
                product.finish();
                ptx::mbarrier_arrive(smem_.empty(stage));
                sums.add_up(product, weights, steps, 1);
                sums.exchange(steps);
            } else {
                ptx::mbarrier_arrive(smem_.empty(stage));
            }
            if (!keys) continue;
            const device::MqaRows<C> rows(smem_, slot.first, part_);
            if (p_.bf16) device::store_logits<true>(rows, sums, scales, tile.key + first_key_);
            else device::store_logits<false>(rows, sums, scales, tile.key + first_key_);
        }
    }

private:
    const MqaParams& p_;
    const device::MqaShared<C>& smem_;
    device::MqaRings<C> rings_;
    uint32_t ring_, part_, first_key_;
    device::MqaCursor at_;
};
template <MqaConfig C>
using PageReads = Reads<C, ~0u>;
template <MqaConfig C>
using LastProducts = Reads<C, 1>;

template <uint32_t Heads>
inline constexpr MqaConfig kConfig{Heads, 128, MqaKeys::Pages, MqaForm::Exact};

template <uint32_t Heads>
__global__ void __launch_bounds__(MqaConfig::threads(), 1) read_pages(const __grid_constant__ MqaParams p) {
    device::mqa_logits<kConfig<Heads>, PageReads>(p);
}
template <uint32_t Heads>
__global__ void __launch_bounds__(MqaConfig::threads(), 1) read_pages_and_score(const __grid_constant__ MqaParams p) {
    device::mqa_logits<kConfig<Heads>, LastProducts>(p);
}

/// A stack of matrices of `rows` x 128 bytes, one in a box.
TensorMap stack_of(const void* data, uint64_t count, uint32_t rows, uint64_t stride) {
    void* entry;
    cudaDriverEntryPointQueryResult found;
    CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found));
    TensorMap map;
    const cuuint64_t extents[] = {128, rows, count}, strides[] = {128, stride};
    const cuuint32_t box[] = {128, rows, 1}, steps[] = {1, 1, 1};
    const CUresult result = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry)(
        reinterpret_cast<CUtensorMap*>(&map), CU_TENSOR_MAP_DATA_TYPE_UINT8, 3, const_cast<void*>(data), extents,
        strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    check(result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue, "cuTensorMapEncodeTiled");
    return map;
}

template <uint32_t Heads>
void launch(const MqaParams& p, bool products, cudaStream_t stream) {
    constexpr uint32_t kBytes = kConfig<Heads>.smem_bytes();
    const auto kernel = products ? read_pages_and_score<Heads> : read_pages<Heads>;
    allow_shared(kernel, kBytes);
    kernel<<<132, MqaConfig::threads(), kBytes, stream>>>(p);
    CHECK(cudaGetLastError());
}

}  // namespace probe

/// Operands of paged logits: pages of 64 keys with D = 128, lengths [requests, queries], logits with a row stride.
/// `products`: of all but the first tile of each ring, where a request has one query.
extern "C" void read_pages(const void* q, const void* pages, uint32_t page_count, const float* weights,
                           const int32_t* lengths, const int32_t* table, uint32_t table_columns, void* logits,
                           int64_t logits_stride, uint32_t width, uint32_t bf16, uint32_t requests, uint32_t queries,
                           uint32_t heads, uint32_t products, cudaStream_t stream) {
    using namespace finegemm;
    constexpr uint32_t kKeys = 64, kDim = 128, kPageBytes = kKeys * (kDim + 4);
    MqaParams p{};
    p.q = probe::stack_of(q, uint64_t{requests} * queries, heads, heads * kDim);
    p.k = probe::stack_of(pages, page_count, kKeys, kPageBytes);
    p.weights = weights, p.weights_stride = heads;
    p.ends = lengths, p.ends_stride = queries, p.own_lengths = queries > 1;
    p.table = table, p.table_stride = table_columns;
    p.pages = static_cast<const uint8_t*>(pages), p.page_stride = kPageBytes, p.page_count = page_count;
    p.page_log2 = 6;
    p.logits = static_cast<uint8_t*>(logits), p.logits_stride = logits_stride, p.bf16 = bf16, p.width = width;
    p.rows = requests * queries, p.items = requests, p.item_queries = queries;
    p.item_parts = ceil_div(queries, kMqaColumns / heads);
    p.keys = table_columns * kKeys;
    if (heads == 64) probe::launch<64>(p, products != 0, stream);
    else probe::launch<32>(p, products != 0, stream);
}
