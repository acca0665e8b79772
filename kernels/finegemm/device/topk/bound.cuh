// The kth largest of many words, by counting how many are not less than others. Layer device.
#pragma once

#include <finegemm/device/topk/own_words.cuh>
#include <finegemm/device/topk/row.cuh>

namespace finegemm::device {

/// Sorts the words that the lanes of a warp have, the largest first, by a bitonic network.
__device__ inline uint32_t sort_in_warp(uint32_t x) {
    const uint32_t lane = ptx::lane();
#pragma unroll
    for (uint32_t size = 2; size <= kWarpSize; size *= 2)
#pragma unroll
        for (uint32_t distance = size / 2; distance > 0; distance /= 2) {
            const uint32_t across = distance == size / 2 ? size - 1 : distance;  // mirrored first
            const uint32_t y = ptx::shuffle_xor(x, across);
            x = (lane & distance) == 0 ? max(x, y) : min(x, y);
        }
    return x;
}

/// Two words between which the kth largest of `numbers` is, mostly: each warp tells what it takes for them from its
/// sample, and of what they tell the median is taken.
__device__ inline TopkPair guess(TopkRowShared& shared, uint32_t word, uint32_t k, uint32_t numbers) {
    static_assert(kTopkRowWarps == 8);
    const uint32_t lane = ptx::lane(), warp = threadIdx.x / kWarpSize;
    const uint32_t sorted = sort_in_warp(word);
    // Away from the rank by 2.5 standard deviations that it has in the samples of all warps, about.
    const float rank = static_cast<float>(k) * kWarpSize * ptx::rough_reciprocal(static_cast<float>(numbers));
    const float end = fminf(rank, fmaxf(kWarpSize - rank, 0.0f));
    const float wide = fminf(0.25f + 0.6f * end, 1.5f + 0.08f * end);
    const float first = fmaxf(rank - wide - 0.5f, 0.0f), last = fminf(rank + wide + 0.5f, kWarpSize - 1.0f);
    const uint32_t x = ptx::value_of(sorted, static_cast<uint32_t>(first));
    const uint32_t y = ptx::value_of(sorted, static_cast<uint32_t>(last));
    if (lane == 0) shared.told[0][warp] = x, shared.told[1][warp] = y;
    __syncthreads();  // all have told
    const uint32_t told = shared.told[lane / 8 % 2][lane % 8];
    uint32_t above = 0;
#pragma unroll
    for (uint32_t i = 0; i < kTopkRowWarps; ++i) {
        const uint32_t other = ptx::value_of(told, (lane & 8) + i);
        above += other > told || (other == told && i < lane % 8) ? 1 : 0;
    }
    const uint32_t medians = ptx::ballot(above == kTopkRowWarps / 2);
    return {ptx::value_of(told, ptx::lowest_bit(medians)), ptx::value_of(told, ptx::lowest_bit(medians & 0xff00))};
}

/// Sums over the threads of a CTA; calls take turns. Those of what is kept are less than 2^16.
template <bool Small>
__device__ void sum_of_cta(TopkRowShared& shared, uint32_t turn, uint32_t& x, uint32_t& y) {
    const uint32_t lane = ptx::lane(), warp = threadIdx.x / kWarpSize;
    if (Small) {
        const uint32_t own = ptx::sum_of_lanes(x | y << 16);
        if (lane == 0) shared.sums[turn][warp].x = own;
        __syncthreads();  // the warps' sums are there
        const uint32_t all = ptx::sum_of_lanes(lane < kTopkRowWarps ? shared.sums[turn][lane].x : 0);
        x = all & 0xffff, y = all >> 16;
        return;
    }
    x = ptx::sum_of_lanes(x), y = ptx::sum_of_lanes(y);
    if (lane == 0) shared.sums[turn][warp] = {x, y};
    __syncthreads();  // the warps' sums are there
    const TopkPair sums = shared.sums[turn][lane % kTopkRowWarps];
    x = ptx::sum_of_lanes(lane < kTopkRowWarps ? sums.x : 0), y = ptx::sum_of_lanes(lane < kTopkRowWarps ? sums.y : 0);
}

/// Words among which the kth largest is: from `low` to `top`.
struct TopkBracket {
    uint32_t low, top;
    uint32_t from, above;          // how many words are not less than `low`, and how many are more than `top`
    uint32_t own_from, own_above;  // of this thread

