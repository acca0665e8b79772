// The kernel of products with weights of 4 bits as a table of contents: set up, load, multiply. Layer device.
#pragma once

#include <finegemm/core/tma_box.h>
#include <finegemm/device/either.cuh>
#include <finegemm/device/four_bit/multiply.cuh>
#include <finegemm/device/four_bit/multiply_many.cuh>
#include <finegemm/device/four_bit/walk.cuh>
#include <finegemm/device/ptx/dynamic_shared.cuh>
#include <finegemm/device/ptx/tma.cuh>

namespace finegemm::device {

/// Loads the k-blocks of all tiles, by a converged warp: rows of A in boxes, as many as there are, a block of B, and
/// the scales of the rows. What it tells of a tile is ordered by the arrival that expects the bytes.
template <FourBitConfig C>
class FourBitLoader {
public:
    __device__ FourBitLoader(const FourBitParams& p, const FourBitShared<C>& smem)
        : p_(p), smem_(smem), lane_(threadIdx.x % kWarpSize) {}

    __device__ void run() {
        FourBitWalk<C> walk(p_);
        for (FourBitTile tile = walk.next(); tile.rows > 0; tile = walk.next()) load(tile);
        begin(FourBitTile{}, 0);
        ptx::mbarrier_arrive_after_copies(smem_.full(at_.stage));
    }

private:
    static constexpr uint32_t kBoxBytes = C.box_rows() * kScaleBlock;

    /// Waits for the stage; one lane arrives.
    __device__ void begin(const FourBitTile& tile, uint32_t bytes) const {
        wait(smem_.empty(at_.stage), at_.parity);
        __syncwarp();  // lanes that left the wait one by one would each be elected
        if (ptx::elect_one()) {
            ptx::store_shared_words_x4(smem_.tile(at_.stage), {{tile.matrix, tile.row, tile.rows, tile.n_tile}});
            ptx::mbarrier_arrive_expect_tx(smem_.full(at_.stage), bytes);
        }
        __syncwarp();
    }
    __device__ void load(const FourBitTile& tile) {
        const uint32_t boxes = ceil_div(tile.rows, C.box_rows());
        const uint32_t first = tile.n_tile * C.blocks(), blocks = min(p_.n_blocks - first, C.blocks());
        const uint64_t of_one = uint64_t{p_.n_blocks} * p_.k_blocks;
        const uint8_t* const matrix = p_.b + tile.group * four_bit_matrix_bytes(C.codes, of_one);
        const uint64_t block = uint64_t{first} * p_.k_blocks, to_next = uint64_t{p_.k_blocks} * kFourBitBlockBytes;
        const uint8_t* b = matrix + block * kFourBitBlockBytes;
        const float* sfb = reinterpret_cast<const float*>(matrix + of_one * kFourBitBlockBytes) + block;
        const float* sfa = p_.sfa + tile.matrix * p_.sfa_stride + (tile.row + lane_) * p_.sfa_row_stride;
#pragma unroll 1
        for (uint32_t k_block = 0; k_block < p_.k_blocks; ++k_block, ++at_) {
            const SmemAddr full = smem_.full(at_.stage);
            begin(tile, blocks * kFourBitBlockBytes + boxes * kBoxBytes);
            if (ptx::elect_one()) {
                ptx::bulk_load(smem_.b(at_.stage, 0), b, kFourBitBlockBytes, full, kEvictFirst);
                if (blocks > 1)
                    ptx::bulk_load(smem_.b(at_.stage, 1), b + to_next, kFourBitBlockBytes, full, kEvictFirst);
            }
            __syncwarp();
            for (uint32_t box = 0; box < boxes; ++box)
                ptx::tma_load_elected(smem_.a(at_.stage) + box * kBoxBytes, &p_.a, full, k_block * kScaleBlock,
                                      tile.row + box * C.box_rows(), tile.matrix);
#pragma unroll
            for (uint32_t i = 0; i < C.tile_rows(); i += kWarpSize)
                if (i + lane_ < tile.rows)
                    ptx::copy_async(smem_.row_scales(at_.stage) + (i + lane_) * 4, sfa + i * p_.sfa_row_stride);
            if (C.codes == FourBitCodes::Mxfp4 && lane_ < blocks)
                ptx::copy_async(smem_.block_scale(at_.stage, lane_), sfb + lane_ * p_.k_blocks);
            ptx::mbarrier_arrive_after_copies(full);
            b += kFourBitBlockBytes;
            ++sfb;
            sfa += p_.sfa_col_stride;
        }
    }

