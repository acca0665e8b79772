// From products of keys and queries to logits. Layer device.
#pragma once

#include <finegemm/core/wgmma_desc.h>
#include <finegemm/device/mqa/shared.cuh>
#include <finegemm/device/ptx/convert.cuh>
#include <finegemm/device/ptx/fragment.cuh>
#include <finegemm/device/ptx/wgmma.cuh>

namespace finegemm::device {

/// K of a product.
template <uint32_t Dim>
struct Depth {};
template <uint32_t R>
__device__ void start_product(Depth<32>, float (&x)[R], uint64_t a, uint64_t b) {
    ptx::wgmma_k32_fp8(x, a, b);
}
template <uint32_t R>
__device__ void start_product(Depth<64>, float (&x)[R], uint64_t a, uint64_t b) {
    ptx::wgmma_k64_fp8(x, a, b);
}
template <uint32_t R>
__device__ void start_product(Depth<128>, float (&x)[R], uint64_t a, uint64_t b) {
    ptx::wgmma_k128(x, a, b);
}

/// In a lane: keys `lane / 4` and eight behind that, of the sixteen of its warp, times the first `Columns`.
template <MqaConfig C, uint32_t Columns = C.columns()>
struct MqaProduct {
    static constexpr uint32_t kRegisters = Columns / 2, kQueries = min(Columns / C.heads, C.queries());
    float x[kRegisters];

    /// Column octet `octet`, of which a lane has two columns; key `half` of the two.
    __device__ float at(uint32_t octet, uint32_t half, uint32_t e) const { return x[4 * octet + 2 * half + e]; }

    /// The half of a descriptor that depends on the address. It counts sixteen bytes.
    __device__ static uint32_t place_of(SmemAddr rows) {
        return static_cast<uint32_t>(wgmma_descriptor_of_rows(rows.bits, C.dim));
    }
    __device__ void start(uint32_t keys, uint32_t queries) {
        constexpr uint64_t kUpper = wgmma_descriptor_of_rows(0, C.dim) >> 32 << 32;
        ptx::wgmma_fence();
        start_product(Depth<C.dim>(), x, kUpper | keys, kUpper | queries);
        ptx::wgmma_commit_group();
    }
    /// Other warpgroups use the tensor cores, or add up, meanwhile.
    __device__ void finish() {
        ptx::wgmma_wait_group<0>();
#pragma unroll
        for (uint32_t r = 0; r < kRegisters; ++r) ptx::pin(x[r]);
    }
};

/// Weights of a lane's columns: two of each octet.
struct MqaWeights {
    static constexpr uint32_t kOctets = kMqaColumns / 8;
    float w[2 * kOctets];

    __device__ void load(SmemAddr from) {
#pragma unroll
        for (uint32_t octet = 0; octet < kOctets; ++octet) {
            const ptx::Float2 two = ptx::load_shared_x2(from + (octet * 8 + threadIdx.x % 4 * 2) * 4);
            w[2 * octet] = two.part[0], w[2 * octet + 1] = two.part[1];
        }
    }
};

__device__ inline float shuffled(float x, uint32_t mask) {
    return float_of_bits(ptx::shuffle_xor(float_bits(x), mask));
}

/// Steps of the linear part: which queries take the abs form, and the step of the lane's own.
template <MqaConfig C>
struct MqaSteps {
    uint32_t mask = 0;
    float own = 0;

    __device__ void load(const MqaShared<C>& smem, uint32_t slot) {
        if (C.form == MqaForm::Exact) return;
        mask = 0;
        for (uint32_t q = 0; q < C.queries(); ++q) mask |= ptx::load_shared(smem.step(slot, q)) > 0 ? 1u << q : 0;
        mask = ptx::broadcast(mask);
        own = ptx::load_shared(smem.step(slot, threadIdx.x % 4 * C.queries() / 4));
    }
    __device__ bool abs(uint32_t query) const { return (mask >> query & 1) != 0; }
    __device__ bool all_abs() const { return mask == (1u << C.queries()) - 1; }
};

/// What a lane has of sums: of some queries, for one key or for two.
template <MqaConfig C>
struct MqaSums {
    static constexpr uint32_t kQueries = C.queries() > 4 ? C.queries() / 4 : 1;
    static constexpr uint32_t kHalves = C.queries() > 2 ? 2 : 1;
    float partial[C.queries() * 2];  // of all queries, for two keys: what this lane's heads give
    float linear[2][2];              // of the abs form: the additional columns of this lane, for two keys
    float sum[kQueries * kHalves];

    /// The first of its queries: lanes of a quad have different ones, of two queries two lanes each.
    __device__ static uint32_t query() { return threadIdx.x % 4 * C.queries() / 4; }
    /// The key, among those of the tile.
    __device__ static uint32_t key(uint32_t half) {
        const uint32_t which = kHalves == 2 ? half : threadIdx.x % 2;
        return threadIdx.x % 128 / kWarpSize * 16 + threadIdx.x % kWarpSize / 4 + which * 8;
    }

