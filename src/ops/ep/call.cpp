// What follows from the shape of a layer over ranks: its rows, its memory. Layer engine.
#include "ops/ep/call.h"

#include <algorithm>

#include <fmt/format.h>

#include "plan/elements.h"

namespace finegemm {

namespace {

constexpr int64_t kLine = 256, kOfBf16 = 2, kOfWord = 4;

constexpr int64_t aligned(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

}  // namespace

SentRow sent_row(int64_t hidden) {
    constexpr int64_t kSector = 32;  // of L2: rows begin at one
    const int64_t scales = aligned(hidden, kOfWord), blocks = (hidden + kScaleBlock - 1) / kScaleBlock;
    const int64_t tail = scales + blocks * kOfWord;
    return {scales, tail, aligned(tail + static_cast<int64_t>(sizeof(RowTail)), kSector)};
}

PeerPlaces peer_places(const MoeShape& most, int64_t ranks) {
    const int64_t choices = std::max<int64_t>(most.tokens * most.choices, 1);
    PeerPlaces p;
    const auto take = [&](int64_t bytes) {
        const int64_t begin = p.bytes;
        p.bytes += aligned(bytes, kLine);
        return begin;
    };
    take(sizeof(PeerHeader));
    p.coming = take(ranks * (most.experts + 1) * kOfWord);
    p.inverse = take(choices * kOfWord);
    p.offsets = take((ranks * most.experts + 1) * kOfWord);
    p.order = take(std::max<int64_t>(most.tokens, 1) * kOfWord);
    p.rows = take(std::max<int64_t>(most.tokens, 1) * sent_row(most.hidden).bytes);
    p.returned = take(choices * most.hidden * kOfBf16);
    return p;
}

bool EpMoeCall::has_peers() const { return memory && how.capacity > 0 && memory->table->is_whole(); }

int64_t most_rows(int64_t hidden) { return std::min<int64_t>(int64_t{1} << 23, INT32_MAX / (hidden / 256 + 1)); }

MoeShape local_shape(const MoeShape& s, int64_t rows) {
    MoeShape local = s;
    local.tokens = rows, local.choices = 1, local.rows = 0;
    return local;
}

EpMemory memory_of(const MoeShape& s, int64_t ranks, int64_t capacity) {
    const int64_t choices = std::max<int64_t>(s.tokens * s.choices, 1), rows = ranks * capacity;
    EpMemory m;
    const auto take = [&](int64_t bytes) {
        const int64_t begin = m.bytes;
        m.bytes += aligned(bytes, kLine);
        return begin;
    };
    m.inverse = take(choices * kOfWord);
    m.offsets = take((ranks * s.experts + 1) * kOfWord);
    m.slots = take(choices * kOfWord);
    m.counts = take(ranks * kOfWord);
    m.sent = take(rows * sent_row(s.hidden).bytes);
    m.received = take(rows * sent_row(s.hidden).bytes);
    m.y = take(rows * s.hidden * kOfBf16);
    m.returned = take((rows + 1) * s.hidden * kOfBf16);
    const MoeShape local = local_shape(s, rows);
    m.layer_bytes = std::max(memory_of(local, false).bytes, memory_of(local, true).bytes);
    m.layer = take(m.layer_bytes);
    return m;
}

std::string text_of(const EpMoeCall& call) {
    const MoeShape s = call.shape();
    return fmt::format("ep_moe rank {} of {}, {}x{} {}, {} of {} experts, {} pairs", call.group.rank(), call.ranks(),
                       s.tokens, s.hidden, name_of(call.layer.x.dtype), s.choices, call.ranks() * s.experts,
                       s.intermediate);
}

}  // namespace finegemm
