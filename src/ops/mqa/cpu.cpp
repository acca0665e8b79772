// An indexer's scores on the CPU, bit for bit as the kernels have them. Layer engine.
#include "ops/mqa/cpu.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <finegemm/mqa/mqa.h>
#include <finegemm/mqa/schedule.h>

#include "engine/any_address.h"
#include "ops/gemm/call.h"
#include "ops/gemm/cpu_tiles.h"

namespace finegemm {

namespace {

constexpr int64_t kKeys = kCpuTileCols;  // that products are computed for at once
constexpr int64_t kKeysOfTask = 8 * kKeys;

int64_t parts_of(int64_t extent, int64_t size) { return (extent + size - 1) / size; }

int64_t number(const ConstMatrix& x, int64_t r, int64_t c) {
    return load<int32_t>(x.data, (x.rows > 1 ? r * x.row_stride : 0) + c);
}

/// Keys that a query sees.
struct Window {
    int64_t begin, end;
    bool has(int64_t key) const { return begin <= key && key < end; }
};

/// The queries of a call: all that prefill and decoding do not differ in.
struct Queries {
    const ConstStack& q;
    const ConstMatrix& w;
    const Matrix& d;
    const MqaOptions& options;
    MqaKeys keys;

    int64_t heads() const { return q.matrix.rows; }
    int64_t dim() const { return q.matrix.cols; }
    bool abs() const { return options.relu == Relu::Abs && has_abs_form(keys, static_cast<uint32_t>(heads())); }
    /// As many as a tile of products has rows for, with the columns of the abs form.
    int64_t at_once() const { return kCpuTileRows / (heads() + 2); }
    const uint8_t* codes(int64_t query, int64_t head) const {
        return static_cast<const uint8_t*>(q.matrix.data) + (q.count > 1 ? query * q.stride : 0) +
               head * q.matrix.row_stride;
    }
    float weight(int64_t query, int64_t head) const {
        return load<float>(w.data, (w.rows > 1 ? query * w.row_stride : 0) + head);
    }
};

/// A few queries that are multiplied by the same keys.
struct Block {
    int64_t count, heads, dim;
    std::vector<uint8_t> codes;  // [count * heads, dim], then the two columns of each query
    std::vector<float> weights;  // [count, heads]; in the abs form halved
    std::vector<float> steps;    // of the columns of each query; 0: it takes the exact form

