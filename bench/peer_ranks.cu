// Ranks that share one GPU: the kernels that take rows through memory of ranks, in one cooperative launch in which each
// rank has a range of CTAs, against the host. `peer_ranks [ROUNDS [REPEATS]]`.
// nvcc -std=c++20 -arch=sm_90a -Ikernels bench/peer_ranks.cu
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include <finegemm/device/routing/peers.cuh>

using namespace finegemm;

namespace {

constexpr PeersConfig kPull{false}, kPush{true};
constexpr uint32_t kGuard = 0x5eadbeef;

void check(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return;
    std::printf("%s: %s\n", what, cudaGetErrorString(error));
    std::exit(1);
}

/// `lost`: a rank that does not come; -1: all do.
__global__ void __launch_bounds__(kPull.threads(), kPull.ctas_per_sm())
    pull(const PullParams* params, uint32_t ctas, uint32_t lost) {
    const uint32_t rank = blockIdx.x / ctas;
    if (rank != lost) device::pull_rows<kPull>(params[rank], {blockIdx.x % ctas, ctas});
}
__global__ void __launch_bounds__(kPush.threads(), kPush.ctas_per_sm())
    push(const PushParams* params, uint32_t ctas, uint32_t lost) {
    const uint32_t rank = blockIdx.x / ctas;
    if (rank != lost) device::push_rows<kPush>(params[rank], {blockIdx.x % ctas, ctas});
}

template <typename T>
T* on_gpu(const std::vector<T>& host) {
    T* gpu = nullptr;
    check(cudaMalloc(&gpu, std::max<size_t>(host.size() * sizeof(T), 16)), "cudaMalloc");
    check(cudaMemcpy(gpu, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
    return gpu;
}
template <typename T>
std::vector<T> on_host(const T* gpu, size_t count) {
    std::vector<T> host(count);
    check(cudaMemcpy(host.data(), gpu, count * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return host;
}

struct Random {
    std::mt19937 engine;
    uint32_t any(uint32_t least, uint32_t most) { return std::uniform_int_distribution<uint32_t>(least, most)(engine); }
    bool one_in(uint32_t n) { return any(1, n) == 1; }
};

/// A rank's tokens and choices, and where the host says that rows go.
struct Rank {
    uint32_t tokens;
    std::vector<int32_t> inverse, offsets;
    std::vector<uint32_t> rows, y;  // words
    uint32_t *memory, *q, *y_gpu;
    float* scales;
    int32_t *numbers, *counts;
    uint64_t *missing, *results;
    // As the host has it.
    std::vector<uint32_t> q_wanted, scales_wanted, returned_wanted;
    std::vector<int32_t> numbers_wanted, counts_wanted;
};

struct Problem {
    uint32_t ranks, experts, k, capacity, hidden, most;
    PeerPlaces places;
    std::vector<Rank> all;
    std::vector<PullParams> pulls;
    std::vector<PushParams> pushes;

    uint32_t row_words() const { return align_up(hidden + blocks() * 4 + 8, 32) / 4; }
    uint32_t blocks() const { return ceil_div(hidden, kScaleBlock); }
    size_t q_words() const { return size_t{ranks} * capacity * hidden / 4 + 16; }

    Problem(Random& r, uint32_t of_ranks, bool large) : ranks(of_ranks) {
        experts = r.any(1, large ? 32 : 9), k = r.any(1, large ? 8 : 16);
        hidden = 16 * (large ? 256 : r.any(1, 140));
        most = large ? 16 : r.any(1, 12);
        capacity = r.one_in(4) ? r.any(1, 20) : most * k;
        const auto take = [&](int64_t bytes) {
            const int64_t begin = places.bytes;
            places.bytes += (bytes + 255) / 256 * 256;
            return begin;
        };
        take(sizeof(PeerHeader));
        places.coming = take(ranks * (experts + 1) * 4), places.inverse = take(int64_t{most} * k * 4);
        places.offsets = take((ranks * experts + 1) * 4), places.order = take(most * 4);
        places.rows = take(int64_t{most} * row_words() * 4), places.returned = take(int64_t{most} * k * hidden * 2);
        for (uint32_t i = 0; i < ranks; ++i) all.push_back(made(r));
        for (Rank& rank : all) place(rank);
        compute();
        for (uint32_t i = 0; i < ranks; ++i) make_params(i);
    }

    Rank made(Random& r) {
        Rank rank{};
        rank.tokens = r.one_in(5) ? 0 : r.any(1, most);
        const uint32_t of_all = ranks * experts, favourite = r.any(0, of_all - 1);
        std::vector<int32_t> ids(rank.tokens * k);
        rank.offsets.assign(of_all + 1, 0);
        for (int32_t& id : ids) {
            id = r.one_in(8) ? -1 : static_cast<int32_t>(r.one_in(5) ? favourite : r.any(0, of_all - 1));
            if (id >= 0) ++rank.offsets[id + 1];
        }
        for (uint32_t e = 0; e < of_all; ++e) rank.offsets[e + 1] += rank.offsets[e];
        std::vector<int32_t> next = rank.offsets;
        for (const int32_t id : ids) rank.inverse.push_back(id < 0 ? -1 : next[id]++);
        rank.rows.resize(size_t{rank.tokens} * row_words());
        for (uint32_t& word : rank.rows) word = r.engine();
        rank.y.resize(size_t{ranks} * capacity * hidden / 2 + 16);
        for (uint32_t& word : rank.y) word = r.engine();
        return rank;
    }
    void place(Rank& rank) {
        std::vector<uint8_t> memory(places.bytes, 0xa5);
        std::memset(memory.data(), 0, sizeof(PeerHeader));
        const auto put = [&](int64_t at, const auto& words) {
            std::memcpy(memory.data() + at, words.data(), words.size() * 4);
        };
        put(places.inverse, rank.inverse), put(places.offsets, rank.offsets), put(places.rows, rank.rows);
        rank.memory = reinterpret_cast<uint32_t*>(on_gpu(memory));
        rank.q = on_gpu(std::vector<uint32_t>(q_words(), kGuard));
        rank.scales =
            reinterpret_cast<float*>(on_gpu(std::vector<uint32_t>(size_t{ranks} * capacity * blocks() + 16, kGuard)));
        rank.numbers = on_gpu(std::vector<int32_t>(experts + 2, -7));
        rank.counts = on_gpu(std::vector<int32_t>(ranks + 1, -7));
        rank.y_gpu = on_gpu(rank.y);
        rank.missing = on_gpu(std::vector<uint64_t>(1, 0));
        rank.results = on_gpu(std::vector<uint64_t>(size_t{ranks} * capacity, 0));
    }
    /// Rows one by one: of an expert ranks alternate.
    void compute() {
        for (uint32_t to = 0; to < ranks; ++to) {
            Rank& rank = all[to];
            rank.q_wanted.assign(q_words(), kGuard);
            rank.scales_wanted.assign(size_t{ranks} * capacity * blocks() + 16, kGuard);
            rank.numbers_wanted.assign(experts + 2, -7), rank.counts_wanted.assign(ranks + 1, -7);
            rank.returned_wanted.assign(size_t{most} * k * hidden / 2, 0xa5a5a5a5);
        }
        for (uint32_t to = 0; to < ranks; ++to) compute(to);
        for (Rank& rank : all)  // what found no place
            for (uint32_t r = 0; r < ranks; ++r) {
                const uint32_t first = rank.offsets[r * experts], end = rank.offsets[(r + 1) * experts];
                rank.counts_wanted[r] = static_cast<int32_t>(end - first);
                for (uint32_t row = first + std::min(capacity, end - first); row < end; ++row)
                    std::fill_n(rank.returned_wanted.begin() + size_t{row} * hidden / 2, hidden / 2, ~0u);
            }
    }
    void compute(uint32_t to) {
        Rank& rank = all[to];
        uint32_t here = 0;
        for (uint32_t e = 0; e < experts; ++e) {
            rank.numbers_wanted[e] = static_cast<int32_t>(here);
            std::vector<uint32_t> begins{here};
            for (const Rank& from : all) {
                const auto fitting = [&](uint32_t i) {
                    return std::min<uint32_t>(from.offsets[to * experts + i] - from.offsets[to * experts], capacity);
                };
                begins.push_back(begins.back() + fitting(e + 1) - fitting(e));
            }
            for (uint32_t r = 0; r < ranks; ++r) {
                Rank& from = all[r];
                const uint32_t first = from.offsets[to * experts + e], count = begins[r + 1] - begins[r];
                for (uint32_t row = first; row < first + count; ++row) {
                    here = place_in_turn(begins.data(), ranks, r, row - first);
                    const auto choice = std::find(from.inverse.begin(), from.inverse.end(), static_cast<int32_t>(row));
                    const size_t token = (choice - from.inverse.begin()) / k;
                    const uint32_t* const source = from.rows.data() + token * row_words();
                    std::copy_n(source, hidden / 4, rank.q_wanted.begin() + size_t{here} * hidden / 4);
                    for (uint32_t b = 0; b < blocks(); ++b)
                        rank.scales_wanted[size_t{b} * ranks * capacity + here] = source[hidden / 4 + b];
                    std::copy_n(rank.y.begin() + size_t{here} * hidden / 2, hidden / 2,
                                from.returned_wanted.begin() + size_t{row} * hidden / 2);
                }
            }
            here = begins.back();
        }
        rank.numbers_wanted[experts] = static_cast<int32_t>(here);
    }
    void make_params(uint32_t i) {
        Rank& rank = all[i];
        PeerView v{.memory = {},
                   .places = places,
                   .missing = rank.missing,
                   .timeout_ns = 20'000'000'000,
                   .rank = i,
                   .ranks = ranks,
                   .experts = experts,
                   .tokens = rank.tokens,
                   .k = k,
                   .capacity = capacity,
                   .value_bytes = hidden,
                   .scale_blocks = blocks(),
                   .row_bytes = row_words() * 4,
                   .result_bytes = hidden * 2};
        for (uint32_t r = 0; r < ranks; ++r) v.memory[r] = reinterpret_cast<uint8_t*>(all[r].memory);
        pulls.push_back({.peers = v,
                         .by_ranks = Divider::by(ranks),
                         .by_chunks = Divider::by(ceil_div(hidden, kPull.chunk_bytes())),
                         .q = reinterpret_cast<uint8_t*>(rank.q),
                         .scales = rank.scales,
                         .scale_col_stride = int64_t{ranks} * capacity,
                         .numbers = rank.numbers,
                         .counts = rank.counts,
                         .results = rank.results});
        pushes.push_back({.peers = v,
                          .by_chunks = Divider::by(ceil_div(hidden * 2, kPush.chunk_bytes())),
                          .y = reinterpret_cast<const uint8_t*>(rank.y_gpu),
                          .numbers = rank.numbers,
                          .results = rank.results});
    }
    void release() {
        for (Rank& r : all)
            for (void* memory : {(void*)r.memory, (void*)r.q, (void*)r.y_gpu, (void*)r.scales, (void*)r.numbers,
                                 (void*)r.counts, (void*)r.missing, (void*)r.results})
                check(cudaFree(memory), "cudaFree");
    }
    /// Words of all ranks that differ.
    size_t wrong(uint32_t generation) {
        size_t wrong = 0;
        const auto compare = [&](const char* what, uint32_t rank, const auto& found, const auto& wanted) {
            size_t n = 0;
            for (size_t i = 0; i < wanted.size(); ++i) n += std::memcmp(&found[i], &wanted[i], sizeof wanted[i]) != 0;
            if (n > 0) std::printf("%s of rank %u of %u: %zu words differ\n", what, rank, ranks, n);
            wrong += n;
        };
        for (uint32_t r = 0; r < ranks; ++r) {
            const Rank& rank = all[r];
            compare("rows", r, on_host(rank.q, rank.q_wanted.size()), rank.q_wanted);
            compare("scales", r, on_host(reinterpret_cast<uint32_t*>(rank.scales), rank.scales_wanted.size()),
                    rank.scales_wanted);
            compare("numbers", r, on_host(rank.numbers, rank.numbers_wanted.size()), rank.numbers_wanted);
            compare("counts", r, on_host(rank.counts, rank.counts_wanted.size()), rank.counts_wanted);
            compare("returned", r, on_host(rank.memory + places.returned / 4, rank.returned_wanted.size()),
                    rank.returned_wanted);
            const auto header = on_host(reinterpret_cast<PeerHeader*>(rank.memory), 1)[0];
            compare("header", r, std::vector{header.generation, header.ended}, std::vector{generation, 0u});
        }
        return wrong;
    }
};

template <typename Params>
void run(void (*kernel)(const Params*, uint32_t, uint32_t), const std::vector<Params>& params, uint32_t ctas,
         uint32_t threads, uint32_t lost = ~0u) {
    const auto ranks = static_cast<uint32_t>(params.size());
    Params* gpu = on_gpu(params);
    void* arguments[] = {&gpu, &ctas, &lost};
    check(cudaLaunchCooperativeKernel((const void*)kernel, dim3(ranks * ctas), dim3(threads), arguments,
                                      PeersConfig::smem_bytes(), nullptr),
          "cudaLaunchCooperativeKernel");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    check(cudaFree(gpu), "cudaFree");
}

}  // namespace

int main(int count, char** arguments) {
    const int rounds = count > 1 ? std::atoi(arguments[1]) : 60, repeats = count > 2 ? std::atoi(arguments[2]) : 20;
    Random random{std::mt19937(5)};
    size_t wrong = 0, calls = 0;
    for (int i = 0; i < rounds; ++i) {
        const uint32_t ranks = i % 6 == 0 ? 16 : random.any(1, 16);
        Problem p(random, ranks, i % 10 == 9);
        const uint32_t pull_ctas = random.any(1, 128 / ranks), push_ctas = random.any(1, 128 / ranks);
        for (int call = 1; call <= repeats; ++call, ++calls) {
            run(pull, p.pulls, pull_ctas, kPull.threads());
            run(push, p.pushes, push_ctas, kPush.threads());
            if (call == 1 || call == repeats) wrong += p.wrong(call);
        }
        p.release();
    }
    std::printf("%d problems, %zu calls: %zu words are wrong\n", rounds, calls, wrong);
    // A rank that does not come.
    Problem p(random, 4, false);
    for (uint32_t r = 0; r < 4; ++r) p.pulls[r].peers.timeout_ns = p.pushes[r].peers.timeout_ns = 20'000'000;
    run(pull, p.pulls, 4, kPull.threads(), 2);
    run(push, p.pushes, 4, kPush.threads(), 2);
    for (uint32_t r : {0, 1, 3}) {
        const uint64_t missing = on_host(p.all[r].missing, 1)[0];
        const auto numbers = on_host(p.all[r].numbers, p.experts + 1);
        const bool none = std::all_of(numbers.begin(), numbers.end(), [](int32_t n) { return n == 0; });
        if (missing != 4 || !none) std::printf("rank %u misses %llx\n", r, (unsigned long long)missing), ++wrong;
    }
    std::printf(wrong == 0 ? "ok\n" : "WRONG\n");
    return wrong == 0 ? 0 : 1;
}
