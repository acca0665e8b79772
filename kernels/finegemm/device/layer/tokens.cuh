// Rows of tokens for experts: which there are, and what is in them. Layer device.
#pragma once

#include <finegemm/device/layer/shared.cuh>
#include <finegemm/device/ptx/tma.cuh>
#include <finegemm/device/quantize.cuh>
#include <finegemm/device/routing/choices.cuh>
#include <finegemm/device/swiglu.cuh>

namespace finegemm::device {

/// Choices of a lane: those of its number, and 32 further on.
struct LaneChoices {
    static constexpr uint32_t kCount = LayerConfig::kMostChoices / kWarpSize;
    uint32_t expert[kCount];
    float weight[kCount];

    __device__ static LaneChoices load(const LayerParams& p) {
        LaneChoices of;
#pragma unroll
        for (uint32_t u = 0; u < kCount; ++u) {
            const uint32_t number = ptx::lane() + u * kWarpSize;
            const bool exists = number < p.route.choices;
            const Choice choice = load_choice(p.route, number, exists);
            of.expert[u] = choice.expert;
            const int64_t at = exists ? choice.token * p.weight_row_stride + choice.slot : 0;
            of.weight[u] = float_of_bits(ptx::load_global_if(exists, p.weights + at));
        }
        return of;
    }
    __device__ uint32_t expert_of(uint32_t number) const {
        return ptx::value_of(number < kWarpSize ? expert[0] : expert[1], number % kWarpSize);
    }
};

/// Finds rows of choices, as route does, and lists groups of them: by a warp.
template <LayerConfig C>
__device__ void list_groups(const LayerRole<C>& role, const LaneChoices& mine) {
    LayerShared<C>& shared = role.shared;
    const uint32_t choices = role.p.route.choices, experts = role.p.route.places.experts;
    uint32_t row[LaneChoices::kCount] = {}, rank[LaneChoices::kCount] = {}, same[LaneChoices::kCount] = {};
#pragma unroll 1
    for (uint32_t j = 0; j < choices; ++j) {
        const uint32_t other = mine.expert_of(j);
#pragma unroll
        for (uint32_t u = 0; u < LaneChoices::kCount; ++u) {
            const bool before = j < ptx::lane() + u * kWarpSize, alike = other == mine.expert[u];
            row[u] += other < mine.expert[u] || (alike && before) ? 1 : 0;
            rank[u] += alike && before ? 1 : 0, same[u] += alike ? 1 : 0;
        }
    }
    uint32_t leaders = 0, group[LaneChoices::kCount] = {};
#pragma unroll
    for (uint32_t u = 0; u < LaneChoices::kCount; ++u) {
        const bool leads = mine.expert[u] < experts && rank[u] % C.rows == 0;
        const uint32_t among = ptx::ballot(leads);
        leaders += ptx::count_bits(among);
#pragma unroll 1
        for (uint32_t left = among; left != 0; left &= left - 1) {
            const uint32_t other = ptx::value_of(row[u], ptx::lowest_bit(left));
#pragma unroll
            for (uint32_t v = 0; v < LaneChoices::kCount; ++v) group[v] += other < row[v] ? 1 : 0;
        }
    }
#pragma unroll
    for (uint32_t u = 0; u < LaneChoices::kCount; ++u) {
        const uint32_t number = ptx::lane() + u * kWarpSize;
        const bool has_row = mine.expert[u] < experts;
        if (has_row && rank[u] % C.rows == 0)
            shared.group[group[u]] = {static_cast<uint16_t>(mine.expert[u]), static_cast<uint16_t>(row[u]),
                                      static_cast<uint16_t>(min(C.rows, same[u] - rank[u]))};
        if (has_row) shared.choices[row[u]] = number;
        shared.rows[number] = has_row ? row[u] : static_cast<uint32_t>(kNoRow);
        shared.weights[number] = mine.weight[u];
    }
    if (ptx::lane() == 0) shared.groups = leaders;
}

/// What a warp has of a token, in codes.
struct TokenChunk {
    static constexpr QuantizeConfig kQuantize{QuantizeInput::BF16};
    static_assert(LayerParams::kChunk == kWarpSize * kQuantize.vector());
    Values<kQuantize>::Codes codes;
    float scale;

    __device__ static TokenChunk load(const LayerParams& p, uint32_t task) {
        const uint32_t token = p.by_chunks.quotient(task), col = col_of(p, task);
        const bool exists = task < p.tasks && col < p.hidden;
        Values<kQuantize> values;
        values.words = ptx::load_global_x4_if(exists, p.x + (exists ? token * p.x_row_stride + col * 2 : 0));
        const uint32_t most = largest_of(values.largest(), kQuantize.lanes());
        const float scale = block_scale_of(float_of_bits(most), p.power_of_two != 0);
        return {values.codes(PtxMath::reciprocal(scale)), scale};
    }
    /// Stores it to all rows of its token, of one without rows the sum, which is zero. `rows`: of choices; that of the
    /// only token is the first, which serves all experts, and is needed before rows are known.
    __device__ void store(const LayerParams& p, const uint32_t* rows, uint32_t task) const {
        const uint32_t token = p.by_chunks.quotient(task), col = col_of(p, task);
        const bool exists = col < p.hidden, one = p.tokens == 1;
        bool none = exists && !one;
#pragma unroll 1
        for (uint32_t c = 0; c < (one ? p.copies : p.k); ++c) {
            const uint32_t row = one ? c : rows[token * p.k + c];
            const bool wanted = exists && row != static_cast<uint32_t>(kNoRow);
            none = none && !wanted;
            const int64_t to = wanted ? row : 0;
            ptx::store_global_x2_if(wanted, p.q + to * p.hidden + col, codes.w[0], codes.w[1]);
            ptx::store_global_if(wanted && ptx::lane() % kQuantize.lanes() == 0,
                                 p.q_scales + to * p.hidden_blocks() + col / kScaleBlock, float_bits(scale));
        }
        ptx::store_global_x4_if(none, p.out + token * p.out_row_stride + col * 2, ptx::Words4{});
    }

private:
    __device__ static uint32_t col_of(const LayerParams& p, uint32_t task) {
        const uint32_t chunk = task - p.by_chunks.quotient(task) * p.by_chunks.divisor;
        return chunk * p.kChunk + ptx::lane() * kQuantize.vector();
    }
};

/// Tasks are claimed, so that nobody waits for a CTA that does not run. `chunk`: of the first one.
template <LayerConfig C>
__device__ void store_tokens(const LayerRole<C>& role, TokenChunk chunk) {
    const LayerParams& p = role.p;
    const uint32_t warp = threadIdx.x / kWarpSize;
    for (uint32_t first = role.shared.first_task;;) {
        if (first + warp < p.tasks) {
            chunk.store(p, role.shared.rows, first + warp);
            ptx::fence_proxy_async();  // TMA reads what has been stored
            __syncwarp();
            if (ptx::lane() == 0) ptx::add_release(role.counters + LayerCounters::kTokens, 1);
        }
        if (first + C.kMathWarps >= p.tasks) return;  // none are left
        ptx::named_barrier_sync(kMathBarrier, C.math_threads());
        if (threadIdx.x == 0)
            role.shared.first_task = ptx::add_relaxed(role.counters + LayerCounters::kTasks, C.kMathWarps);
        ptx::named_barrier_sync(kMathBarrier, C.math_threads());
        first = role.shared.first_task;
        chunk = TokenChunk::load(p, first + warp);
    }
}

}  // namespace finegemm::device