    Block(const Queries& all, int64_t first, int64_t size);
    int64_t rows() const { return count * (heads + 2); }
    const uint8_t* column(int64_t i, int64_t j) const { return &codes[index(count * heads + 2 * i + j, 0)]; }
    /// x: products with one key of this query's heads, kCpuTileCols apart; y: of its columns.
    float sum(int64_t i, const float* x, const float* y) const;

private:
    size_t index(int64_t row, int64_t k) const { return static_cast<size_t>(row * dim + k); }
    void take_abs_form(int64_t i);
};

Block::Block(const Queries& all, int64_t first, int64_t size) : count(size), heads(all.heads()), dim(all.dim()) {
    codes.resize(index(rows(), 0));
    weights.resize(static_cast<size_t>(count * heads));
    steps.resize(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
        for (int64_t h = 0; h < heads; ++h) {
            std::copy_n(all.codes(first + i, h), dim, &codes[index(i * heads + h, 0)]);
            weights[static_cast<size_t>(i * heads + h)] = all.weight(first + i, h);
        }
        if (all.abs()) take_abs_form(i);
    }
}

void Block::take_abs_form(int64_t i) {
    float* w = &weights[static_cast<size_t>(i * heads)];
    std::vector<float> v(static_cast<size_t>(dim));
    for (int64_t h = 0; h < heads; ++h)
        for (int64_t k = 0; k < dim; ++k) {
            float& to = v[static_cast<size_t>(k)];
            to = std::fma(w[h] / 2, float_of_e4m3(codes[index(i * heads + h, k)]), to);
        }
    uint32_t largest = 0;
    for (const float x : v) largest = std::max(largest, magnitude_bits(x));
    if (!is_finite_magnitude(largest)) return;
    const uint32_t exponent = linear_exponent(largest);
    for (int64_t k = 0; k < dim; ++k) {
        const auto [one, two] = residual_pair(v[static_cast<size_t>(k)] * linear_inverse(exponent));
        codes[index(count * heads + 2 * i, k)] = one;
        codes[index(count * heads + 2 * i + 1, k)] = two;
    }
    for (int64_t h = 0; h < heads; ++h) w[h] /= 2;
    steps[static_cast<size_t>(i)] = linear_step(exponent);
}

float Block::sum(int64_t i, const float* x, const float* y) const {
    const float* w = &weights[static_cast<size_t>(i * heads)];
    const float step = steps[static_cast<size_t>(i)];
    float partial[4] = {};
    for (uint32_t lane = 0; lane < 4; ++lane)
        for (uint32_t n = 0; n < heads / 4; ++n) {
            const uint32_t h = mqa_head(lane, n);
            const float product = x[h * kCpuTileCols];
            partial[lane] = std::fma(step > 0 ? std::abs(product) : relu(product), w[h], partial[lane]);
        }
    const float sum = mqa_quad_sum(partial[0], partial[1], partial[2], partial[3]);
    return step > 0 ? std::fma(std::fma(y[kCpuTileCols], 1 / kResidualSteps, y[0]), step, sum) : sum;
}

/// Up to kKeys keys, in one piece.
struct Keys {
    const uint8_t* codes;
    int64_t row_stride, count;
    const float* scales;
};

std::vector<float> products(const Block& block, const Keys& keys) {
    static constexpr float kOne = 1;
    const auto ones = [](int64_t rows) { return ConstMatrix{&kOne, DType::F32, rows, 1, 0, 0, {}}; };
    const GemmArgs args{.a = {block.codes.data(), DType::E4M3, block.rows(), block.dim, block.dim, 1, {}},
                        .sfa = ones(block.rows()),
                        .b = {keys.codes, DType::E4M3, keys.count, block.dim, keys.row_stride, 1, {}},
                        .sfb = ones(keys.count),
                        .d = {}};
    std::vector<float> x(static_cast<size_t>(block.rows() * kCpuTileCols));
    hopper_tile(CpuTile{args, 0, block.rows(), 0, keys.count}, {0, 1, 1}, false, x.data());
    return x;
}

void store_logit(const Matrix& d, int64_t row, int64_t col, float x) {
    constexpr uint32_t kNan = 0x7fffffff;  // the one that a GPU's arithmetic makes
    const int64_t at = row * d.row_stride + col;
    if (d.dtype == DType::BF16) store(d.data, at, bf16_of_float(x));
    else store(d.data, at, is_nan(x) ? float_of_bits(kNan) : x);
}

/// Logits of queries from `first` on and of keys from `begin` to before `end`. `window(i)`: of a query of the call;
/// `load(key, count)`: that many Keys from that one on, of which a query sees some.
template <typename WindowOf, typename Load>
void score(const Queries& all, int64_t first, int64_t count, int64_t begin, int64_t end, const WindowOf& window,
           const Load& load) {
    const LogitsForm form = all.options.form;
    const Block block(all, first, count);
    for (int64_t key = begin; key < end; key += kKeys) {
        const int64_t size = std::min(kKeys, end - key);
        Window seen{end, begin};
        for (int64_t i = 0; i < count; ++i) {
            const Window of = window(first + i);
            if (of.end <= key || of.begin >= key + size || of.end <= of.begin) continue;
            seen = {std::min(seen.begin, std::max(of.begin, key)), std::max(seen.end, std::min(of.end, key + size))};
        }
        std::vector<float> x;
        Keys keys{};
        if (seen.begin < seen.end) {
            keys = load(seen.begin, seen.end - seen.begin);
            x = products(block, keys);
        }
        for (int64_t i = 0; i < count; ++i) {
            const Window of = window(first + i);
            for (int64_t j = key; j < key + size; ++j) {
                const int64_t row = first + i, col = form == LogitsForm::Compressed ? j - of.begin : j;
                if (of.has(j)) {
                    const float* at = &x[static_cast<size_t>(j - seen.begin)];
                    const float sum = block.sum(i, at + i * block.heads * kCpuTileCols,
                                                at + (count * block.heads + 2 * i) * kCpuTileCols);
                    store_logit(all.d, row, col, sum * finegemm::load<float>(keys.scales, j - seen.begin));
                } else if (form == LogitsForm::Filled) {
                    store_logit(all.d, row, col, -std::numeric_limits<float>::infinity());
                }
            }
        }
    }
}

}  // namespace

void run_on_cpu(const MqaCall& call, ThreadPool& pool) {
    const Queries all{call.q, call.w, call.d, call.options, MqaKeys::Rows};
    const bool compressed = call.options.form == LogitsForm::Compressed;
    const auto window = [&](int64_t i) {
        const int64_t begin = std::max<int64_t>(number(call.starts, 0, i), 0);
        const int64_t most = compressed ? std::min(call.keys(), begin + call.d.cols) : call.keys();
        return Window{begin, std::min(number(call.ends, 0, i), most)};
    };
    const auto load = [&](int64_t key, int64_t count) {
        return Keys{static_cast<const uint8_t*>(call.k.data) + key * call.k.row_stride, call.k.row_stride, count,
                    static_cast<const float*>(call.sfk.data) + key};
    };
    const int64_t at_once = all.at_once(), down = parts_of(call.queries(), at_once);
    const auto task = [&](int64_t t) {
        const int64_t first = t % down * at_once, key = t / down * kKeysOfTask;
        score(all, first, std::min(at_once, call.queries() - first), key, std::min(key + kKeysOfTask, call.keys()),
              window, load);
    };
    pool.parallel_for(down * parts_of(call.keys(), kKeysOfTask), task, call.options.poll);
}

namespace {

/// Keys of one request, copied from pages.
struct PagedKeys {
    const PagedMqaCall& call;
    int64_t request;
    std::vector<uint8_t> codes{};
    std::vector<float> scales{};

