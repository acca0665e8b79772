// The role of the warps that decode: rows of A from e4m3 codes with MX scales to f16, in shared memory, and exponents of
// both operands to factors. Layer device.
#pragma once

#include <finegemm/device/load/scale_views.cuh>
#include <finegemm/device/load/scales_split.cuh>
#include <finegemm/device/mma/decode.cuh>

namespace finegemm::device {

/// Rows that a warp decodes at once. Those of a k-block are shared by the warps of a team, in turn.
inline constexpr uint32_t kDecodedRows = 8;

/// The exponents of a k-block that a lane makes factors of: of rows of A that its warp decodes, and of rows of B.
template <GemmConfig C>
struct MxWords {
    static constexpr uint32_t kTeam = C.decoders_of_block(), kApart = kTeam * kWarpSize,  // rows of a lane
        kOfA = ceil_div(C.tile_m, kApart), kOfB = ceil_div(C.tile_n, kApart);
    struct Words {
        float of_a[kOfA], of_b[kOfB];
    };
    uint32_t row_a, row_b, rows_a, rows_b;  // rows_: that exist
    const float *a, *b;

    __device__ MxWords(const Params<C>& p, const Tile& tile, uint32_t kb, uint32_t member)
        : rows_a(min(tile.rows, C.tile_m)), rows_b(existing_rows(tile.col, C.tile_n, p.n)) {
        const uint32_t lane = threadIdx.x % kWarpSize;
        row_a = (lane / kDecodedRows * kTeam + member) * kDecodedRows + lane % kDecodedRows;
        row_b = member * kWarpSize + lane;
        a = scales_of_a(p, tile) + row_a * p.sfa.mn_stride + kb * p.sfa.k_stride;
        b = scales_of_b(p, tile) + (tile.col + row_b) * p.sfb.mn_stride + kb * p.sfb.k_stride;
    }
    /// Loads those of a k-block, if there is one, and moves on by so many.
    __device__ void load(Words& words, const Params<C>& p, bool exists, uint32_t k_blocks) {
#pragma unroll
        for (uint32_t i = 0; i < kOfA; ++i)
            words.of_a[i] =
                exists && row_a + i * kApart < rows_a ? ptx::load_global(a + i * kApart * p.sfa.mn_stride) : 0;
#pragma unroll
        for (uint32_t i = 0; i < kOfB; ++i)
            words.of_b[i] =
                exists && row_b + i * kApart < rows_b ? ptx::load_global(b + i * kApart * p.sfb.mn_stride) : 0;
        a += k_blocks * p.sfa.k_stride;
        b += k_blocks * p.sfb.k_stride;
    }
    /// Stores their factors. Those of A are read by this warp alone.
    __device__ void store(const Words& words, const Shared<C>& smem, uint32_t stage) const {
#pragma unroll
        for (uint32_t i = 0; i < kOfA; ++i)
            if (const uint32_t row = row_a + i * kApart; row < C.tile_m) {
                const DecodingFactors factors = decoding_factors(words.of_a[i], mx_largest_of_a);
                store_row(smem.sfa(stage), row, factors);
                ptx::store_shared(smem.largest_of_a(stage) + row * 4, float_of_bits(factors.word[2]));
            }
#pragma unroll
        for (uint32_t i = 0; i < kOfB; ++i)
            if (const uint32_t row = row_b + i * kApart; row < C.tile_n)
                store_row(smem.sfb(stage), row, decoding_factors(words.of_b[i], mx_largest_of_b));
        __syncwarp();
    }
};

/// Decodes eight rows. They are read whole before they are written: the second half of each lies where its codes were.
/// Lanes have words of one step of wgmma, so that they write whole pieces, of which those of eight lanes lie in
/// different banks.
template <GemmConfig C>
__device__ inline void decode_eight_rows(const Shared<C>& smem, uint32_t stage, uint32_t first) {
    constexpr uint32_t kSets = 2;  // of a word of each of four sixteens, of a lane's row
    const uint32_t lane = threadIdx.x % kWarpSize, step = lane % 4, half = lane / 16, first_row = lane / 4 % 4;
    const SmemAddr factors = smem.sfa(stage) + ((first + first_row) * kMxScaleBytes + half * 4),
                   codes = smem.codes(stage) + (first * kRowBytes + step * 4),
                   to = smem.a(stage) + (half * (smem.kAt.a_stage / 2) + first * kRowBytes);
    uint32_t code[kSets][4], factor[kSets];
#pragma unroll
    for (uint32_t set = 0; set < kSets; ++set) {
        factor[set] = ptx::load_shared_word(factors + set * 4 * kMxScaleBytes);
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i)
            code[set][i] = ptx::load_shared_word(codes + mx_codes_at(first_row + set * 4, half * 4 + i));
    }
    __syncwarp();
#pragma unroll
    for (uint32_t set = 0; set < kSets; ++set) {
        const uint32_t row = first_row + set * 4;
        uint32_t low[4], high[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i)
            decode_codes(low[i], high[i], code[set][i], ptx::both_of_half(factor[set], i >= 2));
        ptx::store_shared_words_x4(to + mx_codes_at(row, step * 2), {{low[0], low[1], low[2], low[3]}});
        ptx::store_shared_words_x4(to + mx_codes_at(row, step * 2 + 1), {{high[0], high[1], high[2], high[3]}});
    }
}

/// All tiles of the CTA, of which teams of warps have k-blocks in turn. Exponents are loaded a turn before they are used.
template <GemmConfig C, typename Scheduler>
__device__ void decode_tiles(const Params<C>& p, const Shared<C>& smem, Scheduler scheduler, uint32_t warp) {
    constexpr uint32_t kTeam = C.decoders_of_block(), kTeams = C.scale_warps() / kTeam;
    static_assert(kTeams <= C.stages, "a parity tells a round of the ring from the next one only");
    const uint32_t team = warp / kTeam, member = warp % kTeam;
    if (team >= kTeams) return;
    auto at = RingCursor<C.stages>::producer();
    at += team;
    uint32_t skip = team;  // blocks before this team's next one
    for (Tile tile; scheduler.template take<C>(tile);) {
        const uint32_t end = scheduler.k.end, rows = min(tile.rows, C.tile_m);
        uint32_t kb = scheduler.k.begin + skip;
        MxWords<C> exponents(p, tile, kb, member);
        typename MxWords<C>::Words next;
        exponents.load(next, p, kb < end, kTeams);
#pragma unroll 1
        for (; kb < end; kb += kTeams, at += kTeams) {
            const typename MxWords<C>::Words now = next;
            exponents.load(next, p, kb + kTeams < end, kTeams);
            wait(smem.empty(at.stage), at.parity);
            exponents.store(now, smem, at.stage);
            wait(smem.codes_full(at.stage), at.parity ^ 1);
            __syncwarp();
#pragma unroll 1
            for (uint32_t row = member * kDecodedRows; row < rows; row += kTeam * kDecodedRows)
                decode_eight_rows(smem, at.stage, row);
            ptx::fence_proxy_async_shared();
            __syncwarp();
            arrive_for_copies(smem, at.stage);
        }
        skip = kb - end;
    }
    if (skip == 0) end_scales<Scheduler>(smem, at);
}

}  // namespace finegemm::device
