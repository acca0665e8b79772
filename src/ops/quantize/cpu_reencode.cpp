// Codes with exponents for 32 of K that get scales for 128, on the CPU. Layer engine.
#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "engine/any_address.h"
#include "ops/quantize/cpu.h"

namespace finegemm {

namespace {

constexpr int64_t kBlock = kScaleBlock, kCols = kReencodedCols;

constexpr auto kValues = [] {
    std::array<float, 256> values{};
    for (size_t code = 0; code < values.size(); ++code) values[code] = float_of_e4m3(static_cast<uint8_t>(code));
    return values;
}();

/// 128 columns of a row, or those that there are.
struct Part {
    const uint8_t* codes;
    uint8_t* q;
    uint32_t word;
    int64_t cols;

    uint32_t needed() const {
        uint32_t most = 0;
        for (int64_t first = 0; first < cols; first += kCols) {
            float largest = 0;
            for (int64_t c = first; c < std::min(cols, first + kCols); ++c) {
                const float magnitude = float_of_bits(float_bits(kValues[codes[c]]) & 0x7fffffffu);
                if (magnitude > largest) largest = magnitude;  // NaN is not
            }
            most = std::max(most, exponent_needed(largest, exponent_in(word, static_cast<uint32_t>(first))));
        }
        return most;
    }
    /// Writes codes beside the scale of that exponent. Is a value not what it was?
    bool move(uint32_t to) const {
        bool differs = false;
        for (int64_t c = 0; c < cols; ++c) {
            const float x = kValues[codes[c]] * code_factor(exponent_in(word, static_cast<uint32_t>(c)), to);
            q[c] = e4m3_of_float(x);
            differs |= kValues[q[c]] != x && !is_nan(x);
        }
        return differs;
    }
};

Part part_of(const ReencodeCall& call, int64_t matrix, int64_t row, int64_t col) {
    const ConstMatrix &x = call.codes.matrix, &words = call.words.matrix;
    const Matrix& q = call.q.matrix;
    return {.codes = static_cast<const uint8_t*>(x.data) + matrix * call.codes.stride + row * x.row_stride + col,
            .q = static_cast<uint8_t*>(q.data) + matrix * call.q.stride + row * q.row_stride + col,
            .word = load<uint32_t>(
                words.data, matrix * call.words.stride + row * words.row_stride + col / kBlock * words.col_stride),
            .cols = std::min(kBlock, x.cols - col)};
}

}  // namespace

void run_on_cpu(const ReencodeCall& call, ThreadPool& pool) {
    const ConstMatrix& x = call.codes.matrix;
    const Matrix& scales = call.scales.matrix;
    const int64_t height = call.has_blocks() ? kBlock : 1, task = std::max<int64_t>(height, 16);  // rows
    const int64_t tasks = (x.rows + task - 1) / task;                                             // of a matrix
    std::atomic<uint32_t> changed = 0;
    const auto block = [&](int64_t matrix, int64_t row, int64_t col) {
        const int64_t end = std::min(x.rows, row + height);
        uint32_t needed = 0;
        for (int64_t r = row; r < end; ++r) needed = std::max(needed, part_of(call, matrix, r, col).needed());
        for (int64_t r = row; r < end; ++r)
            if (part_of(call, matrix, r, col).move(needed)) ++changed;
        store(scales.data,
              matrix * call.scales.stride + row / height * scales.row_stride + col / kBlock * scales.col_stride,
              reencoded_scale(needed));
    };
    pool.parallel_for(
        call.codes.count * tasks,
        [&](int64_t i) {
            const int64_t first = i % tasks * task;
            for (int64_t row = first; row < std::min(x.rows, first + task); row += height)
                for (int64_t col = 0; col < x.cols; col += kBlock) block(i / tasks, row, col);
        },
        call.options.poll);
    if (call.changed.data) store(call.changed.data, 0, load<uint32_t>(call.changed.data, 0) + changed);
}

}  // namespace finegemm
