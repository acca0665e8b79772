// The GEMM on the CPU: the tiles of all its products over threads, sums rounded to the type of D. Layer engine.
#include "ops/gemm/cpu.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <finegemm/error.h>
#include <finegemm/gemm/schedule.h>

#include "engine/any_address.h"
#include "ops/gemm/finish/finishes.h"
#include "plan/elements.h"

namespace finegemm {

namespace {

template <typename T>
std::vector<T> sums_of(const CpuTile& t) {
    return std::vector<T>(static_cast<size_t>(t.rows * kCpuTileCols));
}

/// Calls set(index of an element in D, what it becomes) for the elements of a tile.
template <typename T, typename Set>
void for_each_element(const CpuTile& t, const std::vector<T>& sums, const ProductEpilogue& epilogue, const Set& set) {
    const DColumns columns = plan::columns_of(epilogue.arguments);
    with_finish(epilogue.finish, [&]<typename OfFinish>() {
        const OfFinish finish(epilogue.arguments);
        for (int64_t r = 0; r < t.rows; ++r) {
            const int64_t to = (t.row + r) * t.args.d.row_stride;
            for (int64_t c = 0; c < t.cols; ++c)
                set(to + columns.of(static_cast<uint32_t>(t.col + c)),
                    finish.of(sums[static_cast<size_t>(r * kCpuTileCols + c)], t.row + r, t.col + c));
        }
    });
}

/// The GPU adds to memory without subnormal numbers (PTX ISA, red).
float without_subnormals(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

float added(float d, float x, Numerics numerics) {
    if (numerics != Numerics::Hopper) return d + x;
    return without_subnormals(without_subnormals(d) + without_subnormals(x));
}
float added(float d, double x, Numerics) { return static_cast<float>(d + x); }

template <typename T>
void store_tile(const CpuTile& t, const std::vector<T>& sums, Numerics numerics, bool accumulate,
                const ProductEpilogue& epilogue) {
    void* const d = t.args.d.data;
    const auto each = [&](const auto& set) { for_each_element(t, sums, epilogue, set); };
    if (accumulate) return each([&](int64_t i, T x) { store(d, i, added(load<float>(d, i), x, numerics)); });
    visit_codes(t.args.d.dtype, [&]<typename Type>(Type) {
        if constexpr (requires { Type::rounded(T{}); }) each([&](int64_t i, T x) { store(d, i, Type::rounded(x)); });
    });
}

/// Sums of parts of K, each of which `sum_part(i, sums)` computes, added in their order.
template <typename T, typename SumPart>
void add_parts(size_t parts, std::vector<T>& sums, const SumPart& sum_part) {
    sum_part(0, sums);
    if (parts == 1) return;
    std::vector<T> part(sums.size());
    for (size_t i = 1; i < parts; ++i) {
        sum_part(i, part);
        for (size_t e = 0; e < sums.size(); ++e) sums[e] += part[e];
    }
}

/// Sums as the ranks of a cluster and the k-slices of each add them.
void hopper_sums(const CpuTile& t, Arithmetic kernel, std::vector<float>& sums) {
    const uint32_t blocks = ceil_div(static_cast<uint32_t>(t.args.a.cols), kScaleBlock);
    add_parts(kernel.splits, sums, [&](size_t rank, std::vector<float>& of_rank) {
        const KRange range = k_range(blocks, kernel.splits, static_cast<uint32_t>(rank));
        add_parts(kernel.k_slices, of_rank, [&](size_t k_slice, std::vector<float>& of_slice) {
            hopper_tile(t, {range.begin + static_cast<uint32_t>(k_slice), range.end, kernel.k_slices},
                        kernel.tensor_core_scales, of_slice.data());
        });
    });
}

void sum_tile(const CpuTile& t, Numerics, Arithmetic, std::vector<double>& sums) { exact_tile(t, sums.data()); }
void sum_tile(const CpuTile& t, Numerics numerics, Arithmetic kernel, std::vector<float>& sums) {
    // Where tensor cores add all of K no model is needed: such sums are documented by their order and a bound.
    const bool all_of_k = are(is_unscaled, t.args.a.dtype) || is_mx(t.args.sfa);
    if (numerics == Numerics::Hopper && !all_of_k) hopper_sums(t, kernel, sums);
    else fast_tile(t, sums.data());
}

/// The columns of D that a tile in the left half of the product's columns is paired with; one in the right half has
/// none of its own.
template <typename T>
void compute_pairs(const CpuTile& left, Numerics numerics, Arithmetic kernel, const Epilogue& arguments) {
    const int64_t half = left.args.d.cols / 2;
    if (left.col >= half) return;
    CpuTile right = left;
    right.col += half;
    auto gates = sums_of<T>(left), ups = gates;
    sum_tile(left, numerics, kernel, gates);
    sum_tile(right, numerics, kernel, ups);
    store_pairs(left, gates, ups, arguments);
}

int64_t parts_of(int64_t extent, int64_t size) { return (extent + size - 1) / size; }

/// Rows of a tile, fewer where K is so long that it would take more than about 0.1 s: a call ends between tiles.
int64_t tile_rows(int64_t k, Numerics numerics) {
    const int64_t most = numerics == Numerics::Hopper ? int64_t{1} << 20 : int64_t{1} << 24;  // elements of A
    return std::clamp<int64_t>(most / std::max<int64_t>(k, 1), 6, kCpuTileRows);
}

}  // namespace

int64_t cpu_tiles_of(const GemmArgs& args, Numerics numerics) {
    return parts_of(args.d.rows, tile_rows(args.a.cols, numerics)) * parts_of(args.d.cols, kCpuTileCols);
}

CpuTile cpu_tile_at(const GemmArgs& args, Numerics numerics, int64_t i) {
    const int64_t rows = tile_rows(args.a.cols, numerics), down = parts_of(args.d.rows, rows);
    const int64_t row = i % down * rows, col = i / down * kCpuTileCols;
    return {args, row, std::min(rows, args.d.rows - row), col, std::min(kCpuTileCols, args.d.cols - col)};
}

Arithmetic arithmetic_of(const plan::Problem& problem, const std::string& config) {
    const plan::DeviceSpec& h200 = *plan::find_device("h200");
    if (config.empty()) return arithmetic_of(plan::choose(problem, h200).config);
    const GemmConfig named = plan::config_named(config);
    // Rejects what the GPU rejects. But these may be some rows of a product, which has enough for the kernel's tiles.
    plan::Problem whole = problem;
    whole.m = std::max(whole.m, named.tile_m * cluster_tiles_m(named));
    if (const auto why_not = plan::rejected(whole, h200, named); !why_not.empty())
        throw plan::cannot_take(config, problem, why_not);
    return arithmetic_of(named);
}

void cpu_gemm_tile(const CpuTile& tile, Numerics numerics, Arithmetic kernel, bool accumulate,
                   const ProductEpilogue& epilogue) {
    const auto compute = [&]<typename T>(T) {
        if (pairs_columns(epilogue.finish)) return compute_pairs<T>(tile, numerics, kernel, epilogue.arguments);
        auto sums = sums_of<T>(tile);
        sum_tile(tile, numerics, kernel, sums);
        store_tile(tile, sums, numerics, accumulate, epilogue);
    };
    numerics == Numerics::Exact ? compute(double{}) : compute(float{});
}

namespace {

/// Sums over stacks, each in the order of their matrices.
void cpu_sum(const Call& call, ThreadPool& pool) {
    const GemmOptions& options = call.options;
    const std::vector<GemmArgs> products = products_of(call);
    const auto compute = [&]<typename T>(int64_t i, T, const auto& sum_tile) {
        const CpuTile first = cpu_tile_at(products[0], options.numerics, i);
        auto sums = sums_of<T>(first);
        add_parts(products.size(), sums, [&](size_t part, std::vector<T>& of_part) {
            sum_tile(cpu_tile_at(products[part], options.numerics, i), of_part.data());
        });
        store_tile(first, sums, options.numerics, options.accumulate, {});
    };
    pool.parallel_for(
        cpu_tiles_of(products[0], options.numerics),
        [&](int64_t i) {
            options.numerics == Numerics::Exact ? compute(i, double{}, exact_tile) : compute(i, float{}, fast_tile);
        },
        options.poll);
}

}  // namespace

void cpu_gemm(const Call& call, ThreadPool& pool, bool batch_invariant) {
    if (call.summed()) return cpu_sum(call, pool);
    if (plan::takes_rows(call.epilogue()) || plan::places_rows(call.epilogue()))
        return cpu_found_rows(call, pool, batch_invariant);
    const GemmOptions& options = call.options;
    const std::vector<GemmArgs> products = products_of(call);
    const std::vector<ProductEpilogue> epilogues = epilogues_of(call, products);
    std::vector<int64_t> ends;  // of each product's tiles, in one count for all
    for (const GemmArgs& product : products)
        ends.push_back((ends.empty() ? 0 : ends.back()) + cpu_tiles_of(product, options.numerics));
    if (ends.empty()) return;
    const bool model = options.numerics == Numerics::Hopper && call.a.matrix.cols > 0;
    const Arithmetic kernel = model ? arithmetic_of(problem_of(call, batch_invariant), options.config) : Arithmetic{};
    const auto compute = [&](int64_t i) {
        const auto at = static_cast<size_t>(std::ranges::upper_bound(ends, i) - ends.begin());
        const CpuTile tile = cpu_tile_at(products[at], options.numerics, at == 0 ? i : i - ends[at - 1]);
        cpu_gemm_tile(tile, options.numerics, kernel, options.accumulate, epilogues[at]);
    };
    pool.parallel_for(ends.back(), compute, options.poll);
}

void cpu_gemm_exact(const GemmArgs& args, ThreadPool& pool, double* d) {
    pool.parallel_for(cpu_tiles_of(args, Numerics::Exact), [&](int64_t i) {
        const CpuTile tile = cpu_tile_at(args, Numerics::Exact, i);
        auto sums = sums_of<double>(tile);
        exact_tile(tile, sums.data());
        for (int64_t r = 0; r < tile.rows; ++r) {
            const double* from = &sums[static_cast<size_t>(r * kCpuTileCols)];
            std::copy_n(from, tile.cols, d + (tile.row + r) * args.d.cols + tile.col);
        }
    });
}

double sum_bound(double absolute, int64_t k_blocks, Numerics numerics) {
    // docs/numerics.md, "The error bound", derives each line.
    const double unit = numerics == Numerics::Exact ? 0x1p-53 : 0x1p-24;
    // At least (1 + unit)^n - 1: the relative error of n roundings.
    const auto roundings = [unit](int64_t n) { return std::expm1(static_cast<double>(n) * unit); };
    const double block = numerics == Numerics::Hopper ? kTensorCoreLoss : roundings(kScaleBlock);
    const int64_t of_scales = numerics == Numerics::Hopper ? kFactorRoundings : 1;
    const double blocks = roundings(k_blocks + of_scales + 1);  // of each sum, of a product where there is no fma
    // Underflow of one promotion: a subnormal product of scales, times a block < 2^25.
    const double of_one = numerics == Numerics::Hopper ? 0x1p-123 : 0x1p-125;
    const double underflow = static_cast<double>(k_blocks) * of_one * (1 + blocks);
    return absolute * (block + blocks * (1 + block)) + underflow;
}

double unscaled_sum_bound(double absolute, int64_t k) {
    return absolute * std::expm1(static_cast<double>(k + k / kScaleBlock + 2) * 0x1p-24) +
           static_cast<double>(k) * 0x1p-125;
}

double error_bound(double absolute, double exact, int64_t k_blocks, Numerics numerics) {
    const double sum = sum_bound(absolute, k_blocks, numerics);
    return sum + (std::abs(exact) + sum) * 0x1p-8 + 0x1p-134;
}

}  // namespace finegemm
