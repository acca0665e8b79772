// The kernel that selects the k largest numbers of a row: one CTA has it. Layer device.
// Keys of a row that fits are kept in registers. Of a longer one those of a sample are first, which say what is surely
// too small; one way through the row then lists the others, whose keys are kept. The least key that is selected is
// found by counting, and what is selected is marked: no result depends on the order in which it is listed.
#pragma once

#include <finegemm/device/ptx/dynamic_shared.cuh>
#include <finegemm/device/topk/bound.cuh>
#include <finegemm/device/topk/result.cuh>
#include <finegemm/device/topk/sort.cuh>

namespace finegemm::device {

/// A row whose index 0 has an address that is a multiple of 16: up to three columns before its window.
class TopkWholeRow {
public:
    __device__ TopkWholeRow(const TopkParams& p, uint32_t row) {
        const TopkWindow window = p.window(row);
        const float* const begin = p.logits + row * p.logits_stride + window.begin;
        lead_ = static_cast<uint32_t>(reinterpret_cast<uint64_t>(begin) / sizeof(float) % 4);
        from_ = begin - lead_, column_ = window.begin - lead_, count_ = lead_ + window.end - window.begin;
    }
    __device__ uint32_t count() const { return count_; }
    __device__ uint32_t numbers() const { return count_ - lead_; }
    __device__ uint32_t column(uint32_t i) const { return column_ + i; }
    __device__ bool has(uint32_t i) const { return i >= lead_ && i < count_; }
    __device__ uint32_t word(uint32_t i) const { return ptx::load_global_l2_if(has(i), from_ + i); }
    /// 0 where there is none.
    __device__ uint32_t key(uint32_t i) const {
        const uint32_t key = key_of_word(word(i));
        return has(i) ? key : 0;
    }

    /// Are there numbers of 32 vectors from index i on?
    __device__ bool inside(uint32_t i, uint32_t limit) const { return i >= lead_ && i + 4 * kWarpSize <= limit; }
    __device__ ptx::Words4 words(uint32_t i) const { return ptx::load_global_l2_x4(from_ + i); }

    /// Keys of the numbers of a sample; 0 where there is none. All loads are in flight together. The columns of a
    /// thread's vectors are as far from each other as those of 128 neighbours are: their places in these are the same.
    __device__ void load_keys(TopkOwnWords& own, const TopkSample& sample) const {
        const uint32_t step = TopkOwnWords::step() / TopkSample::kNear * sample.stride, first = own.index(0);
        const uint32_t of_warp = first - ptx::lane() * 4;
        const bool begins = of_warp >= lead_;
        const bool ends = of_warp + (own.vectors - 1) * own.step() + 4 * kWarpSize <= sample.count;
        const auto all = [&](uint32_t i) { return (i > 0 || begins) && (i + 1 < own.vectors || ends); };
        const auto there = [&](uint32_t i) { return i >= lead_ && i < sample.count; };
        const float* from = from_ + sample.column(first);
        if (own.vectors == TopkOwnWords::kVectors && begins && ends) {
#pragma unroll
            for (uint32_t i = 0; i < TopkOwnWords::kVectors; ++i, from += step) {
                const ptx::Words4 v = ptx::load_global_l2_x4(from);
#pragma unroll
                for (uint32_t u = 0; u < 4; ++u) own.words[4 * i + u] = v.w[u];
            }
#pragma unroll
            for (uint32_t j = 0; j < TopkOwnWords::kEach; ++j) own.words[j] = key_of_word(own.words[j]);
            return;
        }
#pragma unroll
        for (uint32_t j = 0; j < TopkOwnWords::kEach; ++j) own.words[j] = 0;
#pragma unroll
        for (uint32_t i = 0; i < TopkOwnWords::kVectors; ++i, from += step) {
            if (i >= own.vectors) break;
            if (all(i)) {
                const ptx::Words4 v = ptx::load_global_l2_x4(from);
#pragma unroll
                for (uint32_t u = 0; u < 4; ++u) own.words[4 * i + u] = v.w[u];
            } else {
#pragma unroll
                for (uint32_t u = 0; u < 4; ++u)
                    own.words[4 * i + u] = ptx::load_global_l2_if(there(first + i * own.step() + u), from + u);
            }
        }
#pragma unroll
        for (uint32_t i = 0; i < TopkOwnWords::kVectors; ++i) {
            if (i >= own.vectors) break;
#pragma unroll
            for (uint32_t u = 0; u < 4; ++u) own.words[4 * i + u] = key_of_word(own.words[4 * i + u]);
            if (all(i)) continue;
#pragma unroll
            for (uint32_t u = 0; u < 4; ++u)
                if (!there(first + i * own.step() + u)) own.words[4 * i + u] = 0;
        }
    }

private:
    const float* from_;
    uint32_t lead_, column_, count_;
};

/// Words of a row that are loaded each time they are wanted: keys, or of those that equal one columns, which fall.
struct TopkLoadedWords {
    static constexpr bool kSmall = false;
    const TopkWholeRow& row;
    uint32_t key;  // 0: keys

