// The role of the warps that decode: rows of A from e4m3 codes with MX scales to bf16, in shared memory, and exponents of
// B to factors. Layer device.
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
    static constexpr uint32_t kTeam = C.decoders_of_block(), kOfA = ceil_div(C.tile_m / kTeam, kWarpSize),
                              kOfB = ceil_div(C.tile_n / kTeam, kWarpSize);
    struct Words {
        float of_a[kOfA], of_b[kOfB];
    };
    uint32_t row_a, row_b;
    bool exists_a[kOfA], exists_b[kOfB];
    const float *a, *b;

    __device__ MxWords(const Params<C>& p, const Tile& tile, uint32_t kb, uint32_t member) {
        const uint32_t lane = threadIdx.x % kWarpSize;
        row_a = (lane / kDecodedRows * kTeam + member) * kDecodedRows + lane % kDecodedRows;
        row_b = member * kWarpSize + lane;
        a = scales_of_a(p, tile) + row_a * p.sfa.mn_stride + kb * p.sfa.k_stride;
        b = scales_of_b(p, tile) + (tile.col + row_b) * p.sfb.mn_stride + kb * p.sfb.k_stride;
#pragma unroll
        for (uint32_t i = 0; i < kOfA; ++i) exists_a[i] = row_a + i * kApart < min(tile.rows, C.tile_m);
#pragma unroll
        for (uint32_t i = 0; i < kOfB; ++i) exists_b[i] = tile.col + row_b + i * kApart < p.n;
    }
    /// Loads those of a k-block, if there is one, and moves on by so many.
    __device__ void load(Words& words, const Params<C>& p, bool exists, uint32_t k_blocks) {
#pragma unroll
        for (uint32_t i = 0; i < kOfA; ++i)
            words.of_a[i] = exists && exists_a[i] ? ptx::load_global(a + i * kApart * p.sfa.mn_stride) : 0;
#pragma unroll
        for (uint32_t i = 0; i < kOfB; ++i)
            words.of_b[i] = exists && exists_b[i] ? ptx::load_global(b + i * kApart * p.sfb.mn_stride) : 0;
        a += k_blocks * p.sfa.k_stride;
        b += k_blocks * p.sfb.k_stride;
    }
    /// Stores their factors. Those of A are read by this warp alone.
    __device__ void store(const Words& words, const Shared<C>& smem, uint32_t stage) const {
#pragma unroll
        for (uint32_t i = 0; i < kOfA; ++i)
            if (row_a + i * kApart < C.tile_m)
                store_row(smem.sfa(stage), row_a + i * kApart, mx_factors_of_word(words.of_a[i]));
#pragma unroll
        for (uint32_t i = 0; i < kOfB; ++i)
            store_row(smem.sfb(stage), row_b + i * kApart, mx_factors_of_word(words.of_b[i]));
        __syncwarp();
    }

private:
    static constexpr uint32_t kApart = kTeam * kWarpSize;  // rows of a lane
    static_assert(C.tile_n % kApart == 0);
};

/// Decodes eight rows. They are read whole before they are written: the second half of each lies where its codes were.
/// Lanes have words of one step of wgmma, so that they write whole pieces, of which those of eight lanes lie in
/// different banks.
template <GemmConfig C>
__device__ inline void decode_eight_rows(const Shared<C>& smem, uint32_t stage, uint32_t first) {
    constexpr uint32_t kSets = 2;  // of a word of each of four sixteens, of a lane's row
    const uint32_t lane = threadIdx.x % kWarpSize, step = lane % 4, half = lane / 16, first_row = lane / 4 % 4;
    const SmemAddr factors = smem.sfa(stage) + ((first + first_row) * kMxScaleBytes + half * 8),
                   codes = smem.codes(stage) + (first * kRowBytes + step * 4),
                   to = smem.a(stage) + (half * (smem.kAt.a_stage / 2) + first * kRowBytes);
    uint32_t code[kSets][4], low[kSets][4], high[kSets][4], factor[kSets][2], found = 0, of_all = 0;
#pragma unroll
    for (uint32_t set = 0; set < kSets; ++set) {
        const ptx::Float2 f = ptx::load_shared_x2(factors + set * 4 * kMxScaleBytes);
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i) of_all |= factor[set][i] = float_bits(f.part[i]);
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i)
            code[set][i] = ptx::load_shared_word(codes + mx_codes_at(first_row + set * 4, half * 4 + i));
    }
#pragma unroll
    for (uint32_t set = 0; set < kSets; ++set)
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i)
            found |= decode_codes(low[set][i], high[set][i], code[set][i], factor[set][i / 2]);
    if (is_unusual(found, of_all)) {
#pragma unroll
        for (uint32_t set = 0; set < kSets; ++set)
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i)
                decode_unusual(low[set][i], high[set][i], code[set][i], factor[set][i / 2]);
    }
    __syncwarp();
#pragma unroll
    for (uint32_t set = 0; set < kSets; ++set) {
        const uint32_t row = first_row + set * 4;
        ptx::store_shared_words_x4(to + mx_codes_at(row, step * 2),
                                   {{low[set][0], low[set][1], low[set][2], low[set][3]}});
        ptx::store_shared_words_x4(to + mx_codes_at(row, step * 2 + 1),
                                   {{high[set][0], high[set][1], high[set][2], high[set][3]}});
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
