// Rows of tokens through memory of ranks that are threads, on the CPU. Layer cpu.
#include <algorithm>
#include <cstring>

#include "engine/any_address.h"
#include "ops/ep/cpu.h"

namespace finegemm {

namespace {

uint32_t generation_of(const PeerView& v) { return v.header(v.rank)->generation + 1; }

void tell_all(const PeerView& v, uint64_t (PeerHeader::*words)[kMostPeers], uint64_t said) {
    for (uint32_t r = 0; r < v.ranks; ++r) comm::tell((v.header(r)->*words)[v.rank], said);
}

/// Where rows of an expert here from a rank begin: at the rank, and here. By experts, then by ranks; one more behind.
struct Segments {
    std::vector<uint32_t> there, here;

    explicit Segments(const PeerView& v) : here{0} {
        for (uint32_t e = 0; e < v.experts; ++e)
            for (uint32_t r = 0; r < v.ranks; ++r) {
                const int32_t* const offsets = v.coming(v.rank, r);
                const auto first = load<uint32_t>(offsets, 0);
                there.push_back(v.fitting(load<uint32_t>(offsets, e), first));
                here.push_back(here.back() + v.fitting(load<uint32_t>(offsets, e + 1), first) - there.back());
            }
    }
};

/// What a rank has for each other, whether it fits or not; and offsets of its own choices for it.
void publish(const PullParams& p) {
    const PeerView& v = p.peers;
    const auto* const offsets = v.at<int32_t>(v.rank, v.places.offsets);
    for (uint32_t r = 0; r < v.ranks; ++r) {
        const int32_t* const of_rank = offsets + static_cast<size_t>(r) * v.experts;
        std::copy_n(of_rank, v.experts + 1, v.coming(r, v.rank));
        store(p.counts, r, of_rank[v.experts] - of_rank[0]);
    }
    tell_all(v, &PeerHeader::ready, peer_word(generation_of(v), v.tokens));
}

void pull_token(const PullParams& p, const Segments& segments, uint32_t from, uint32_t token) {
    const PeerView& v = p.peers;
    const int32_t* const offsets = v.coming(v.rank, from);
    const auto first = static_cast<uint32_t>(offsets[0]),
               end = v.fitting(static_cast<uint32_t>(offsets[v.experts]), first);
    for (uint32_t c = 0; c < v.k; ++c) {
        const auto row = static_cast<uint32_t>(v.at<int32_t>(from, v.places.inverse)[size_t{token} * v.k + c]);
        if (row < first || row >= end) continue;
        const auto e = static_cast<uint32_t>(
            std::upper_bound(offsets, offsets + v.experts, row,
                             [](uint32_t x, int32_t offset) { return x < static_cast<uint32_t>(offset); }) -
            offsets - 1);
        const size_t of_expert = size_t{e} * v.ranks;
        const int64_t to =
            place_in_turn(&segments.here[of_expert], v.ranks, from, row - segments.there[of_expert + from]);
        p.results[to] = reinterpret_cast<uint64_t>(v.result(from, row));
        const uint8_t* const source = v.row(from, token);
        std::memcpy(p.q + to * v.value_bytes, source, v.value_bytes);
        const uint8_t* const scales = source + (v.value_bytes + 3) / 4 * 4;
        for (uint32_t b = 0; b < v.scale_blocks; ++b)
            store(p.scales, to + b * p.scale_col_stride, load<float>(scales, b));
    }
}

/// Rows for which other ranks have no place: what becomes of them is NaN.
void spoil_others(const PeerView& v) {
    const auto* const offsets = v.at<int32_t>(v.rank, v.places.offsets);
    for (uint32_t r = 0; r < v.ranks; ++r) {
        const auto first = static_cast<uint32_t>(offsets[size_t{r} * v.experts]),
                   end = static_cast<uint32_t>(offsets[size_t{r + 1} * v.experts]);
        for (uint32_t row = v.fitting(end, first); row < end; ++row)
            std::memset(v.result(v.rank, row), 0xff, v.result_bytes);
    }
}

}  // namespace

void run_on_cpu(const PullCall& call, ThreadPool& pool) {
    const PullParams& p = call.params;
    const PeerView& v = p.peers;
    PeerHeader& own = *v.header(v.rank);
    publish(p);
    spoil_others(v);
    comm::wait_for_words(call.group, {own.ready, v.ranks}, generation_of(v), v.experts);
    const Segments segments(v);
    for (uint32_t e = 0; e <= v.experts; ++e) store(p.numbers, e, segments.here[size_t{e} * v.ranks]);
    for (uint32_t i = 0; i < v.ranks; ++i) {
        const uint32_t from = (v.rank + i) % v.ranks;
        pool.parallel_for(
            said_by(own.ready[from]), [&](int64_t t) { pull_token(p, segments, from, static_cast<uint32_t>(t)); },
            call.options.poll);
    }
}

void run_on_cpu(const PushCall& call, ThreadPool&) {
    const PushParams& p = call.params;
    const PeerView& v = p.peers;
    PeerHeader& own = *v.header(v.rank);
    for (int64_t row = 0; row < load<int32_t>(p.numbers, v.experts); ++row)
        std::memcpy(reinterpret_cast<uint8_t*>(p.results[row]), p.y + row * v.result_bytes, v.result_bytes);
    const uint32_t generation = generation_of(v);
    tell_all(v, &PeerHeader::returned, peer_word(generation, 0));
    comm::wait_for_words(call.group, {own.returned, v.ranks}, generation, v.experts);
    own.generation = generation;
}

}  // namespace finegemm
