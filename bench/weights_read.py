"""What a layer of experts cannot be faster than with few tokens: one launch that only reads the weights of the experts
in use, tile by tile as products do."""

import torch

TILE_ROWS = 128
THREADS, CTAS_PER_SM = 512, 2
KERNEL = r"""
extern "C" __global__ void __launch_bounds__(512, 2)
read_weights(const long long* tiles, int count, unsigned* out) {
    uint4 sum = {0, 0, 0, 0};
    const int row = threadIdx.x / 8, word = threadIdx.x % 8;  // a step reads 512 bytes of each row
    for (int t = blockIdx.x; t < count; t += gridDim.x) {
        const uint4* const tile = reinterpret_cast<const uint4*>(tiles[2 * t]);
        const int words = static_cast<int>(tiles[2 * t + 1]);
        for (int k = 0; k < words; k += 32) {
            uint4 v[8];
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const uint4* const from = tile + (row + i % 2 * 64) * words + k + i / 2 * 8 + word;
                asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                             : "=r"(v[i].x), "=r"(v[i].y), "=r"(v[i].z), "=r"(v[i].w) : "l"(from));
            }
#pragma unroll
            for (int i = 0; i < 8; ++i) sum.x ^= v[i].x, sum.y ^= v[i].y, sum.z ^= v[i].z, sum.w ^= v[i].w;
        }
    }
    if ((sum.x ^ sum.y ^ sum.z ^ sum.w) == 0x5eadbeef) *out = sum.x;  // what is not used is not read
}
"""


def reader(experts: torch.Tensor, *weights: torch.Tensor):
    """A function that queues the launch. weights [E, N, K] of one byte, N a multiple of 128, K of 512."""
    kernel = torch.cuda._compile_kernel(KERNEL, "read_weights")
    tiles = []
    for w in weights:
        _, n, k = w.shape
        assert n % TILE_ROWS == 0 and k % 512 == 0 and w.is_contiguous()
        starts = experts.cpu().long()[:, None] * n * k + torch.arange(0, n, TILE_ROWS) * k + w.data_ptr()
        tiles.append(torch.stack((starts.flatten(), torch.full((starts.numel(),), k // 16)), 1))
    table = torch.cat(tiles).cuda()
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    sizes = {"grid": (CTAS_PER_SM * sms, 1, 1), "block": (THREADS, 1, 1)}
    return lambda: kernel(**sizes, args=(table, len(table), out))
