// The warps that load: one for the ring of each math warpgroup, which knows nothing of the others; and by turns the
// queries of a portion. Layer device.
#pragma once

#include <finegemm/core/tma_box.h>
#include <finegemm/device/mqa/fill.cuh>
#include <finegemm/device/mqa/linear.cuh>
#include <finegemm/device/mqa/split.cuh>
#include <finegemm/device/ptx/fragment.cuh>

namespace finegemm::device {

/// Arrivals at the barrier of what is copied of a slot's queries: one of each lane when its weights have come, and one
/// that says how many bytes come; and at that of its queries one of each lane when it has stored what it has to. In the
/// exact form both barriers are one.
inline constexpr uint32_t kQueryCopies = kWarpSize + 1;
template <MqaConfig C>
inline constexpr uint32_t kQueryArrivals = kWarpSize + (C.form == MqaForm::Abs ? 0 : kQueryCopies);

/// What is told of a query, by one lane for each; of those that do not exist, that they see nothing.
template <MqaConfig C>
__device__ void store_windows(const MqaParams& p, const MqaShared<C>& smem, uint32_t slot, uint32_t item) {
    const uint32_t i = ptx::lane();
    if (i >= kMqaMostQueries) return;
    MqaWindow seen;
    uint64_t logits = 0;
    if (p.has_row(item, i)) {
        seen = p.window<C.keys>(item, i);
        const uint64_t before = p.compressed ? static_cast<uint64_t>(seen.begin) * p.element_bytes() : 0;
        logits = reinterpret_cast<uint64_t>(p.logits) + p.row(item, i) * p.logits_stride - before;
    }
    ptx::store_shared_words_x4(
        smem.window(slot, i),
        {static_cast<uint32_t>(logits), static_cast<uint32_t>(logits >> 32), seen.begin, seen.end - seen.begin});
}

/// Starts copies of the weights of all columns; 0 of queries that do not exist.
template <MqaConfig C>
__device__ void copy_weights(const MqaParams& p, const MqaShared<C>& smem, uint32_t slot, uint32_t item) {
    constexpr uint32_t kEach = kMqaColumns / kWarpSize;
    const uint32_t lane = ptx::lane();
#pragma unroll 1
    for (uint32_t part = 0; part < MqaSlot<C>::parts(p); ++part)
#pragma unroll
        for (uint32_t i = 0; i < kEach; ++i) {
            const uint32_t column = i * kWarpSize + lane, query = part * C.queries() + column / C.heads;
            const bool exists = p.has_row(item, query);
            const float* from = p.weights + (exists ? p.row(item, query) * p.weights_stride + column % C.heads : 0);
            ptx::copy_async(smem.weights(slot + part) + column * 4, from, exists ? 4 : 0);
        }
}

/// Queries, their weights and windows into the slots of a portion. All lanes of the warp, which does not wait for what
/// is copied. In the abs form it does: columns are to be made, and then it is to arrive.
template <MqaConfig C>
__device__ void load_queries(const MqaParams& p, const MqaShared<C>& smem, uint32_t portion, uint32_t item) {
    const uint32_t lane = ptx::lane();
    const auto at = MqaSlot<C>::of(p, portion);
    const SmemAddr full = smem.queries_full(at.first);
    const SmemAddr in = C.form == MqaForm::Abs ? smem.queries_in(at.first) : full;
    wait(smem.queries_empty(at.first), at.parity ^ 1);
    constexpr uint32_t kBytes = C.heads * C.dim;
    if (lane == 0) ptx::mbarrier_arrive_expect_tx(in, min(p.item_queries, p.rows - p.row(item, 0)) * kBytes);
    __syncwarp();
    if (p.has_row(item, lane))
        ptx::tma_load_stacked(smem.queries(at.first + lane / C.queries()) + lane % C.queries() * kBytes, &p.q, in, 0, 0,
                              p.row(item, lane));
    copy_weights(p, smem, at.first, item);
    ptx::mbarrier_arrive_after_copies(in);
    store_windows(p, smem, at.first, item);
    if (C.form == MqaForm::Exact) ptx::mbarrier_arrive(full);
    else wait(in, at.parity);
}

/// Fills the ring of one warpgroup with its tiles: every fourth of the CTA's, in order.
template <MqaConfig C>
class MqaLoader {
public:
    __device__ MqaLoader(const MqaParams& p, const MqaShared<C>& smem, uint32_t warp)
        : p_(p), smem_(smem), warp_(warp), rings_(MqaRings<C>::of(p, smem)), fill_(p, smem.fill(), warp) {}