    __device__ uint32_t word(uint32_t i) const {
        const uint32_t x = row.key(i);
        return key == 0 ? x : x == key ? ~i : 0;
    }
    __device__ uint32_t total() const { return row.count(); }
    __device__ uint32_t own() const { return ceil_div(max(row.count(), threadIdx.x) - threadIdx.x, kTopkRowThreads); }
    __device__ uint32_t sample() const { return word(threadIdx.x * (row.count() / kTopkRowThreads)); }
    template <typename Visit>
    __device__ void for_each(const Visit& visit) const {
#pragma unroll 4
        for (uint32_t i = threadIdx.x; i < row.count(); i += kTopkRowThreads) visit(i, word(i));
    }
    __device__ void count(uint32_t x, uint32_t y, uint32_t& of_x, uint32_t& of_y) const {
        of_x = of_y = 0;
        for_each([&](uint32_t, uint32_t w) { of_x += w >= x ? 1 : 0, of_y += w >= y ? 1 : 0; });
    }
    __device__ void gather(uint32_t low, uint32_t width, ptx::SmemAddr to) const {
        for_each([&](uint32_t, uint32_t w) {
            ptx::store_shared_word_if(w - low <= width, to, w);
            if (w - low <= width) to = to + 4;
        });
    }
};

/// All of a row that is kept, or what is looked at before the others are.
__device__ inline TopkSample sample_of(uint32_t count) {
    if (count <= kTopkRowHeld) return {TopkSample::kNear, count};
    uint32_t stride = TopkSample::kLeastStride;
    while (count / stride * TopkSample::kNear > kTopkRowHeld) stride *= 2;
    return {stride, count / stride * TopkSample::kNear};
}

/// Calls visit(bit) for each that is set.
template <typename Visit>
__device__ void for_each_bit(uint32_t bits, const Visit& visit) {
#pragma unroll 1
    for (; bits != 0; bits &= bits - 1) visit(ptx::lowest_bit(bits));
}

__device__ inline void mark(TopkRowShared& shared, uint32_t i) {
    atomicOr(&shared.marks[i / kWarpSize], 1u << i % kWarpSize);
}

/// The sum over the threads before this one, and over all.
__device__ inline TopkPair sum_before(TopkRowShared& shared, uint32_t own) {
    const uint32_t warp = threadIdx.x / kWarpSize, lane = ptx::lane(), up_to = sum_up_to(own);
    if (lane == kWarpSize - 1) shared.told[0][warp] = up_to;
    __syncthreads();  // the warps' sums are there
    const uint32_t of_warp = lane < kTopkRowWarps ? shared.told[0][lane % kTopkRowWarps] : 0;
    return {ptx::sum_of_lanes(lane < warp ? of_warp : 0) + up_to - own, ptx::sum_of_lanes(of_warp)};
}

/// Lists columns that are marked, in their order. How many there are.
__device__ inline uint32_t list_marked(TopkRowShared& shared, const TopkWholeRow& row, const uint32_t* marks,
                                       uint32_t* to) {
    const uint32_t words = ceil_div(row.count(), kWarpSize), each = ceil_div(words, kTopkRowThreads);
    const uint32_t begin = min(threadIdx.x * each, words), end = min(begin + each, words);
    uint32_t own = 0;
#pragma unroll 1
    for (uint32_t i = begin; i < end; ++i) own += ptx::count_bits(marks[i]);
    const TopkPair sum = sum_before(shared, own);
    uint32_t at = sum.x;
#pragma unroll 1
    for (uint32_t i = begin; i < end; ++i)
        for_each_bit(marks[i], [&](uint32_t bit) { to[at++] = row.column(i * kWarpSize + bit); });
    __syncthreads();  // all are listed
    return sum.y;
}

/// Likewise, of what is marked of the list.
__device__ inline uint32_t list_of_chunks(TopkRowShared& shared, const TopkWholeRow& row) {
    const uint32_t chunks = ceil_div(row.count(), kTopkChunk), each = ceil_div(chunks, kTopkRowThreads);
    const uint32_t begin = min(threadIdx.x * each, chunks), end = min(begin + each, chunks);
    const auto for_marked = [&](const auto& visit) {  // visit(i, marks) of the list from i on
#pragma unroll 1
        for (uint32_t c = begin; c < end; ++c) {
            const TopkPair chunk = shared.order.chunks[c];
#pragma unroll 1
            for (uint32_t i = chunk.x, last = chunk.x + chunk.y; i < last;) {
                const uint32_t bit = i % kWarpSize, count = min(kWarpSize - bit, last - i);
                visit(i, shared.order.marks[i / kWarpSize] >> bit & (~0u >> (kWarpSize - count)));
                i += count;
            }
        }
    };
    uint32_t own = 0;
    for_marked([&](uint32_t, uint32_t marks) { own += ptx::count_bits(marks); });
    const TopkPair sum = sum_before(shared, own);
    uint32_t at = sum.x;
    for_marked([&](uint32_t i, uint32_t marks) {
        for_each_bit(marks, [&](uint32_t bit) { shared.order.selected[at++] = row.column(shared.list[1][i + bit]); });
    });
    __syncthreads();  // all are listed
    return sum.y;
}

/// As select_row, of a row that is not kept.
__device__ inline uint32_t select_loaded(TopkRowShared& shared, const TopkWholeRow& row, uint32_t k) {
    TopkLoadedWords words{row, 0};
    __syncthreads();  // what is there has been read
    for (uint32_t i = threadIdx.x; i * kWarpSize < row.count(); i += kTopkRowThreads) shared.marks[i] = 0;
#pragma unroll 1
    while (true) {
        const TopkBound bound = find_bound(shared, words, row.count(), k, 0);
        words.for_each([&](uint32_t i, uint32_t word) {
            if (word > bound.word || (word == bound.word && bound.surplus == 0)) mark(shared, i);
        });
        if (bound.surplus == 0) break;
        words.key = bound.word, k = bound.wanted;
    }
    __syncthreads();  // all are marked
    const uint32_t count = list_marked(shared, row, shared.marks, shared.found);
    for (uint32_t i = threadIdx.x; i < count; i += kTopkRowThreads) shared.order.selected[i] = shared.found[i];
    __syncthreads();  // they are there
    return count;
}

/// Gives a chunk so many places on the list, of which all lanes know the first.
__device__ inline uint32_t place_chunk(TopkRowShared& shared, uint32_t chunk, uint32_t count) {
    uint32_t place = 0;
    if (ptx::lane() == 0) {
        if (count > 0) place = atomicAdd(&shared.listed, count);
        shared.order.chunks[chunk] = {place, count};
    }
    return ptx::value_of(place, 0);
}

/// Lists the numbers of a chunk that are not less than `bound` where a row begins or ends.
__device__ inline void list_end(TopkRowShared& shared, const TopkWholeRow& row, float bound, uint32_t first) {
    uint32_t place = 0, count = 0;
#pragma unroll 1
    for (uint32_t step = 0; step < 2; ++step) {
        uint32_t before = 0;
#pragma unroll 1
        for (uint32_t i = first + ptx::lane(); i < first + kTopkChunk + ptx::lane(); i += kWarpSize) {
            const uint32_t word = row.word(i);
            const bool chosen = row.has(i) && !(float_of_bits(word) < bound);
            const uint32_t lanes = ptx::ballot(chosen);
            const uint32_t at = place + before + ptx::count_bits(lanes & ((1u << ptx::lane()) - 1));
            if (step > 0 && chosen && at < kTopkRowListed) shared.list[0][at] = word, shared.list[1][at] = i;
            before += ptx::count_bits(lanes);
        }
        count = before;
        if (step == 0) place = place_chunk(shared, first / kTopkChunk, count);
    }
}

/// Lists the numbers of a row that are not less than `bound`; those for which no room is left not. All are counted.
/// Those of a chunk are in the order of columns.
__device__ inline void list_candidates(TopkRowShared& shared, const TopkWholeRow& row, float bound) {
    constexpr uint32_t kVectors = kTopkChunk / (4 * kWarpSize);
    static_assert(kVectors == 4);
    const ptx::SmemAddr list = ptx::smem_address(shared.list);
    const uint32_t lane = ptx::lane();
#pragma unroll 1
    for (uint32_t first = threadIdx.x / kWarpSize * kTopkChunk; first < row.count();
         first += kTopkRowWarps * kTopkChunk) {
        if (!row.has(first) || !row.has(first + kTopkChunk - 1)) {
            list_end(shared, row, bound, first);
            continue;
        }
        ptx::Words4 v[kVectors];
#pragma unroll
        for (uint32_t i = 0; i < kVectors; ++i) v[i] = row.words(first + lane * 4 + i * (4 * kWarpSize));
        float counted = 0;  // a digit for each vector; NaN is not less
#pragma unroll
        for (uint32_t i = 0; i < kVectors; ++i)
#pragma unroll
            for (uint32_t u = 0; u < 4; ++u)
                if (!(float_of_bits(v[i].w[u]) < bound)) counted += static_cast<float>(1u << 4 * i);
        uint32_t own = static_cast<uint32_t>(counted);
        own = (own | own << 8) & 0x00ff00ff;
        own = (own | own << 4) & 0x0f0f0f0f;  // a byte for each
        const uint32_t up_to = sum_up_to(own), all = ptx::value_of(up_to, kWarpSize - 1), before = up_to - own;
        const auto byte = [](uint32_t x, uint32_t i) { return x >> 8 * i & 0xff; };
        const uint32_t count = byte(all, 0) + byte(all, 1) + byte(all, 2) + byte(all, 3);
        uint32_t place = place_chunk(shared, first / kTopkChunk, count);
        if (count == 0 || place + count > kTopkRowListed) continue;
        // Compared anew: the compiler would keep what it found before, for which there are no registers.
        const float again = float_of_bits(ptx::broadcast(float_bits(bound)));
#pragma unroll
        for (uint32_t i = 0; i < kVectors; ++i) {
            ptx::SmemAddr to = list + (place + byte(before, i)) * 4;
            place += byte(all, i);
#pragma unroll
            for (uint32_t u = 0; u < 4; ++u) {
                const bool chosen = !(float_of_bits(v[i].w[u]) < again);
                ptx::store_shared_word_if(chosen, to, v[i].w[u]);
                ptx::store_shared_word_if(chosen, to + kTopkRowListed * 4, first + lane * 4 + i * (4 * kWarpSize) + u);
                if (chosen) to = to + 4;
            }
        }
    }
}

/// Keys of what is listed.
__device__ inline void load_listed(const TopkRowShared& shared, TopkOwnWords& own, uint32_t listed) {
    own.vectors = TopkOwnWords::vectors_of(listed);
    own.change([&](uint32_t j, uint32_t) {
        const uint32_t i = own.index_of(j);
        return i < listed ? key_of_word(shared.list[0][i]) : 0;
    });
}

/// Lists the columns of the k largest of a row, of equal ones those whose column is lower. How many there are.
__device__ inline uint32_t select_row(TopkRowShared& shared, const TopkParams& p, uint32_t row) {
    const TopkWholeRow whole(p, row);
    const TopkSample sample = sample_of(whole.count());
    const bool held = sample.stride == TopkSample::kNear, all = whole.numbers() <= p.k;
    const uint32_t k = p.k;
    TopkOwnWords own;
    own.vectors = TopkOwnWords::vectors_of(sample.count);
    if (threadIdx.x == 0) shared.listed = 0;
    whole.load_keys(own, sample);
    uint32_t numbers = sample.count;  // not 0, about
    uint32_t marks = 0, wanted = held ? k : sample.wanted(k), slack = held ? 0 : wanted / 8;
    const auto index = [&](uint32_t j) { return held ? own.index_of(j) : shared.list[1][own.index_of(j)]; };
    if (all) marks = own.marks(1);
    else
#pragma unroll 1
        while (true) {
            const TopkBound bound = find_bound(shared, own, numbers, wanted, slack);
            if (slack > 0) {
                if (bound.word <= topk_key(0xff800000u)) return select_loaded(shared, whole, k);
                list_candidates(shared, whole, number_of_key(bound.word));
                __syncthreads();  // all is listed
                const uint32_t listed = shared.listed;
                if (listed < k || listed > kTopkRowListed) return select_loaded(shared, whole, k);
                load_listed(shared, own, listed);
                wanted = k, slack = 0, numbers = listed;
                continue;
            }
            if (bound.surplus == 0) {
                marks |= own.marks(bound.word);
                break;
            }
            marks |= bound.word < ~0u ? own.marks(bound.word + 1) : 0;
            own.change([&](uint32_t j, uint32_t word) { return word == bound.word ? ~index(j) : 0; });
            wanted = bound.wanted;
        }
    marks = marks_in_order(marks);
    const uint32_t vector = ptx::lane() / 4, at = vector * kTopkRowWarps + threadIdx.x / kWarpSize;
    if (vector < own.vectors) shared.order.marks[at * 4 + ptx::lane() % 4] = marks;
    __syncthreads();  // all are marked
    return held ? list_marked(shared, whole, shared.order.marks, shared.order.selected) : list_of_chunks(shared, whole);
}

/// Sorts columns that are listed.
__device__ inline void sort_selected(const TopkParams& p, TopkRowShared& shared, uint32_t row, uint32_t count) {
    constexpr uint32_t kEach = kTopkMost / kTopkRowThreads;
    const float* const logits = p.logits + row * p.logits_stride;
    uint32_t size = kEach * kWarpSize;  // whole warps
    while (size < p.k) size *= 2;
    for (uint32_t i = threadIdx.x; i < size; i += kTopkRowThreads) {
        const uint32_t column = i < count ? shared.order.selected[i] : 0;
        const uint32_t key = key_of_word(ptx::load_global_l2_if(i < count, logits + column));
        shared.ranked[i] = i < count ? topk_ranked(key, column) : 0;
    }
    __syncthreads();  // all have been put there
    sort_ranked<kEach>(shared.ranked, size);
    for (uint32_t i = threadIdx.x; i < count; i += kTopkRowThreads)
        shared.order.selected[i] = topk_column(shared.ranked[i]);
    __syncthreads();  // they are in that order
}

__device__ inline void write_histogram(const TopkParams& p, TopkRowShared& shared, const TopkWholeRow& of,
                                       uint32_t row) {
    shared.histogram[threadIdx.x] = 0;
    __syncthreads();  // all are zero
    TopkLoadedWords{of, 0}.for_each([&](uint32_t, uint32_t key) {
        if (key != 0) atomicAdd(&shared.histogram[topk_histogram_bin(topk_digit(key, 0))], 1u);
    });
    __syncthreads();  // all are counted
    ptx::store_global(p.histogram + row * p.histogram_stride + threadIdx.x, shared.histogram[threadIdx.x]);
}

/// A CTA takes one row after another.
__device__ inline void topk_select_rows(const TopkParams& p) {
    static_assert(kTopkHistogramBins == kTopkRowThreads && kTopkPicked <= kTopkRowThreads);
    TopkRowShared& shared = ptx::dynamic_shared_object<TopkRowShared>();
    ptx::grid_launch_dependents();
    ptx::grid_dependency_wait();
#pragma unroll 1
    for (uint32_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
        if (p.histogram) write_histogram(p, shared, TopkWholeRow(p, row), row);
        if (p.k == 0) continue;
        const uint32_t count = select_row(shared, p, row);
        if (p.sorted) sort_selected(p, shared, row, count);
        const TopkRowResult result(p, row);
        for (uint32_t i = threadIdx.x; i < p.k; i += kTopkRowThreads)
            result.store(i, i < count ? shared.order.selected[i] : static_cast<uint32_t>(kTopkNone));
        __syncthreads();  // what is left in shared memory has been read
    }
}

}  // namespace finegemm::device
