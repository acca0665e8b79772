// One product on a GPU by several implementations. Layer cli.
#include "cli/bench/comparison.h"

#include <algorithm>
#include <functional>
#include <span>

#include <fmt/format.h>

#include <finegemm/error.h>
#include <finegemm/gemm.h>
#include <finegemm/quantize.h>

#include "cli/files/files.h"
#include "cli/random.h"
#include "workbench/accuracy.h"

namespace finegemm::cli {

namespace {

using cublaslt::Mode;

constexpr int64_t kRowsToCheck = 4, kRowsToCompare = 16;

int64_t rounded_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

/// The bytes from a matrix's first element to its last.
size_t span_bytes(const ConstMatrix& m) {
    return static_cast<size_t>((m.rows - 1) * m.row_stride + (m.cols - 1) * m.col_stride + 1) *
           static_cast<size_t>(size_of(m.dtype));
}

/// A matrix of the GPU, copied to the host with its strides.
struct Copy {
    Copy(Gpu& gpu, const ConstMatrix& there) : bytes(span_bytes(there)), view(there) {
        gpu.download(bytes.data(), there.data, bytes.size());
        view.data = bytes.data();
        view.device = {};
    }
    std::vector<uint8_t> bytes;
    ConstMatrix view;
};

/// Calls once, into a D full of NaN: what is not written shows.
void run_once(Gpu& gpu, const Matrix& d, const std::function<void()>& call) {
    gpu.fill(d.data, 0xff, span_bytes(d));
    gpu.run(call);
}

/// Rows of D, evenly spread, on the host.
HostMatrix some_rows(Gpu& gpu, const ConstMatrix& d) {
    const int64_t step = (d.rows + kRowsToCompare - 1) / kRowsToCompare;
    HostMatrix rows = make_matrix(d.dtype, (d.rows + step - 1) / step, d.cols);
    const auto row_bytes = static_cast<size_t>(d.cols * size_of(d.dtype));
    const auto* data = static_cast<const uint8_t*>(d.data);
    for (int64_t r = 0; r < rows.rows; ++r)
        gpu.download(&rows.bytes[static_cast<size_t>(r) * row_bytes],
                     data + static_cast<size_t>(r * step * d.row_stride * size_of(d.dtype)), row_bytes);
    return rows;
}

double share_of_bound(Gpu& gpu, const GemmArgs& args) {
    Copy a(gpu, args.a), sfa(gpu, args.sfa), b(gpu, args.b), sfb(gpu, args.sfb), d(gpu, args.d);
    Matrix result = args.d;
    result.data = d.bytes.data();
    result.device = {};
    return accuracy_of({GemmArgs{a.view, sfa.view, b.view, sfb.view, result}, {}}, kRowsToCheck).of_bound;
}

void take_times(Gpu& gpu, int repeats, std::span<Entry* const> timed, std::span<const std::function<void()>> calls) {
    const auto times = gpu.times(repeats, calls);
    for (size_t i = 0; i < timed.size(); ++i) {
        std::vector<double> sorted = times[i];
        std::ranges::sort(sorted);
        timed[i]->us = median_of(sorted);
        timed[i]->spread = (sorted[sorted.size() * 3 / 4] - sorted[sorted.size() / 4]) / timed[i]->us;
    }
}

}  // namespace

double allowed_difference(Mode mode, int64_t k) {
    // Two roundings to bf16, and what the tensor core drops within a block of 128.
    constexpr double kBlock = 0x1p-7;
    // Over all of K the sum is cut to 13 fraction bits at each step of 32.
    const int64_t steps = rounded_up(k, 32) / 32;
    return mode == Mode::Block ? kBlock : kBlock + static_cast<double>(steps) * 0x1p-13;
}

std::string wrong_operands_text(int64_t wrong) {
    return fmt::format("its operands are WRONG: {} codes and scales are not what the CPU quantises", wrong);
}

/// One product's operands on the GPU, quantised from random numbers; scales lie where cuBLASLt wants them, as FineGEMM
/// reads any layout. The GPU's memory is released with them.
struct Comparison::Case {
    Case(Context& context, Gpu& g, const HostMatrix& random, const Shape& shape) : gpu(g) {
        const auto [m, n, k, line] = shape;
        const int64_t k_blocks = rounded_up(k, 128) / 128, n_blocks = rounded_up(n, 128) / 128;
        a = matrix(DType::E4M3, m, k, k, 1);
        b = matrix(DType::E4M3, n, k, k, 1);
        sfa = matrix(DType::F32, m, k_blocks, 1, rounded_up(m, cublaslt::kScaleRowMultiple));
        sfb = matrix(DType::F32, n_blocks, k_blocks, rounded_up(k_blocks, cublaslt::kScaleRowMultiple), 1);
        one = matrix(DType::F32, 1, 1, 1, 1);
        workspace = gpu.allocate(cublaslt::kWorkspaceBytes);
        quantize(context, quantize_rows, random_rows(random, 0, m, k), a, sfa);
        quantize(context, quantize_blocks, random_rows(random, kRandomPeriod / 2, n, k), b, sfb);
        const float value = 1;
        gpu.upload(one.data, &value, sizeof value);
    }
    ~Case() { gpu.release(); }
    Case(const Case&) = delete;
    Case& operator=(const Case&) = delete;

