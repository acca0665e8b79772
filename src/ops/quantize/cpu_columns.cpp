// Quantisation of columns on the CPU: tiles are transposed, and their rows quantised as any others. Layer engine.
#include <algorithm>
#include <array>
#include <vector>

#include "engine/any_address.h"
#include "ops/quantize/cpu.h"

namespace finegemm {

namespace {

constexpr int64_t kBlock = kScaleBlock;

/// The rows of x that become each block of q's columns. Writes where groups begin.
std::vector<RowRange> rows_of_blocks(const QuantizeColumnsCall& call) {
    const auto rows = static_cast<uint32_t>(call.x.rows);
    const ColumnGroups groups = call.groups();
    std::vector<RowRange> blocks(static_cast<size_t>((call.q.cols + kBlock - 1) / kBlock));
    if (!groups.offsets) {
        for (uint32_t b = 0; b < blocks.size(); ++b) blocks[b] = rows_of_block({0, rows}, b);
        return blocks;
    }
    size_t next = 0;
    for (uint32_t g = 0; g <= groups.groups; ++g) {
        store(groups.begins, g, static_cast<int32_t>(next * kBlock));
        if (g == groups.groups) break;
        const RowRange group = groups.group(g, rows);
        for (uint32_t b = 0; b < ceil_div(group.size(), kScaleBlock) && next < blocks.size(); ++b)
            blocks[next++] = rows_of_block(group, b);
    }
    return blocks;
}

/// A tile of x by columns, with zeros behind its rows.
template <typename Element>
struct TransposedTile {
    std::array<Element, kBlock * kBlock> elements{};

    void fill(const QuantizeColumnsCall& call, RowRange rows, int64_t first_col, int64_t cols) {
        for (int64_t r = 0; r < rows.size(); ++r)
            for (int64_t c = 0; c < cols; ++c)
                elements[static_cast<size_t>(c * kBlock + r)] =
                    load<Element>(call.x.data, (rows.begin + r) * call.x.row_stride + first_col + c);
    }
};

template <typename Element>
void quantize_tile(const QuantizeColumnsCall& call, RowRange rows, int64_t block, int64_t first_col) {
    const int64_t cols = std::min(kBlock, call.x.cols - first_col), first = block * kBlock;
    const bool power_of_two = call.options.power_of_two_scales;
    TransposedTile<Element> tile;
    tile.fill(call, rows, first_col, cols);
    for (int64_t c = 0; c < cols; ++c) {
        const int64_t row = first_col + c;  // of q
        const CpuQuantizeBlock column{.x = &tile.elements[static_cast<size_t>(c * kBlock)],
                                      .q = static_cast<uint8_t*>(call.q.data) + row * call.q.row_stride + first,
                                      .dtype = call.x.dtype,
                                      .codes = codes_of(call.q),
                                      .rows = 1,
                                      .cols = std::min(kBlock, call.q.cols - first),
                                      .x_row_stride = 0,
                                      .q_row_stride = 0};
        store(call.scales.data, row * call.scales.row_stride + block * call.scales.col_stride,
              cpu_quantize_block(column, power_of_two));
    }
    if (!call.has_rows()) return;
    for (int64_t row = rows.begin; row < rows.end; ++row) {
        const CpuQuantizeBlock part{
            .x = static_cast<const uint8_t*>(call.x.data) +
                 (row * call.x.row_stride + first_col) * static_cast<int64_t>(sizeof(Element)),
            .q = static_cast<uint8_t*>(call.row_q.data) + row * call.row_q.row_stride + first_col,
            .dtype = call.x.dtype,
            .codes = codes_of(call.q),
            .rows = 1,
            .cols = cols,
            .x_row_stride = 0,
            .q_row_stride = 0};
        store(call.row_scales.data, row * call.row_scales.row_stride + first_col / kBlock * call.row_scales.col_stride,
              cpu_quantize_block(part, power_of_two));
    }
}

/// Offsets that break the rules may give a row to several groups: then no two threads may write its codes.
bool are_apart(const std::vector<RowRange>& blocks) {
    int64_t end = 0;
    for (const RowRange& rows : blocks) {
        if (rows.begin < std::min<int64_t>(end, rows.end)) return false;
        end = std::max<int64_t>(end, rows.end);
    }
    return true;
}

}  // namespace

void run_on_cpu(const QuantizeColumnsCall& call, ThreadPool& pool) {
    const std::vector<RowRange> blocks = rows_of_blocks(call);
    const int64_t across = (call.x.cols + kBlock - 1) / kBlock;
    const auto tile = [&](int64_t i) {
        const int64_t block = i / across, first_col = i % across * kBlock;
        const RowRange rows = blocks[static_cast<size_t>(block)];
        if (call.x.dtype == DType::F32) quantize_tile<uint32_t>(call, rows, block, first_col);
        else quantize_tile<uint16_t>(call, rows, block, first_col);
    };
    const auto down = static_cast<int64_t>(blocks.size());
    if (are_apart(blocks)) return pool.parallel_for(down * across, tile, call.options.poll);
    pool.parallel_for(
        across,
        [&](int64_t column) {
            for (int64_t block = 0; block < down; ++block) tile(block * across + column);
        },
        call.options.poll);
}

}  // namespace finegemm