    __device__ void run(const MqaSplit& split) {
        MqaWalk<C> walk(p_, split);
        MqaPortion s;
        uint32_t portion = 0, before = 0;  // tiles of the CTA
        for (; walk.next(s); ++portion, before += s.count) {
            const uint32_t wanted = wanted_queries(portion);
            uint32_t item = s.item;
            bool owes = loads_queries(wanted) && (wanted == portion || find_item(walk, wanted - portion, item));
            // Its warpgroup may have no tile for long, and would keep the queries whose place is needed here.
            if (owes && portion > 0) tell(portion, MqaStage::Portion);
            uint32_t i = has_ring() ? (warp_ - before) & (rings_.count() - 1) : s.count;
            do {
                // What the ring has room for goes first: it is multiplied meanwhile, or comes together with queries.
                // While columns are made nothing waits for the ring: between steps it gets what it has room for.
                const bool makes = made_ < steps(), waits = owes || !makes;
                // All wait for the first queries, which go before; but for their columns, which take long to make.
                const uint32_t before_queries = C.form == MqaForm::Exact && wanted == 0 ? 0 : rings_.each - 1;
                const uint32_t most = owes ? before_queries : ~0u;
                i = C.keys == MqaKeys::Rows ? load_rows(portion, s, i, most, waits)
                                            : load_pages(portion, s, i, most, waits);
                if (owes) {
                    load_queries(p_, smem_, wanted, item);
                    made_ = 0, due_ = wanted;
                } else if (makes) {
                    make_step();
                }
                owes = false;
            } while (i < s.count || (made_ < steps() && due_ <= portion + 1));
        }
        tell(portion, MqaStage::End);
        fill_.finish();
    }

private:
    __device__ static uint32_t lane() { return threadIdx.x % kWarpSize; }

    /// Where warpgroups share rings there are fewer; the warps behind those that have one load queries.
    __device__ bool has_ring() const { return warp_ < rings_.count(); }

    /// Queries are loaded so many portions before their own, that nobody waits for them: two where columns are to be
    /// made and windows may be short.
    static constexpr uint32_t kAhead = C.form == MqaForm::Abs ? 2 : 1;

    /// The portion whose queries are loaded in the time of `portion`'s tiles. Nobody has loaded the first ones before.
    /// Where an item takes all slots there is no place for those of a later one.
    __device__ uint32_t wanted_queries(uint32_t portion) const {
        const uint32_t ahead = min(MqaSlot<C>::portions_log2(p_), kAhead);
        return portion > 0 ? portion + ahead : min(turn(), ahead);
    }
    /// Finds the item of the next portion or of the one behind it; false if there is none.
    __device__ static bool find_item(MqaWalk<C>& walk, uint32_t ahead, uint32_t& item) {
        if (kAhead == 2 && ahead == 2) return walk.second(item);
        if (!walk.more()) return false;
        item = walk.item();
        return true;
    }
    /// The last warp begins, which has its first tile last. A warp has a slot of its own: of two that waited for one,
    /// the one that is ahead would see the other one's phase.
    __device__ uint32_t turn() const { return kMqaWarpgroups - 1 - warp_; }
    __device__ bool loads_queries(uint32_t portion) const {
        return (portion & ((1u << MqaSlot<C>::portions_log2(p_)) - 1)) == turn();
    }

    /// For the columns of a portion.
    __device__ static uint32_t steps() { return C.form == MqaForm::Abs ? MqaLinear<C>::kSteps : 0; }
    __device__ void make_step() {
        MqaLinear<C>::add(smem_, smem_.sums(warp_), turn(), made_);
        if (++made_ == steps()) ptx::mbarrier_arrive(smem_.queries_full(turn()));
    }

    /// Waits for the next stage of the ring to be empty.
    __device__ uint32_t next_stage() {
        const uint32_t stage = rings_.stage_of(warp_, at_.stage);
        wait(smem_.empty(stage), at_.parity);
        __syncwarp();  // else the stage could be filled and emptied before a late lane looks, which would wait on
        at_.advance(rings_.stages());
        return stage;
    }
    __device__ void publish(uint32_t stage, const MqaTile& tile) const {
        ptx::store_shared_x2(smem_.tile(stage), float_of_bits(tile.key), float_of_bits(tile.word()));
    }
    __device__ void tell(uint32_t portion, MqaStage what) {
        if (!has_ring()) return;
        const uint32_t stage = next_stage();
        if (lane() != 0) return;
        publish(stage, {0, portion, what});
        ptx::mbarrier_arrive(smem_.full(stage));
    }
    /// A store of -inf for every second tile: it may wait for windows.
    __device__ void loaded() {
        if (at_.stage % 2 == 0) fill_.step();
    }