    /// The product into a matrix of its own; `scaled`: not by 1 alone.
    GemmArgs product(bool scaled) {
        GemmArgs args{a, sfa, b, sfb, matrix(DType::BF16, a.rows, b.rows, b.rows, 1)};
        if (!scaled)
            for (ConstMatrix* scales : {&args.sfa, &args.sfb})
                scales->data = one.data, scales->row_stride = scales->col_stride = 0;
        return args;
    }

    Matrix matrix(DType dtype, int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride) {
        Matrix made{nullptr, dtype, rows, cols, row_stride, col_stride, gpu.device()};
        made.data = gpu.allocate(span_bytes(made));
        return made;
    }
    /// The random values over and over, as random_matrix has them.
    static HostMatrix random_rows(const HostMatrix& random, int64_t first, int64_t rows, int64_t cols) {
        HostMatrix x = make_matrix(DType::F32, rows, cols);
        fill(x, random, first);
        return x;
    }
    Matrix uploaded(const HostMatrix& x) {
        const Matrix there = matrix(x.dtype, x.rows, x.cols, x.cols, 1);
        gpu.upload(there.data, x.bytes.data(), x.bytes.size());
        return there;
    }
    /// On the GPU, and on the CPU to compare with: what checks take for the operands is theirs.
    void quantize(Context& context, decltype(quantize_rows)* by, HostMatrix x, const Matrix& q, const Matrix& scales) {
        by(context, uploaded(x), q, scales, {});
        HostMatrix q_here = make_matrix(q.dtype, q.rows, q.cols),
                   scales_here = make_matrix(scales.dtype, scales.rows, scales.cols);
        by(context, x.view(), q_here.view(), scales_here.view(), {});
        wrong_operands += differing_elements(Copy(gpu, q).view, q_here.view());
        wrong_operands += differing_elements(Copy(gpu, scales).view, scales_here.view());
    }

    Gpu& gpu;
    Matrix a, b, sfa, sfb, one;
    void* workspace;
    int64_t wrong_operands = 0;  // codes and scales
};

Comparison::Comparison(Context& context, Gpu& gpu, ComparisonOptions options)
    : context_(context), gpu_(gpu), options_(std::move(options)), values_(random_matrix(1, kRandomPeriod, 1)) {}

Entry Comparison::check_finegemm(Case& products, std::vector<std::function<void()>>& calls) {
    const GemmArgs args = products.product(true);
    const auto call = [this, args] { gemm(context_, args, {.config = options_.config}); };
    run_once(gpu_, args.d, call);
    Entry entry{.name = "finegemm", .error = share_of_bound(gpu_, args)};
    if (products.wrong_operands > 0) entry.gap = wrong_operands_text(products.wrong_operands);
    else if (*entry.error <= 1) calls.emplace_back(call);
    else entry.gap = fmt::format("its result is WRONG: {:.3g} times the error bound", *entry.error);
    return entry;
}

Entry Comparison::check_cublas(Case& products, Mode mode, std::vector<std::function<void()>>& calls) {
    const bool scaled = mode == Mode::Block;
    Entry entry{.name = scaled ? "cublas_block" : "cublas_tensor"};
    const GemmArgs theirs = products.product(scaled), ours = products.product(scaled);
    std::function<void()> call;
    try {
        gpu_.run([&] { call = options_.cublas->product(mode, theirs, products.workspace); });
        run_once(gpu_, theirs.d, call);
    } catch (const Error& e) {
        if (e.code() != Errc::Unsupported) throw;
        entry.gap = e.what();
        return entry;
    }
    run_once(gpu_, ours.d, [&] { gemm(context_, ours, {.config = options_.config}); });
    entry.error = relative_difference(some_rows(gpu_, theirs.d).view(), some_rows(gpu_, ours.d).view());
    const double allowed = allowed_difference(mode, ours.a.cols);
    if (*entry.error <= allowed) calls.push_back(std::move(call));
    else
        entry.gap = fmt::format("its result differs from FineGEMM's by {:.2g} of the values; {:.2g} is allowed",
                                *entry.error, allowed);
    return entry;
}

std::vector<Entry> Comparison::of(const Shape& shape) {
    Case products(context_, gpu_, values_, shape);
    std::vector<std::function<void()>> calls;
    std::vector<Entry> entries{check_finegemm(products, calls)};
    if (options_.cublas)
        for (const Mode mode : {Mode::Tensor, Mode::Block}) entries.push_back(check_cublas(products, mode, calls));
    std::vector<Entry*> timed;
    for (Entry& entry : entries)
        if (entry.gap.empty()) timed.push_back(&entry);
    take_times(gpu_, options_.repeats, timed, calls);
    return entries;
}

Baselines Comparison::baselines(bool ceilings) {
    Baselines found;
    {
        Case smallest(context_, gpu_, values_, {1, 8, 128});
        const Matrix x = smallest.uploaded(Case::random_rows(values_, 0, 1, 128));
        const std::vector<double> times = gpu_.time(
            options_.repeats,
            std::vector<std::function<void()>>{[] {}, [&] { quantize_rows(context_, x, smallest.a, smallest.sfa); }});
        found.nothing = times[0];
        found.small_kernel = times[1];
        if (ceilings) {
            void *from = gpu_.allocate(kCopyBytes), *to = gpu_.allocate(kCopyBytes);
            gpu_.fill(from, 1, kCopyBytes);
            found.copy = gpu_.time(options_.repeats, [&] { gpu_.copy(to, from, kCopyBytes); });
        }
    }
    if (ceilings && options_.cublas) found.cublas_tensor = of({kCeilingExtent, kCeilingExtent, kCeilingExtent})[1].us;
    return found;
}

}  // namespace finegemm::cli