    /// Where among the keys of a tile those of a lane begin; told once, by an instruction that is not repeated.
    __device__ static uint32_t first_key() { return ptx::value_of(key(0), ptx::lane()); }

    /// Over the lane's heads, in the order of mqa/arithmetic.h.
    /// `queries`: how many exist. Requests may have few: then others take no time.
    template <uint32_t Columns>
    __device__ void add_up(const MqaProduct<C, Columns>& product, const MqaWeights& weights, const MqaSteps<C>& steps,
                           uint32_t queries) {
        constexpr uint32_t kAll = MqaProduct<C, Columns>::kQueries;
#pragma unroll
        for (float& x : partial) x = 0.0f;
        if (C.form == MqaForm::Abs)
            for (uint32_t half = 0; half < 2; ++half)
                for (uint32_t e = 0; e < 2; ++e) linear[half][e] = product.at(MqaWeights::kOctets, half, e);
        if (C.form == MqaForm::Abs && steps.all_abs()) {  // without branches, so that sums of all queries overlap
#pragma unroll
            for (uint32_t q = 0; q < kAll; ++q) add_heads<ptx::magnitude>(product, weights, q);
        } else {
#pragma unroll
            for (uint32_t q = 0; q < kAll; ++q) {
                if (q >= queries) continue;
                if (C.form == MqaForm::Abs && steps.abs(q)) add_heads<ptx::magnitude>(product, weights, q);
                else add_heads<ptx::relu>(product, weights, q);
            }
        }
    }
    /// Over all heads. Lanes exchange what the other one goes on with: each ends with sums of its own, which takes
    /// fewer shuffles than if all had all.
    __device__ void exchange(const MqaSteps<C>& steps) {
        constexpr uint32_t kAll = C.queries();
        const uint32_t lane = ptx::lane();  // from threadIdx, one kernel would spill
        // The upper half of what is left, queries or at last keys, is for the lane whose number has the bit.
#pragma unroll
        for (uint32_t i = 0; i < kAll; ++i) partial[i] = taken<2>(lane, partial[i], partial[i + kAll]);
#pragma unroll
        for (uint32_t i = 0; i < kAll / 2; ++i) sum[i] = taken<1>(lane, partial[i], partial[i + kAll / 2]);
        if (C.form == MqaForm::Abs) add_linear_part(steps.own);
    }

private:
    /// This lane's heads of a query.
    template <float (*Term)(float), typename Product>
    __device__ void add_heads(const Product& product, const MqaWeights& weights, uint32_t query) {
        constexpr uint32_t kOctets = C.heads / 8;
#pragma unroll
        for (uint32_t i = 0; i < 2 * kOctets; ++i)
#pragma unroll
            for (uint32_t half = 0; half < 2; ++half)
                partial[2 * query + half] = ptx::fma(Term(product.at(query * kOctets + i / 2, half, i % 2)),
                                                     weights.w[2 * query * kOctets + i], partial[2 * query + half]);
    }
    /// The sum of this lane's and of another's, of `b` in lanes whose number has the bit, else of `a`.
    template <uint32_t Bit>
    __device__ static float taken(uint32_t lane, float a, float b) {
        const bool takes_b = (lane & Bit) != 0;
        return ptx::add(takes_b ? b : a, shuffled(takes_b ? a : b, Bit));
    }
    /// This lane has the columns of its one query.
    __device__ void add_linear_part(float step) {
#pragma unroll
        for (uint32_t half = 0; half < kHalves; ++half) {
            float y[2];
#pragma unroll
            for (uint32_t e = 0; e < 2; ++e) {
                y[e] = (kHalves == 2 ? half == 1 : threadIdx.x % 2 == 1) ? linear[1][e] : linear[0][e];
            }
            const float with = ptx::fma(ptx::fma(y[1], kResidualStep, y[0]), step, sum[half]);
            sum[half] = step > 0 ? with : sum[half];
        }
    }
};

/// Where the logits of a lane go. Read after sums have left their registers, and before lanes have exchanged them.
template <MqaConfig C>
struct MqaRows {
    ptx::Words4 of_query[MqaSums<C>::kQueries];  // an MqaRow

