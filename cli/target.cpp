// Where a command computes, and memory there. Layer cli.
#include "cli/target.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>

#include <finegemm/error.h>
#include <fmt/format.h>

#include "api/context.h"
#include "cli/text.h"

namespace finegemm::cli {

namespace {

/// Makes the context's backend for it, which fails where the kernels do not run.
Target open_gpu(Context& context, int index) {
    context.state().backend({DeviceType::Cuda, index});
    return {Gpu::open(context.options(), index), fmt::format("cuda:{}", index), ""};
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

void make_exponents(const Target& target, Mirrored& scales) {
    std::vector<uint8_t>& bytes = scales.host.bytes;
    for (uint32_t& word : std::span(reinterpret_cast<uint32_t*>(bytes.data()), bytes.size() / sizeof(uint32_t))) {
        const uint32_t exponent = std::clamp<uint32_t>(word >> 23, 3, 254);
        word = exponent | (exponent - 1) << 8 | (exponent - 2) << 16 | (exponent - 1) << 24;
    }
    scales.host.dtype = scales.there.dtype = DType::UE8M0x4;
    upload(target, scales.host, scales.there);
}

void download(const Target& target, HostMatrix& to, const Matrix& from) {
    if (target.gpu) target.gpu->download(to.bytes.data(), from.data, to.bytes.size());
}

double median_time(const Target& target, int repeats, const std::function<void()>& call) {
    if (target.gpu) return target.gpu->time(repeats, call);
    using Clock = std::chrono::steady_clock;
    call();
    std::vector<double> times;
    auto polled = Clock::now();
    for (int i = 0; i < repeats; ++i) {
        const auto start = Clock::now();
        call();
        const auto end = Clock::now();
        times.push_back(std::chrono::duration<double, std::micro>(end - start).count());
        if (!target.poll || end - polled < std::chrono::milliseconds(50)) continue;  // short calls do not poll
        target.poll(static_cast<double>(i + 1) / repeats);
        polled = end;
    }
    return median_of(std::move(times));
}

/// One matrix of several that lie one below the other.
Matrix part_of(Matrix all, int64_t count, int64_t i) {
    all.rows /= count;
    all.data = static_cast<uint8_t*>(all.data) + i * all.rows * all.row_stride * size_of(all.dtype);
    return all;
}

Stack stack_of(const Matrix& all, int64_t count) {
    const Matrix first = part_of(all, count, 0);
    return {first, count, first.rows * first.row_stride};
}

Matrix columns_of(Matrix x, int64_t first, int64_t count) {
    x.data = static_cast<uint8_t*>(x.data) + first * size_of(x.dtype);
    x.cols = count;
    return x;
}

/// The part of A or B of a group of K: `count` from `first` on.
Matrix k_part_of(Matrix x, KLayout layout, int64_t first, int64_t count) {
    if (layout == KLayout::Columns) return columns_of(x, first, count);
    x.data = static_cast<uint8_t*>(x.data) + x.rows * first * size_of(x.dtype);
    x.cols = x.row_stride = count;
    return x;
}

}  // namespace finegemm::cli