    /// Is the next stage of the ring empty?
    __device__ bool has_room() const {
        return ptx::broadcast(ptx::mbarrier_test_wait(smem_.empty(rings_.stage_of(warp_, at_.stage)), at_.parity)) != 0;
    }

    // Both load every fourth tile from the `i`th on, `most` at most, and those that there is room for if they may not
    // wait; they return which is next.
    __device__ uint32_t load_rows(uint32_t portion, const MqaPortion& s, uint32_t i, uint32_t most, bool waits) {
        const MqaWindow seen = p_.has_row(s.item, lane()) ? p_.window<MqaKeys::Rows>(s.item, lane()) : MqaWindow{};
        for (; i < s.count && most > 0 && (waits || has_room()); i += kMqaWarpgroups) {
            const uint32_t key = (s.first + i) * kMqaTileKeys;
            if (ptx::ballot(seen.meets(key, key + kMqaTileKeys)) == 0) continue;  // between windows
            --most;
            const uint32_t stage = next_stage();
            if (ptx::elect_one()) {
                const SmemAddr full = smem_.full(stage);
                publish(stage, {key, portion, MqaStage::Keys});
                ptx::mbarrier_arrive_expect_tx(full, MqaShared<C>::kAt.keys_stage + MqaShared<C>::kAt.scales_stage);
                ptx::tma_load(smem_.keys(stage), &p_.k, full, 0, key);
                ptx::tma_load(smem_.scales(stage), &p_.k_scales, full, key, 0);
            }
            loaded();
        }
        return i;
    }

    /// Each lane knows a page of one of the next tiles, and loads it. A page whose first key nobody sees is not looked
    /// up: the table may hold anything there.
    __device__ uint32_t load_pages(uint32_t portion, const MqaPortion& s, uint32_t i, uint32_t most, bool waits) {
        const uint32_t keys = p_.context(s.item);
        const uint32_t page_keys = 1u << p_.page_log2, pages_log2 = 6 - p_.page_log2;  // pages_log2: of a tile
        static_assert(kMqaTileKeys == 1 << 6);
        const uint32_t tiles_ahead = kWarpSize >> pages_log2;
        const uint32_t of_lane = lane() >> pages_log2, page_of_tile = lane() & ((1u << pages_log2) - 1);
        const uint32_t page_bytes = page_keys * C.dim, scale_bytes = page_keys * 4;
        const uint64_t policy = rings_.each == C.few_stages() || p_.bf16 ? kEvictFirst : kEvictNormal;
        uint32_t page = 0;
        for (uint32_t n = 0; i < s.count && n < most && (waits || has_room()); i += rings_.count(), ++n) {
            const uint32_t ahead = n % tiles_ahead;
            if (ahead == 0) page = page_number(s.item, s.first + i + of_lane * rings_.count(), page_of_tile, keys);
            const uint32_t key = (s.first + i) * kMqaTileKeys;
            const uint32_t pages = min(kMqaTileKeys, keys - key + page_keys - 1) >> p_.page_log2;
            const uint32_t stage = next_stage();
            const SmemAddr full = smem_.full(stage);
            if (lane() == 0) {
                publish(stage, {key, portion, MqaStage::Keys});
                ptx::mbarrier_arrive_expect_tx(full, pages * (page_bytes + scale_bytes));
            }
            __syncwarp();
            // Keys are read once: where they leave L2 first, what others have modified need not be written meanwhile.
            // Many logits of four bytes are in the way of many keys, if these leave before them.
            if (of_lane == ahead && page_of_tile < pages) {
                ptx::tma_load(smem_.keys(stage) + page_of_tile * page_bytes, &p_.k, full, 0, 0, page, policy);
                ptx::bulk_load(smem_.scales(stage) + page_of_tile * scale_bytes,
                               p_.pages + page * p_.page_stride + page_bytes, scale_bytes, full, policy);
            }
            loaded();
        }
        return i;
    }
    __device__ uint32_t page_number(uint32_t item, uint32_t tile, uint32_t page_of_tile, uint32_t keys) const {
        const uint32_t at = (tile << (6 - p_.page_log2)) + page_of_tile;
        const bool seen = at < (keys + (1u << p_.page_log2) - 1) >> p_.page_log2;
        const uint32_t number = ptx::load_global_if(seen, p_.table + item * p_.table_stride + (seen ? at : 0));
        return number < p_.page_count ? number : 0;
    }

    const MqaParams& p_;
    const MqaShared<C>& smem_;
    uint32_t warp_;
    MqaRings<C> rings_;
    MqaCursor at_{0, 1};  // the ring starts empty: core/ring.h
    MqaFill<C.keys> fill_;
    uint32_t made_ = ~0u, due_ = 0;  // steps for the columns of the queries that it has loaded last, and their portion
};

}  // namespace finegemm::device
