// One GEMM on one device. Layer cli.
#include "cli/session.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numbers>

#include <fmt/format.h>

#include <finegemm/error.h>
#include <finegemm/quantize.h>

#include "api/context.h"
#include "cli/text.h"

namespace finegemm::cli {

namespace {

int64_t blocks_of(int64_t extent) { return (extent + 127) / 128; }

/// Makes the context's backend for it, which fails where the kernels do not run.
Target open_gpu(Context& context, int index) {
    context.state().backend({DeviceType::Cuda, index});
    return {Gpu::open(context.options(), index), fmt::format("cuda:{}", index), ""};
}

/// Uniform in (0, 1], by the counter alone. (Weyl steps through the finaliser of MurmurHash3.)
double uniform(uint64_t seed, uint64_t counter) {
    uint64_t x = (seed << 32 ^ counter) * 0x9e3779b97f4a7c15;
    x = (x ^ x >> 33) * 0xff51afd7ed558ccd;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53;
    return (static_cast<double>((x ^ x >> 33) >> 11) + 1) * 0x1p-53;
}

/// Box and Muller's way to two normal numbers.
std::vector<float> normal_numbers(size_t count, uint64_t seed) {
    std::vector<float> numbers(count + 1);
    for (size_t i = 0; i < count; i += 2) {
        const double radius = std::sqrt(-2 * std::log(uniform(seed, i))),
                     angle = 2 * std::numbers::pi * uniform(seed, i + 1);
        numbers[i] = static_cast<float>(radius * std::cos(angle));
        numbers[i + 1] = static_cast<float>(radius * std::sin(angle));
    }
    numbers.resize(count);
    return numbers;
}

}  // namespace

Target choose_target(Context& context, const std::string& wish) {
    if (wish == "cpu") return {nullptr, "cpu", ""};
    if (wish == "cuda") return open_gpu(context, 0);
    if (wish.starts_with("cuda:"))
        if (const int64_t index = number_of(wish.substr(5)); index >= 0 && index <= INT32_MAX)
            return open_gpu(context, static_cast<int>(index));
    if (wish != "auto")
        throw Error(Errc::InvalidArgument, fmt::format("--device '{}': must be auto, cpu, cuda or cuda:INDEX", wish));
    Target cpu{nullptr, "cpu", ""};
    for (int index = 0;; ++index) {
        try {
            return open_gpu(context, index);
        } catch (const Error& e) {
            if (e.code() == Errc::InvalidArgument) return cpu;  // no more GPUs
            if (cpu.why.empty()) cpu.why = e.what();
            if (e.code() != Errc::Unsupported) return cpu;
        }
    }
}

HostMatrix random_matrix(int64_t rows, int64_t cols, uint64_t seed) {
    HostMatrix matrix = make_matrix(DType::F32, rows, cols);
    const size_t bytes = matrix.bytes.size();
    const auto numbers = normal_numbers(std::min(static_cast<size_t>(kRandomPeriod), bytes / sizeof(float)), seed);
    const size_t period = numbers.size() * sizeof(float);
    for (size_t at = 0; at < bytes; at += period)
        std::memcpy(&matrix.bytes[at], numbers.data(), std::min(period, bytes - at));
    return matrix;
}

void fill(HostMatrix& to, const HostMatrix& random, int64_t first) {
    const size_t period = random.bytes.size();
    size_t from = static_cast<size_t>(first * size_of(random.dtype)) % period;
    for (size_t at = 0; at < to.bytes.size();) {
        const size_t part = std::min(to.bytes.size() - at, period - from);
        std::memcpy(&to.bytes[at], &random.bytes[from], part);
        at += part;
        from = 0;
    }
}

Matrix allocate_on(const Target& target, HostMatrix& matrix) {
    Matrix view = matrix.view();
    if (target.gpu) {
        view.data = target.gpu->allocate(matrix.bytes.size());
        view.device = target.gpu->device();
    }
    return view;
}

Mirrored mirrored(const Target& target, DType dtype, int64_t rows, int64_t cols) {
    Mirrored x{make_matrix(dtype, rows, cols), {}};
    x.there = allocate_on(target, x.host);
    return x;
}

Mirrored mirrored(const Target& target, const std::vector<int32_t>& numbers) {
    static_assert(sizeof(int32_t) == sizeof(float));
    Mirrored x = mirrored(target, DType::F32, 1, static_cast<int64_t>(numbers.size()));
    std::memcpy(x.host.bytes.data(), numbers.data(), x.host.bytes.size());
    upload(target, x.host, x.there);
    return x;
}

void upload(const Target& target, const HostMatrix& from, const Matrix& to) {
    if (target.gpu) target.gpu->upload(to.data, from.bytes.data(), from.bytes.size());
}

void download(const Target& target, HostMatrix& to, const Matrix& from) {
    if (target.gpu) target.gpu->download(to.bytes.data(), from.data, to.bytes.size());
}

double median_time(const Target& target, int repeats, const std::function<void()>& call) {
    if (target.gpu) return target.gpu->time(repeats, call);
    using Clock = std::chrono::steady_clock;
    call();
    std::vector<double> times;
    for (int i = 0; i < repeats; ++i) {
        const auto start = Clock::now();
        call();
        times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    }
    return median_of(std::move(times));
}

Session::Session(Context& context, const Target& target, Operand a, Operand b, const ProductKind& kind)
    : context_(context), target_(target), kind_(kind) {
    const int64_t m = a.values.rows, n = b.values.rows, k = a.values.cols;
    if (b.values.cols != k)
        throw Error(Errc::InvalidArgument,
                    fmt::format("A is [{}, {}] and B is [{}, {}]: both need the same number of columns, K; "
                                "B is [N, K], transpose it if it is [K, N]",
                                m, k, n, b.values.cols));
    host_[4] = make_matrix(kind.out_dtype, m, n);
    there_[4] = allocate_on(target_, host_[4]);
    fill(a, "--a", false, 0, 1);
    fill(b, "--b", !kind.row_b_scales, 2, 3);
    args_ = {there_[0], there_[1], there_[2], there_[3], there_[4]};
}

void Session::fill(Operand& x, const char* name, bool blocks, int q, int scales) {
    const bool ready = x.values.dtype == DType::E4M3;
    if (x.scales && !ready)
        throw Error(Errc::InvalidArgument,
                    fmt::format("{} is not e4m3, so it is quantised here and takes no scales; leave them out", name));
    const int64_t rows = x.values.rows, cols = x.values.cols;
    HostMatrix& s = host_[scales] =
        x.scales ? std::move(*x.scales) : make_matrix(DType::F32, blocks ? blocks_of(rows) : rows, blocks_of(cols));
    if (ready && !x.scales) std::fill_n(reinterpret_cast<float*>(s.bytes.data()), s.bytes.size() / sizeof(float), 1.0f);
    host_[q] = ready ? std::move(x.values) : make_matrix(DType::E4M3, rows, cols);
    there_[q] = allocate_on(target_, host_[q]);
    there_[scales] = allocate_on(target_, s);
    if (ready) {
        upload(target_, host_[q], there_[q]);
        upload(target_, s, there_[scales]);
    } else {
        const Matrix input = allocate_on(target_, x.values);
        upload(target_, x.values, input);
        (blocks ? quantize_blocks : quantize_rows)(context_, input, there_[q], there_[scales], {});
    }
}

GemmShape Session::shape() const {
    return {.m = args_.d.rows,
            .n = args_.d.cols,
            .k = args_.a.cols,
            .row_b_scales = kind_.row_b_scales,
            .out_dtype = kind_.out_dtype};
}

std::function<void()> Session::call(const GemmOptions& options) const {
    return [this, options] { gemm(context_, args_, options); };
}

double Session::time(const GemmOptions& options, int repeats) { return median_time(target_, repeats, call(options)); }

GemmArgs Session::fetch() {
    for (int i = 0; i < 5; ++i) download(target_, host_[i], there_[i]);
    return {host_[0].view(), host_[1].view(), host_[2].view(), host_[3].view(), host_[4].view()};
}

double operations(int64_t m, int64_t n, int64_t k) {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

double traffic_bytes(const GemmShape& s, int64_t groups) {
    const int64_t scales = s.m + groups * (s.row_b_scales ? s.n : blocks_of(s.n));
    return static_cast<double>(s.m * s.k + groups * s.n * s.k + s.m * s.n * size_of(s.out_dtype) +
                               scales * blocks_of(s.k) * size_of(DType::F32));
}

}  // namespace finegemm::cli