    __device__ MqaRows(const MqaShared<C>& smem, uint32_t slot, uint32_t part) {
#pragma unroll
        for (uint32_t q = 0; q < MqaSums<C>::kQueries; ++q)
            of_query[q] = ptx::load_shared_words_x4(smem.window(slot, part * C.queries() + MqaSums<C>::query() + q));
    }
};

/// Stores the logits of a lane for a tile. `Bf16`: their type.
template <bool Bf16, MqaConfig C>
__device__ void store_logits(const MqaRows<C>& rows, const MqaSums<C>& sums, const float (&scales)[MqaSums<C>::kHalves],
                             uint32_t key) {
#pragma unroll
    for (uint32_t q = 0; q < MqaSums<C>::kQueries; ++q) {
        const ptx::Words4& row = rows.of_query[q];
        uint8_t* const logits =
            reinterpret_cast<uint8_t*>(static_cast<uint64_t>(row.w[1]) << 32 | static_cast<uint64_t>(row.w[0]));
#pragma unroll
        for (uint32_t half = 0; half < MqaSums<C>::kHalves; ++half) {
            const uint32_t at = key + half * 8;
            const bool seen = at - row.w[2] < row.w[3];
            const float logit = ptx::multiply(sums.sum[q * MqaSums<C>::kHalves + half], scales[half]);
            if (Bf16)
                ptx::store_global_half_if(seen, logits + 2ull * at,
                                          static_cast<uint16_t>(ptx::pack_bf16(logit, logit)));
            else ptx::store_global_if(seen, logits + 4ull * at, float_bits(logit));
        }
    }
}

/// The role of a math warpgroup: all tiles of its ring, by all queries of a portion or by those of its part.
template <MqaConfig C>
class MqaScores {
public:
    __device__ MqaScores(const MqaParams& p, const MqaShared<C>& smem, uint32_t warpgroup)
        : p_(p),
          smem_(smem),
          rings_(MqaRings<C>::of(p, smem)),
          ring_(warpgroup >> rings_.sharers_log2),
          part_(warpgroup & (rings_.sharers() - 1)),
          first_key_(MqaSums<C>::first_key()),
          keys_(ptx::broadcast(MqaProduct<C>::place_of(smem.keys(rings_.stage_of(ring_, 0))))) {}

    __device__ void run() {
        const uint32_t before = part_ * C.queries();
        const uint32_t count = C.keys == MqaKeys::Rows ? C.queries() : p_.item_queries - min(before, p_.item_queries);
        while (true) {
            MqaTile tile = next();
            // A slot may be left only when it has been filled: else its barrier would count this for the queries
            // before.
            for (; portion_ < tile.portion; ++portion_) {
                const auto left = MqaSlot<C>::of(p_, portion_);
                wait(smem_.queries_full(left.first), left.parity);
                ptx::mbarrier_arrive(smem_.queries_empty(left.first));
            }
            if (tile.stage == MqaStage::End) [[unlikely]]
                break;
            if (tile.stage == MqaStage::Portion || count == 0) {  // of three parts a warpgroup has none
                ptx::mbarrier_arrive(smem_.empty(stage()));
                at_.advance(rings_.stages());
            } else if (count * 2 > C.queries()) {
                score_portion<C.columns()>(tile, count);
            } else {
                score_portion<C.few_columns()>(tile, count);
            }
        }
    }

private:
    __device__ uint32_t stage() const { return rings_.stage_of(ring_, at_.stage); }
    /// What the next stage of the ring holds, when it does.
    __device__ MqaTile next() const {
        wait(smem_.full(stage()), at_.parity);
        const ptx::Float2 told = ptx::load_shared_x2(smem_.tile(stage()));
        return MqaTile::of(float_bits(told.part[0]), ptx::broadcast(float_bits(told.part[1])));
    }

    /// All tiles of a portion that follow one another in the ring, by so many queries in the first `Columns`.
    template <uint32_t Columns>
    __device__ void score_portion(MqaTile tile, uint32_t count) {
        const auto slot = MqaSlot<C>::of(p_, portion_);
        if (C.form == MqaForm::Abs) wait(smem_.queries_in(slot.first), slot.parity);
        wait(smem_.queries_full(slot.first), slot.parity);
        MqaWeights weights;
        weights.load(smem_.weights(slot.first + part_));
        MqaSteps<C> steps;
        steps.load(smem_, slot.first);
        const uint32_t queries = ptx::broadcast(MqaProduct<C>::place_of(smem_.queries(slot.first + part_)));
        const uint32_t of_portion = MqaTile{0, portion_, MqaStage::Keys}.word();
        do {
            MqaProduct<C, Columns> product;
            product.start(keys_ + at_.stage * (MqaShared<C>::kAt.keys_stage / 16), queries);
            float scales[MqaSums<C>::kHalves];
#pragma unroll
            for (uint32_t half = 0; half < MqaSums<C>::kHalves; ++half)
                scales[half] = ptx::load_shared(smem_.scales(stage()) + (first_key_ + half * 8) * 4);
            product.finish();
            uint32_t loaded = 0;
#pragma unroll
            for (const float scale : scales) loaded |= float_bits(scale);
            ptx::mbarrier_arrive_having(smem_.empty(stage()), loaded);
            MqaSums<C> sums;
            sums.add_up(product, weights, steps, count);
            const MqaRows<C> rows(smem_, slot.first, part_);
            sums.exchange(steps);
            if (p_.bf16) store_logits<true>(rows, sums, scales, tile.key + first_key_);
            else store_logits<false>(rows, sums, scales, tile.key + first_key_);
            at_.advance(rings_.stages());
            tile = next();
        } while (tile.word() == of_portion);
    }

    const MqaParams& p_;
    const MqaShared<C>& smem_;
    MqaRings<C> rings_;
    uint32_t ring_, part_, first_key_;
    uint32_t keys_;  // where the ring's first stage lies, as a descriptor has it
    MqaCursor at_;
    uint32_t portion_ = 0;
};

}  // namespace finegemm::device