    __device__ uint32_t width() const { return top - low; }
    __device__ uint32_t inside() const { return from - above; }
    /// `count` words are not less than x, which is above `low`.
    __device__ void narrow(uint32_t k, uint32_t x, uint32_t count, uint32_t own) {
        if (count >= k) {
            if (x > low) low = x, from = count, own_from = own;
        } else if (x <= top) top = x - 1, above = count, own_above = own;
    }
    __device__ uint32_t clamp(uint32_t x) const { return min(max(x, low + 1), top); }
    /// A word that about this share of those inside are above: of keys of numbers these are taken as evenly spread.
    __device__ uint32_t at(float share) const {
        share = fminf(fmaxf(share, 0.0f), 1.0f);
        const float first = number_of_key(top), span = first - number_of_key(low);
        if (span < 3e38f) return key_of_word(float_bits(first - span * share));
        return top - min(static_cast<uint32_t>(fminf(static_cast<float>(width()) * share, 4.2e9f)), width());
    }
};

/// Finds the bound among up to kTopkPicked words, of which the `wanted`th largest is.
__device__ inline TopkBound find_picked(TopkRowShared& shared, uint32_t count, uint32_t wanted) {
    __syncthreads();  // all words are there
    if (threadIdx.x < count) {
        const uint32_t word = shared.few[threadIdx.x];
        uint32_t above = 0, equal = 0;
#pragma unroll 4
        for (uint32_t i = 0; i < count; ++i) {
            const uint32_t other = shared.few[i];
            above += other > word ? 1 : 0, equal += other == word ? 1 : 0;
        }
        if (above < wanted && wanted <= above + equal) shared.bound = {word, wanted - above, above + equal - wanted};
    }
    __syncthreads();  // it has been found
    return shared.bound;
}

/// One word of each thread.
struct TopkOneWord {
    static constexpr bool kSmall = true;
    uint32_t word;

    __device__ void count(uint32_t x, uint32_t y, uint32_t& of_x, uint32_t& of_y) const {
        of_x = word >= x ? 1 : 0, of_y = word >= y ? 1 : 0;
    }
};

/// Narrows a bracket until so few are inside, from two words of it on; `others`: words above it that are not looked at.
/// True where that says what the bound is.
template <typename Words>
__device__ bool narrow(TopkRowShared& shared, const Words& words, uint32_t others, uint32_t k, uint32_t slack,
                       uint32_t most, float change, TopkPair from, TopkBracket& in, TopkBound& bound) {
    uint32_t x = from.x, y = from.y;
#pragma unroll 1
    for (uint32_t turn = 0;; turn ^= 1) {
        uint32_t own_x, own_y;
        x = in.clamp(x), y = in.clamp(y);
        words.count(x, y, own_x, own_y);
        uint32_t of_x = own_x, of_y = own_y;
        sum_of_cta<Words::kSmall>(shared, turn, of_x, of_y);
        const uint32_t last_inside = in.inside();
        in.narrow(k, x, of_x + others, own_x), in.narrow(k, y, of_y + others, own_y);
        bound = {in.low, 0, 0};
        if (in.from - k <= slack) return true;
        bound = {in.low, k - in.above, in.from - k};
        if (in.low == in.top) return true;
        const uint32_t inside = in.inside();
        if (inside <= most) return false;
        if (inside > last_inside / 2 && turn == 1) {  // many equal ones, or far away
            x = in.low + 1, y = in.low + (in.width() + 1) / 2;
        } else if (in.top == ~0u && x > y) {
            const uint32_t gap = min(x - y, in.width() / 8);
            y = in.low + 2 * gap, x = in.low + 4 * gap;
        } else {
            // Two standard deviations of a rank among those inside, and what densities change from one end to the
            // other.
            const float each = ptx::rough_reciprocal(static_cast<float>(inside)),
                        share = static_cast<float>(k - in.above) * each;
            const float near = 1.2f * ptx::square_root(each) + change * static_cast<float>(inside);
            x = in.at(share - near), y = in.at(share + near);
        }
    }
}

/// Finds the kth largest of words, of which so many are not 0; or one that at most k + slack are not less than, of
/// which no equal ones are told.
template <typename Words>
__device__ TopkBound find_bound(TopkRowShared& shared, const Words& words, uint32_t numbers, uint32_t k,
                                uint32_t slack) {
    if (threadIdx.x == 0) shared.gathered[0] = 0, shared.gathered[1] = 0;
    TopkBracket in{0, ~0u, words.total(), 0, words.own(), 0};
    TopkPair from = guess(shared, words.sample(), k, numbers);
    from.x = min(from.x, ~1u) + 1;
    const float change = 0.23f * ptx::rough_reciprocal(static_cast<float>(numbers));
    TopkBound bound;
    if (narrow(shared, words, 0, k, slack, kTopkRowThreads, change, from, in, bound)) return bound;
    const uint32_t own = in.own_from - in.own_above, up_to = sum_up_to(own);
    uint32_t place = 0;
    if (ptx::lane() == kWarpSize - 1 && up_to > 0) place = atomicAdd(&shared.gathered[0], up_to);
    place = ptx::value_of(place, kWarpSize - 1) + up_to - own;
    words.gather(in.low, in.width(), ptx::smem_address(&shared.picked[place]));
    __syncthreads();  // all are there
    const uint32_t word = threadIdx.x < in.inside() ? shared.picked[threadIdx.x] : 0;
    if (in.inside() > kTopkPicked) {
        const float each = ptx::rough_reciprocal(static_cast<float>(in.inside())),
                    share = static_cast<float>(k - in.above) * each;
        const float near = ptx::square_root(each) + 0.01f;
        const TopkOneWord one{word};
        if (narrow(shared, one, in.above, k, slack, kTopkPicked, change, {in.at(share - near), in.at(share + near)}, in,
                   bound))
            return bound;
    }
    if (word - in.low <= in.width() && word != 0) shared.few[atomicAdd(&shared.gathered[1], 1u)] = word;
    return find_picked(shared, in.inside(), k - in.above);
}

}  // namespace finegemm::device
