// The kernel as it would land, with a launcher for trials.
#define FG_WGMMA_N 16
#define FG_WGMMA_TOO 32
#define FG_WGMMA_TYPE "bf16"
#include <cuda.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <algorithm>
#include <finegemm/device/layer/layer.cuh>
using namespace finegemm;
__device__ uint32_t counters_[LayerCounters::kAll];
template <uint32_t R>
__global__ void __launch_bounds__(LayerConfig::threads(), 1) layer(const __grid_constant__ LayerParams p) { device::expert_layer<LayerConfig{R}>(p, counters_); }
static int encode(TensorMap* map, const void* data, uint64_t rows, uint64_t cols, uint32_t box_rows) {
    static decltype(&cuTensorMapEncodeTiled) f = nullptr;
    if (!f) {
        cudaDriverEntryPointQueryResult r;
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", reinterpret_cast<void**>(&f), 12000, cudaEnableDefault, &r);
    }
    const cuuint64_t dims[2] = {cols, rows}, strides[1] = {cols};
    const cuuint32_t box[2] = {128, box_rows}, steps[2] = {1, 1};
    return f(reinterpret_cast<CUtensorMap*>(map), CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<void*>(data), dims, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}
struct Prepared {
    LayerParams p;
    uint32_t form, grid;
};
extern "C" int64_t workspace_bytes(uint32_t rows, uint32_t hidden, uint32_t pairs, uint32_t) {
    return 8 * 1024 + int64_t(rows) * (hidden + pairs + 4 * (hidden / 128 + pairs / 128) + 2 * pairs + 2 * hidden);
}
extern "C" Prepared* prepare(const void* x, const void* ids, int wide, const float* weights, const void* gate_up, const float* gus,
                             const void* down, const float* ds, void* out, uint32_t tokens, uint32_t k, uint32_t hidden, uint32_t pairs,
                             uint32_t experts, uint8_t* workspace, uint32_t*, uint64_t*, uint32_t form, uint32_t grid) {
    auto* r = new Prepared{};
    LayerParams& p = r->p;
    const uint32_t rows = tokens * k;
    auto take = [&](int64_t bytes) {
        uint8_t* at = workspace;
        workspace += (bytes + 255) / 256 * 256;
        return at;
    };
    p.q = take(int64_t(rows) * hidden), p.z = take(int64_t(rows) * pairs);
    p.q_scales = reinterpret_cast<float*>(take(rows * 4 * (hidden / 128)));
    p.z_scales = reinterpret_cast<float*>(take(rows * 4 * (pairs / 128)));
    p.between = reinterpret_cast<uint16_t*>(take(int64_t(rows) * pairs * 2));
    p.y = reinterpret_cast<uint16_t*>(take(int64_t(rows) * hidden * 2));
    p.route = {.ids = static_cast<const uint8_t*>(ids), .ids_row_stride = k, .first = 0, .choices = rows, .wide = uint32_t(wide),
               .by_k = Divider::by(k), .places = {.experts = experts, .rows = rows}};
    p.x = static_cast<const uint8_t*>(x), p.weights = weights, p.gate_up_scales = gus, p.down_scales = ds, p.out = static_cast<uint8_t*>(out);
    p.x_row_stride = hidden * 2, p.out_row_stride = hidden * 2, p.weight_row_stride = k;
    p.tokens = tokens, p.k = k, p.hidden = hidden, p.pairs = pairs;
    p.slot = 3;
    const uint32_t chunks = ceil_div(hidden, LayerParams::kChunk);
    p.tasks = tokens * chunks, p.by_chunks = Divider::by(chunks), p.copies = std::min(k, form == 0 ? 16u : 32u);
    if (encode(&p.gate_up, gate_up, uint64_t(experts) * 2 * pairs, hidden, 32) || encode(&p.down, down, uint64_t(experts) * hidden, pairs, 32) ||
        encode(&p.rows, p.q, rows, hidden, 16) || encode(&p.codes, p.z, rows, pairs, 16)) return nullptr;
    r->form = form, r->grid = grid;
    return r;
}
template <uint32_t R>
static int start(const Prepared* r, cudaStream_t stream) {
    cudaFuncSetAttribute(layer<R>, cudaFuncAttributeMaxDynamicSharedMemorySize, LayerConfig{R}.smem_bytes());
    layer<R><<<r->grid, LayerConfig::threads(), LayerConfig{R}.smem_bytes(), stream>>>(r->p);
    return cudaGetLastError();
}
extern "C" int launch(const Prepared* r, cudaStream_t stream) {
    return r->form == 0 ? start<16>(r, stream) : start<32>(r, stream);
}