    Keys load(int64_t first, int64_t count) {
        const int64_t dim = call.dim(), page_size = call.page_size();
        codes.resize(static_cast<size_t>(count * dim));
        scales.resize(static_cast<size_t>(count));
        for (int64_t i = 0; i < count; ++i) {
            const int64_t key = first + i, slot = key % page_size;
            const int64_t named = number(call.block_table, request, key / page_size);
            const int64_t page = named >= 0 && named < call.cache.rows ? named : 0;
            const uint8_t* bytes = static_cast<const uint8_t*>(call.cache.data) + page * call.cache.row_stride;
            std::copy_n(bytes + slot * dim, dim, &codes[static_cast<size_t>(i * dim)]);
            scales[static_cast<size_t>(i)] = finegemm::load<float>(bytes + page_size * dim, slot);
        }
        return {codes.data(), dim, count, scales.data()};
    }
};

}  // namespace

void run_on_cpu(const PagedMqaCall& call, ThreadPool& pool) {
    const Queries all{call.q, call.w, call.d, call.options, MqaKeys::Pages};
    const int64_t each = call.queries_each(), most = std::min(call.block_table.cols * call.page_size(), call.d.cols);
    const auto window = [&](int64_t i) {
        const int64_t b = i / each, t = i % each, last = number(call.lengths, b, call.lengths.cols - 1);
        const int64_t own = call.has_own_lengths() ? number(call.lengths, b, t) : last - (each - 1 - t);
        return Window{0, std::min({own, last, most})};
    };
    const int64_t at_once = std::min(all.at_once(), each), down = parts_of(each, at_once);
    const int64_t across = parts_of(call.d.cols, kKeysOfTask);
    const auto task = [&](int64_t i) {
        const int64_t b = i / across / down, t = i / across % down * at_once, key = i % across * kKeysOfTask;
        PagedKeys keys{call, b};
        score(all, b * each + t, std::min(at_once, each - t), key, std::min(key + kKeysOfTask, call.d.cols), window,
              [&](int64_t first, int64_t count) { return keys.load(first, count); });
    };
    pool.parallel_for(call.requests() * down * across, task, call.options.poll);
}

void run_on_cpu(const PagedMqaScheduleCall& call, ThreadPool&) {
    const ConstMatrix& lengths = call.lengths;
    const int64_t atoms = mqa_atoms(static_cast<uint32_t>(call.queries_each)), slots = call.slots();
    const auto splits = [&](int64_t b) {
        return parts_of(std::max<int64_t>(number(lengths, b, lengths.cols - 1), 0), kMqaSplitKeys);
    };
    int64_t units = 0;
    for (int64_t b = 0; b < lengths.rows; ++b) units += splits(b) * atoms;
    const auto share = MqaSlots::of(static_cast<uint32_t>(units), static_cast<uint32_t>(slots));
    int64_t request = 0, before = 0;  // units of the requests before it
    for (int64_t s = 0; s <= slots; ++s) {
        const int64_t unit = share.begin(static_cast<uint32_t>(s));
        for (; request < lengths.rows && before + splits(request) * atoms <= unit; ++request)
            before += splits(request) * atoms;
        const int64_t each = request < lengths.rows ? splits(request) : 1;
        const int64_t row[] = {request * atoms + (unit - before) / each, (unit - before) % each};
        for (int64_t c = 0; c < 2; ++c)
            store(call.schedule.data, s * call.schedule.row_stride + c, static_cast<int32_t>(row[c]));
    }
}

}  // namespace finegemm
