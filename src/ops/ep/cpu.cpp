// Where rows are in messages, on the CPU. Layer cpu.
#include "ops/ep/cpu.h"

#include "engine/any_address.h"
#include "ops/routing/call.h"

namespace finegemm {

namespace {

void store_tail(const SlotsParams& p, int64_t slot, int32_t id) {
    uint8_t* const tail = p.tails + slot * p.row_bytes;
    store(tail, 0, id);
    store(tail, 1, kThere);
}

uint32_t offset_of(const SlotsParams& p, uint32_t rank) {
    return load<uint32_t>(p.offsets, int64_t{rank} * p.rank_slots.by_experts.divisor);
}

void place_choice(const SlotsParams& p, const ConstMatrix& ids, int64_t number) {
    const auto row = load<int32_t>(p.inverse, number);
    if (row < 0) return store(p.slots, number, kNoRow);
    const auto id = static_cast<int32_t>(id_of(ids, number / ids.cols, number % ids.cols));
    const uint32_t rank = static_cast<uint32_t>(id) / p.rank_slots.by_experts.divisor;
    const uint32_t slot = p.rank_slots.of(rank, static_cast<uint32_t>(row), offset_of(p, rank));
    store(p.slots, number, slot);
    if (p.rank_slots.capacity == 0 || slot < p.rank_slots.all()) store_tail(p, slot, id);
}

}  // namespace

void run_on_cpu(const SlotsCall& call, ThreadPool&) {
    const SlotsParams& p = call.params;
    const ConstMatrix ids{.data = p.ids,
                          .dtype = p.wide ? DType::I64 : DType::I32,
                          .rows = p.choices / p.by_k.divisor,
                          .cols = p.by_k.divisor,
                          .row_stride = p.ids_row_stride};
    for (uint32_t number = 0; number < p.choices; ++number) place_choice(p, ids, number);
    const uint32_t capacity = p.rank_slots.capacity, all = p.rank_slots.all();
    for (uint32_t r = 0; r < p.rank_slots.ranks; ++r) {
        const uint32_t count = offset_of(p, r + 1) - offset_of(p, r);
        store(p.counts, r, count);
        for (uint32_t i = count; i < capacity; ++i) store_tail(p, r * capacity + i, kNoRow);
        if (p.coming) store(p.coming + int64_t{r} * capacity * p.row_bytes, 1, kMissing);
        if (p.returned) store(p.returned + int64_t{r} * capacity * p.returned_row_bytes, 0, kMissing);
    }
    if (!p.returned) return;
    for (uint32_t word = 0; word < p.returned_row_bytes / 4; ++word)
        store(p.returned + int64_t{all} * p.returned_row_bytes, word, kMissing);
}

}  // namespace finegemm
