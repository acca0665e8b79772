// The kernels that take rows of tokens to experts of other ranks, and results back, through memory that all reach.
// Layer device.
#pragma once

#include <finegemm/routing/peers.h>
#include <finegemm/device/ptx/convert.cuh>
#include <finegemm/device/ptx/dynamic_shared.cuh>
#include <finegemm/device/ptx/system.cuh>
#include <finegemm/device/warp.cuh>

namespace finegemm::device {

/// Which of the CTAs of a rank this is.
template <PeersConfig C>
struct CtaOfRank {
    uint32_t index, count;

    __device__ uint32_t warp() const { return index * C.warps + threadIdx.x / kWarpSize; }
    __device__ uint32_t warps() const { return count * C.warps; }
    /// Number of the warp, where those of the first CTA, which has more to do, come last.
    __device__ uint32_t warp_behind_first() const { return warp() + (index == 0 ? warps() : 0) - C.warps; }
};

/// The last of `count` numbers that is not above x, where they grow and the first one is not.
template <typename At>
__device__ uint32_t last_not_above(uint32_t x, uint32_t count, const At& at) {
    uint32_t last = 0;
    for (uint32_t left = count; left > 1;) {
        const uint32_t half = left / 2;
        if (at(last + half) <= x) last += half;
        left -= half;
    }
    return last;
}

__device__ inline uint32_t load_word(const int32_t* from) { return ptx::load_global_l2_if(true, from); }

__device__ inline uint32_t this_generation(const PeerView& v) {
    return ptx::load_global_l2_if(true, &v.header(v.rank)->generation) + 1;
}

/// Whether a call before this one, or another CTA of this one, has missed a rank: the same for all threads.
__device__ inline bool has_given_up(const PeerView& v, PeersShared& shared) {
    if (threadIdx.x == 0) shared.given_up = ptx::load_acquire_system(v.missing) != 0;
    __syncthreads();  // thread 0 has looked
    return shared.given_up != 0;
}

/// Tells all ranks, a lane each, behind all that this warp has written or seen.
__device__ inline void tell_all(const PeerView& v, uint64_t (PeerHeader::*words)[kMostPeers], uint64_t word) {
    __syncwarp();  // all lanes have written
    for (uint32_t r = ptx::lane(); r < v.ranks; r += kWarpSize)
        ptx::store_release_system(&(v.header(r)->*words)[v.rank], word);
}

/// Waits for a rank's word of this call; false if it does not come in time, or the rank has given up.
__device__ inline bool has_come_in_time(const PeerView& v, const uint64_t* word, uint32_t generation) {
    const uint64_t begin = ptx::nanoseconds();
    uint64_t seen = ptx::load_acquire_system(word);
    while (!has_come(seen, generation)) {
        if (ptx::nanoseconds() - begin > v.timeout_ns) return false;
        seen = ptx::load_acquire_system(word);
    }
    return said_by(seen) != kGaveUp;
}

/// Waits for the words of all ranks; false if one is lost, which is remembered. All threads call it, the first warp
/// looks: what ranks had written before can be read by all then.
__device__ inline bool all_come(const PeerView& v, const uint64_t* words, uint32_t generation, PeersShared& shared) {
    if (threadIdx.x < kWarpSize) {
        bool lost = false;
        for (uint32_t r = ptx::lane(); r < v.ranks; r += kWarpSize)
            if (!has_come_in_time(v, words + r, generation)) {
                ptx::set_bits_system(v.missing, uint64_t{1} << r);
                lost = true;
            }
        const uint32_t any = ptx::ballot(lost);
        if (ptx::lane() == 0) shared.lost = any;
    }
    __syncthreads();  // the first warp has seen the words
    return shared.lost == 0;
}

/// Where rows of an expert here from a rank begin, there and here. All threads call it; all know it behind the next
/// barrier of the CTA.
template <PeersConfig C>
__device__ void find_places(const PeerView& v, const Divider& by_ranks, PeersShared& shared) {
    constexpr uint32_t kEach = kMostExperts / C.threads();
    const uint32_t count = v.ranks * v.experts, warp = threadIdx.x / kWarpSize;
    const uint32_t each = ceil_div(count, C.threads()), begin = threadIdx.x * each, behind = min(begin + each, count);
    uint32_t sizes[kEach], sum = 0;
#pragma unroll
    for (uint32_t u = 0; u < kEach; ++u) {
        const uint32_t i = begin + u;
        sizes[u] = 0;
        if (i >= behind) continue;
        const uint32_t e = by_ranks.quotient(i), r = i - e * v.ranks;
        const int32_t* const offsets = v.coming(v.rank, r);
        const uint32_t first = load_word(offsets), there = v.fitting(load_word(offsets + e), first),
                       end = v.fitting(load_word(offsets + e + 1), first);
        shared.there[i] = there;
        if (e + 1 == v.experts) shared.ends[r] = end;
        sizes[u] = end - there;
        sum += sizes[u];
    }
    const uint32_t up_to = sum_up_to(sum);
    if (ptx::lane() == kWarpSize - 1) shared.sums[warp] = up_to;
    __syncthreads();  // the warps' sums are there
    uint32_t here = up_to - sum;
    for (uint32_t w = 0; w < warp; ++w) here += shared.sums[w];
    if (begin == 0) shared.here[0] = 0;
#pragma unroll
    for (uint32_t u = 0; u < kEach; ++u) {
        here += sizes[u];
        if (begin + u < behind) shared.here[begin + u + 1] = here;
    }
}

/// What this rank has for each other, whether it fits or not, and its offsets for experts there. One CTA.
template <PeersConfig C>
__device__ void publish(const PullParams& p, uint32_t generation, bool given_up) {
    const PeerView& v = p.peers;
    const int32_t* const offsets = v.at<int32_t>(v.rank, v.places.offsets);
    for (uint32_t i = threadIdx.x; i < v.ranks * (v.experts + 1) && !given_up; i += C.threads()) {
        const uint32_t e = p.by_ranks.quotient(i), r = i - e * v.ranks;
        ptx::store_global(v.coming(r, v.rank) + e, load_word(offsets + r * v.experts + e));
    }
    for (uint32_t r = threadIdx.x; r < v.ranks; r += C.threads()) {
        const int32_t* const of_rank = offsets + r * v.experts;
        ptx::store_global(p.counts + r, load_word(of_rank + v.experts) - load_word(of_rank));
    }
    __syncthreads();  // offsets have been written
    if (threadIdx.x < kWarpSize) tell_all(v, &PeerHeader::ready, peer_word(generation, given_up ? kGaveUp : v.tokens));
}

/// Rank number i in the order in which this one goes through them.
__device__ inline uint32_t rank_of_turn(const PeerView& v, uint32_t i) {
    return v.rank + i < v.ranks ? v.rank + i : v.rank + i - v.ranks;
}

/// How many tokens each rank has, in the order in which this one goes through them, and the most.
template <PeersConfig C>
__device__ void find_tokens(const PeerView& v, PeersShared& shared) {
    for (uint32_t turn = threadIdx.x; turn < v.ranks; turn += C.threads())
        shared.tokens[turn] = said_by(ptx::load_acquire_system(&v.header(v.rank)->ready[rank_of_turn(v, turn)]));
}

/// 16 bytes of each lane, several times: what a warp has of a row.
struct PeerChunk {
    static constexpr uint32_t kVectors = PeersConfig::chunk_bytes() / (kWarpSize * 16);
    ptx::Words4 vectors[kVectors];