    const FourBitParams& p_;
    const FourBitShared<C>& smem_;
    uint32_t lane_;
    RingCursor<C.stages()> at_ = RingCursor<C.stages()>::producer();
};

/// Orders the scales of each k-block's rows as math warps load them, by a converged warp, once for all of these; those
/// of MXFP4 are multiplied by that of each block.
template <FourBitConfig C>
    requires(!C.decodes_to_shared())
__device__ void prepare_blocks(const FourBitShared<C>& smem, uint32_t /*warp*/) {
    constexpr uint32_t kOfLane = ceil_div(C.tile_rows(), kWarpSize);
    const uint32_t lane = threadIdx.x % kWarpSize;
    for (auto at = RingCursor<C.stages()>::consumer();; ++at) {
        wait(smem.full(at.stage), at.parity);
        if (ptx::load_shared_words_x4(smem.tile(at.stage)).w[2] == 0) return;
        float of_a[kOfLane], of_b[C.scale_sets()] = {1};
#pragma unroll
        for (uint32_t i = 0; i < kOfLane; ++i)
            if (const uint32_t row = i * kWarpSize + lane; row < C.tile_rows())  // the next stage has what is behind
                of_a[i] = ptx::load_shared(smem.row_scales(at.stage) + row * 4);
#pragma unroll
        for (uint32_t set = 0; set < C.scale_sets(); ++set)
            if (C.codes == FourBitCodes::Mxfp4) of_b[set] = ptx::load_shared(smem.block_scale(at.stage, set));
        __syncwarp();  // all have been read
#pragma unroll
        for (uint32_t set = 0; set < C.scale_sets(); ++set)
#pragma unroll
            for (uint32_t i = 0; i < kOfLane; ++i)
                if (const uint32_t row = i * kWarpSize + lane; row < C.tile_rows())
                    ptx::store_shared(smem.row_scales(at.stage, set) + C.scale_place(row) * 4, of_a[i] * of_b[set]);
        ptx::mbarrier_arrive(smem.scaled(at.stage));
    }
}

template <FourBitConfig C>
__device__ void four_bit(const FourBitParams& p) {
    const FourBitShared<C> smem{ptx::dynamic_shared()};
    ptx::grid_launch_dependents();
    if (threadIdx.x == 0) {
        for (uint32_t stage = 0; stage < C.stages(); ++stage) {
            ptx::mbarrier_init(smem.full(stage), 1 + kWarpSize);
            ptx::mbarrier_init(smem.scaled(stage), kWarpSize);
            ptx::mbarrier_init(smem.empty(stage), C.math_warps() * kLanesArrive);
        }
        for (uint32_t slot = 0; slot < C.decoded_blocks(); ++slot) {
            ptx::mbarrier_init(smem.is_decoded(slot), C.kDecodeWarps * kLanesArrive);
            ptx::mbarrier_init(smem.free(slot), C.math_warps() * kLanesArrive);
        }
        ptx::fence_mbarrier_init();
    }
    __syncthreads();
    ptx::grid_dependency_wait();
    const uint32_t warp = ptx::broadcast(threadIdx.x / kWarpSize);
    constexpr FourBitRegisters kRegisters = four_bit_registers(C);
    if (warp < C.math_warps()) {
        if (C.many()) ptx::setmaxnreg_inc<kRegisters.math>();
        Either<C.decodes_to_shared(), FourBitSharedMath<C>, FourBitMath<C>>(p, smem).run();
        return;
    }
    if (C.many()) ptx::setmaxnreg_dec<kRegisters.others>();
    if (warp == C.math_warps()) FourBitLoader<C>(p, smem).run();
    else if (C.decodes_to_shared() || warp == C.math_warps() + 1) prepare_blocks<C>(smem, warp - C.math_warps() - 1);
}

}  // namespace finegemm::device