    __device__ static uint32_t place(uint32_t byte, uint32_t u) { return byte + (u * kWarpSize + ptx::lane()) * 16; }
    __device__ void load(const uint8_t* row, uint32_t byte, uint32_t bytes) {
#pragma unroll
        for (uint32_t u = 0; u < kVectors; ++u)
            vectors[u] = ptx::load_global_l2_x4_if(place(byte, u) < bytes, row + place(byte, u));
    }
    __device__ void store(uint8_t* row, uint32_t byte, uint32_t bytes) const {
#pragma unroll
        for (uint32_t u = 0; u < kVectors; ++u)
            ptx::store_global_x4_if(place(byte, u) < bytes, row + place(byte, u), vectors[u]);
    }
};

/// A chunk of a token's row to all experts here that it has chosen: it travels once. Tokens of all ranks alternate, so
/// that rows come over NVLink while others come from memory here.
__device__ inline void pull_chunk(const PullParams& p, const PeersShared& shared, uint32_t task) {
    constexpr uint32_t kBlocks = PeersConfig::chunk_bytes() / kScaleBlock;
    const PeerView& v = p.peers;
    const uint32_t one = p.by_chunks.quotient(task), token = p.by_ranks.quotient(one), turn = one - token * v.ranks;
    if (token >= shared.tokens[turn]) return;
    const uint32_t lane = ptx::lane(), from = rank_of_turn(v, turn), first = shared.there[from];
    const uint32_t byte = (task - one * p.by_chunks.divisor) * PeersConfig::chunk_bytes();
    const bool chooses = lane < v.k;
    const int32_t* const rows = v.at<int32_t>(from, v.places.inverse) + static_cast<int64_t>(token) * v.k;
    const uint32_t row = ptx::load_global_l2_if(chooses, rows + (chooses ? lane : 0));
    const bool wanted = chooses && row >= first && row < shared.ends[from];
    uint32_t left = ptx::ballot(wanted);
    if (left == 0) return;
    const uint8_t* const source = v.row(from, token);
    const uint32_t block = byte / kScaleBlock + lane;
    const bool scaled = lane < kBlocks && block < v.scale_blocks;
    const uint32_t scale =
        ptx::load_global_l2_if(scaled, source + align_up(v.value_bytes, 4) + (scaled ? block : 0) * 4);
    PeerChunk chunk;
    chunk.load(source, byte, v.value_bytes);
    uint32_t to = 0;
    if (wanted) {
        const uint32_t e = last_not_above(row, v.experts, [&](uint32_t i) { return shared.there[i * v.ranks + from]; });
        to = place_in_turn(shared.here + e * v.ranks, v.ranks, from, row - shared.there[e * v.ranks + from]);
        if (byte == 0) p.results[to] = reinterpret_cast<uint64_t>(v.result(from, row));
    }
    for (; left != 0; left &= left - 1) {
        const uint32_t place = ptx::value_of(to, ptx::lowest_bit(left));
        chunk.store(p.q + static_cast<int64_t>(place) * v.value_bytes, byte, v.value_bytes);
        ptx::store_global_if(scaled, p.scales + place + block * p.scale_col_stride, scale);
    }
}

/// Rows here for which other ranks have no place become NaN.
template <PeersConfig C>
__device__ void spoil_others(const PeerView& v, CtaOfRank<C> cta) {
    const int32_t* const offsets = v.at<int32_t>(v.rank, v.places.offsets);
    const ptx::Words4 nan{{~0u, ~0u, ~0u, ~0u}};
    for (uint32_t some = 0; some < v.ranks; some += kWarpSize) {
        const uint32_t r = some + ptx::lane();
        const int32_t* const of_rank = offsets + (r < v.ranks ? r : 0) * v.experts;
        const uint32_t first = load_word(of_rank), end = load_word(of_rank + v.experts);
        for (uint32_t full = ptx::ballot(r < v.ranks && end - first > v.capacity); full != 0; full &= full - 1) {
            const uint32_t lane = ptx::lowest_bit(full), last = ptx::value_of(end, lane);
            for (uint32_t row = ptx::value_of(first, lane) + v.capacity + cta.warp(); row < last; row += cta.warps())
                for (uint32_t byte = ptx::lane() * 16; byte < v.result_bytes; byte += kWarpSize * 16)
                    ptx::store_global_x4(v.result(v.rank, row) + byte, nan);
        }
    }
}

/// Where rows of experts here begin. A CTA may miss a rank that comes for another one at last: there are no rows then,
/// as places of some would not be known. Either the first CTA sees that it has, or its zeros are written last.
template <PeersConfig C>
__device__ void tell_numbers(const PullParams& p, const PeersShared& shared, CtaOfRank<C> cta, bool come) {
    const PeerView& v = p.peers;
    if (come && cta.index != 0) return;
    bool missed = !come;
    if (come) {
        for (uint32_t e = threadIdx.x; e <= v.experts; e += C.threads())
            ptx::store_global(p.numbers + e, shared.here[e * v.ranks]);
        ptx::fence_system();  // before it looks
        missed = ptx::load_acquire_system(v.missing) != 0;
    } else {
        ptx::fence_system();  // behind what says that a rank is missing
    }
    for (uint32_t e = threadIdx.x; missed && e <= v.experts; e += C.threads()) ptx::store_global(p.numbers + e, 0);
}

/// Tells all ranks that tokens here can be read, waits for all, and fetches rows for experts here. Where a rank is lost
/// they have none.
template <PeersConfig C>
__device__ void pull_rows(const PullParams& p, CtaOfRank<C> cta) {
    const PeerView& v = p.peers;
    PeersShared& shared = ptx::dynamic_shared_object<PeersShared>();
    ptx::grid_dependency_wait();
    const uint32_t generation = this_generation(v);
    const bool given_up = has_given_up(v, shared);
    if (cta.index == 0) publish<C>(p, generation, given_up);
    if (!given_up) spoil_others(v, cta);
    const bool come = !given_up && all_come(v, v.header(v.rank)->ready, generation, shared);
    // Not before: a kernel that waits for this one would take the room of what another rank waits for.
    ptx::grid_launch_dependents();
    if (come) {
        find_places<C>(v, p.by_ranks, shared);
        find_tokens<C>(v, shared);
        __syncthreads();  // places are known
    }
    tell_numbers(p, shared, cta, come);
    if (!come) return;
    uint32_t most = 0;
    for (uint32_t turn = 0; turn < v.ranks; ++turn) most = max(most, shared.tokens[turn]);
    const uint32_t tasks = most * v.ranks * p.by_chunks.divisor;
    for (uint32_t task = cta.warp_behind_first(); task < tasks; task += cta.warps()) pull_chunk(p, shared, task);
}

/// A chunk of a result to where it belongs.
__device__ inline void push_chunk(const PushParams& p, uint32_t row, uint32_t byte) {
    const uint32_t bytes = p.peers.result_bytes;
    PeerChunk chunk;
    chunk.load(p.y + static_cast<int64_t>(row) * bytes, byte, bytes);
    chunk.store(reinterpret_cast<uint8_t*>(p.results[row]), byte, bytes);
}

/// Whether all CTAs of the rank have ended, but for this one, which has seen what they have written.
__device__ inline bool ends_last(const PeerView& v, uint32_t ctas, PeersShared& shared) {
    __syncthreads();  // the CTA has written
    if (ctas == 1) return true;
    if (threadIdx.x == 0) {
        ptx::fence_system();  // for the word that the last CTA tells
        shared.last = atomicAdd(&v.header(v.rank)->ended, 1u) + 1 == ctas;
        ptx::fence_system();  // the others' were before their counts
    }
    __syncthreads();  // thread 0 has counted
    return shared.last != 0;
}

/// Sends results to their ranks, unless the product has stored them there. Then the last CTA tells all, waits for all,
/// and ends the call.
template <PeersConfig C>
__device__ void push_rows(const PushParams& p, CtaOfRank<C> cta) {
    const PeerView& v = p.peers;
    PeerHeader* const own = v.header(v.rank);
    PeersShared& shared = ptx::dynamic_shared_object<PeersShared>();
    ptx::grid_dependency_wait();
    const uint32_t generation = this_generation(v);
    const bool given_up = has_given_up(v, shared);
    if (!given_up && p.y) {
        const uint32_t rows = load_word(p.numbers + v.experts);
        for (uint32_t task = cta.warp(); task < rows * p.by_chunks.divisor; task += cta.warps()) {
            const uint32_t row = p.by_chunks.quotient(task);
            push_chunk(p, row, (task - row * p.by_chunks.divisor) * PeersConfig::chunk_bytes());
        }
    }
    if (!ends_last(v, cta.count, shared)) return;
    if (threadIdx.x < kWarpSize) tell_all(v, &PeerHeader::returned, peer_word(generation, given_up ? kGaveUp : 0));
    if (!given_up) all_come(v, own->returned, generation, shared);
    if (threadIdx.x == 0) {
        ptx::store_global(&own->ended, 0);
        ptx::store_global(&own->generation, generation);
    }
}

}  // namespace finegemm::device
