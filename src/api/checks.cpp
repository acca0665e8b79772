// Argument checks. Layer api.
#include "api/checks.h"

#include <algorithm>

#include <fmt/format.h>

#include <finegemm/core/base.h>
#include <finegemm/error.h>

#include "plan/plan.h"

namespace finegemm {

namespace {

constexpr int64_t kMaxExtent = INT32_MAX;   // coordinates of tensor maps are signed 32-bit numbers
constexpr int64_t kAlignment = 16;          // bytes: what the copy engine asks of addresses and rows

template <typename... Args>
[[noreturn, gnu::noinline, gnu::cold]] void reject(const char* argument, fmt::format_string<Args...> message,
                                                   Args&&... args) {
    throw Error(Errc::InvalidArgument,
                fmt::format("{}: {}", argument, fmt::format(message, std::forward<Args>(args)...)));
}

std::string name_of(DType t) {
    switch (t) {
        case DType::E4M3: return "e4m3";
        case DType::BF16: return "bf16";
        case DType::F16: return "f16";
        case DType::F32: return "f32";
    }
    return fmt::format("unknown ({})", static_cast<int32_t>(t));
}

std::string name_of(Device d) {
    if (d.type == DeviceType::Cpu) return "cpu";
    if (d.type == DeviceType::Cuda) return fmt::format("cuda:{}", d.index);
    return fmt::format("unknown device type {}", static_cast<int32_t>(d.type));
}

/// A matrix argument and its name in messages.
struct Argument {
    const char* name;
    const ConstMatrix& x;

    bool empty() const { return x.rows == 0 || x.cols == 0; }
    bool has_shape(int64_t rows, int64_t cols) const { return x.rows == rows && x.cols == cols; }
    // A stride that no step is taken with may be anything.
    int64_t row_step() const { return x.rows > 1 ? x.row_stride : 0; }
    int64_t col_step() const { return x.cols > 1 ? x.col_stride : 0; }

    void check_dtype(DType wanted, const char* way_out) const {
        if (x.dtype != wanted) reject(name, "has dtype {}, must be {}; {}", name_of(x.dtype), name_of(wanted), way_out);
    }
    void check_extents() const {
        if (x.rows < 0 || x.cols < 0)
            reject(name, "has shape [{}, {}], extents must not be negative; check what computed them", x.rows, x.cols);
        if (x.rows > kMaxExtent || x.cols > kMaxExtent)
            reject(name, "has shape [{}, {}], extents must be at most {}; split larger problems", x.rows, x.cols,
                   kMaxExtent);
    }
    void check_device(Device wanted, const char* other) const {
        if (x.device.type != DeviceType::Cpu && x.device.type != DeviceType::Cuda)
            reject(name, "is on {}, must be on the CPU (1) or a CUDA device (2); copy it there", name_of(x.device));
        const bool cuda = x.device.type == DeviceType::Cuda;
        if (cuda && x.device.index < 0)
            reject(name, "is on cuda:{}, the index must not be negative; pass the device's index", x.device.index);
        if (x.device.type != wanted.type || (cuda && x.device.index != wanted.index))
            reject(name, "is on {}, but {} is on {}; all must be on one device", name_of(x.device), other,
                   name_of(wanted));
    }
    void check_pointer(int64_t alignment) const {
        if (empty()) return;
        if (!x.data) reject(name, "is null, but has shape [{}, {}]; pass its address", x.rows, x.cols);
        if (begin() % static_cast<uintptr_t>(alignment) != 0)
            reject(name, "has address {}, must be a multiple of {}; copy it to aligned memory", x.data, alignment);
    }
    /// Rows that are contiguous, apart, and start on multiples of `alignment` bytes.
    void check_rows(int64_t alignment) const {
        if (empty()) return;
        if (x.cols > 1 && x.col_stride != 1)
            reject(name,
                   "has column stride {}, must be 1 (rows contiguous); make it contiguous, or transpose it if it is "
                   "stored "
                   "by columns",
                   x.col_stride);
        if (x.rows > 1 && x.row_stride < x.cols)
            reject(name,
                   "has row stride {}, must be at least its {} columns (rows apart and ascending); make it contiguous",
                   x.row_stride, x.cols);
        if (const int64_t unit = std::max<int64_t>(1, alignment / size_of(x.dtype)); row_step() % unit != 0)
            reject(name, "has row stride {}, must be a multiple of {} elements ({} bytes); pad the rows", x.row_stride,
                   unit, alignment);
        check_span();
    }
    void check_steps_not_negative() const {
        if (empty()) return;
        if (row_step() < 0 || col_step() < 0)
            reject(name, "has strides [{}, {}], must not be negative; copy it", x.row_stride, x.col_stride);
        check_span();
    }
    /// For scales that are written: no two at one place.
    void check_elements_apart() const {
        const bool rows_outside = row_step() >= col_step();
        const int64_t inner = rows_outside ? x.cols : x.rows, outer = rows_outside ? x.rows : x.cols;
        const int64_t step = rows_outside ? col_step() : row_step(), jump = rows_outside ? row_step() : col_step();
        if (!empty() && ((inner > 1 && step == 0) || (outer > 1 && jump <= (inner - 1) * step)))
            reject(name,
                   "has shape [{}, {}] and strides [{}, {}], which must give each scale its own place; use the strides "
                   "of a "
                   "contiguous matrix or of its transpose",
                   x.rows, x.cols, x.row_stride, x.col_stride);
    }
    /// The end of the last element is an address, and offsets in bytes fit 63 bits.
    void check_span() const {
        int64_t down = 0, across = 0, last = 0, count = 0, bytes = 0;
        uintptr_t end = 0;
        if (__builtin_mul_overflow(x.rows - 1, row_step(), &down) ||
            __builtin_mul_overflow(x.cols - 1, col_step(), &across) || __builtin_add_overflow(down, across, &last) ||
            __builtin_add_overflow(last, 1, &count) || __builtin_mul_overflow(count, size_of(x.dtype), &bytes) ||
            __builtin_add_overflow(begin(), bytes, &end))
            reject(name, "has shape [{}, {}] and strides [{}, {}], which reach beyond 2^63 bytes; check the strides",
                   x.rows, x.cols, x.row_stride, x.col_stride);
    }
    uintptr_t begin() const { return reinterpret_cast<uintptr_t>(x.data); }
    uintptr_t end() const {
        const int64_t last = (x.rows - 1) * row_step() + (x.cols - 1) * col_step();
        return begin() + static_cast<uintptr_t>((last + 1) * size_of(x.dtype));
    }
    void check_apart_from(const Argument& output) const {
        if (!empty() && !output.empty() && begin() < output.end() && output.begin() < end())
            reject(output.name, "shares {} bytes with {}; write to memory of its own",
                   std::min(end(), output.end()) - std::max(begin(), output.begin()), name);
    }
};

int64_t blocks(int64_t extent) { return (extent + kScaleBlock - 1) / kScaleBlock; }

/// What the scales of a matrix look like.
struct Wanted {
    int64_t rows, cols;
    const char* meaning;   // what a scale covers
    const char* maker;     // of scales that are read; null for those that are written
};
Wanted scales_of_rows(const ConstMatrix& x, const char* meaning, const char* maker = nullptr) {
    return {x.rows, blocks(x.cols), meaning, maker};
}
Wanted scales_of_blocks(const ConstMatrix& x, const char* meaning, const char* maker = nullptr) {
    return {blocks(x.rows), blocks(x.cols), meaning, maker};
}

[[noreturn, gnu::noinline, gnu::cold]] void reject_shape(const Argument& s, const Wanted& wanted) {
    const auto& [rows, cols, meaning, maker] = wanted;
    std::string way_out = maker ? fmt::format("{} makes it", maker) : "pass memory of that shape";
    if (s.has_shape(cols, rows)) way_out = "it looks transposed: swap its extents and strides";
    else if (maker && s.has_shape(1, 1)) way_out = "a scale for the whole matrix can be broadcast with strides of 0";
    reject(s.name, "has shape [{}, {}], must be [{}, {}] ({}); {}", s.x.rows, s.x.cols, rows, cols, meaning, way_out);
}

/// f32, of the wanted shape, any strides that are not negative.
void check_scales(const Argument& s, const Wanted& wanted) {
    s.check_dtype(DType::F32, "convert it (packed UE8M0 scales are not for this architecture)");
    s.check_extents();
    if (!s.has_shape(wanted.rows, wanted.cols)) reject_shape(s, wanted);
    s.check_steps_not_negative();
}

void check_shapes(const Argument& a, const Argument& b, const Argument& d) {
    const int64_t m = d.x.rows, n = d.x.cols, k = a.x.cols;
    if (a.x.rows != m) reject("a", "has {} rows, but d has {}; a is [M, K], d is [M, N]", a.x.rows, m);
    if (b.x.cols != k)
        reject("b", "has {} columns, but a has {}; b is [N, K], K-major like a: pass it transposed if it is [K, N]",
               b.x.cols, k);
    if (b.x.rows != n) reject("b", "has {} rows, but d has {} columns; b is [N, K], d is [M, N]", b.x.rows, n);
    if (n % 8 != 0) reject("d", "has N = {} columns, must be a multiple of 8; pad b with rows of zeros", n);
    if (k % 16 != 0) reject("a", "has K = {} columns, must be a multiple of 16; pad a and b with zeros", k);
}

void check_gemm_options(const GemmOptions& options, bool backend_looks_up_config) {
    if (options.numerics != Numerics::Fast && options.numerics != Numerics::Exact &&
        options.numerics != Numerics::Hopper)
        reject("numerics", "is {}, must be 0 (fast), 1 (exact) or 2 (hopper); pass one of them",
               static_cast<int32_t>(options.numerics));
    if (options.num_sms < 0)
        reject("num_sms", "is {}, must not be negative; 0 allows all SMs of the GPU", options.num_sms);
    if (!options.config.empty() && !backend_looks_up_config) static_cast<void>(plan::config_named(options.config));
}

}  // namespace

void check_gemm(const GemmArgs& args, const GemmOptions& options) {
    const ConstMatrix d_view = args.d;
    const Argument a{"a", args.a}, sfa{"sfa", args.sfa}, b{"b", args.b}, sfb{"sfb", args.sfb}, d{"d", d_view};
    for (const Argument& x : {a, b}) x.check_dtype(DType::E4M3, "quantize_rows and quantize_blocks make it");
    d.check_dtype(DType::BF16, "pass memory of bf16 and convert the result");
    for (const Argument& x : {a, b, d}) x.check_extents();
    check_shapes(a, b, d);

    const Wanted of_a = scales_of_rows(args.a, "one for each row and 128 columns of a", "quantize_rows");
    const Wanted of_b = scales_of_blocks(args.b, "one for each 128x128 block of b", "quantize_blocks");
    if (!sfa.has_shape(of_a.rows, of_a.cols) && sfa.has_shape(of_b.rows, of_b.cols) &&
        sfb.has_shape(of_a.rows, of_a.cols))
        reject("sfa",
               "has shape [{}, {}] and sfb [{}, {}], must be [{}, {}] and [{}, {}]; they look swapped: pass sfb as sfa",
               args.sfa.rows, args.sfa.cols, args.sfb.rows, args.sfb.cols, of_a.rows, of_a.cols, of_b.rows, of_b.cols);
    check_scales(sfa, of_a);
    check_scales(sfb, of_b);

    d.check_device(d.x.device, "d");
    for (const Argument& x : {a, sfa, b, sfb}) x.check_device(d.x.device, "d");
    for (const Argument& x : {a, b, d}) x.check_pointer(kAlignment);
    for (const Argument& x : {sfa, sfb}) x.check_pointer(alignof(float));
    for (const Argument& x : {a, b, d}) x.check_rows(kAlignment);
    for (const Argument& x : {a, sfa, b, sfb}) x.check_apart_from(d);
    check_gemm_options(options, d.x.device.type == DeviceType::Cuda && !a.empty() && !b.empty());
}

void check_quantize(ScaleShape shape, const ConstMatrix& x, const Matrix& q, const Matrix& scales) {
    const ConstMatrix q_view = q, scales_view = scales;
    const Argument in{"x", x}, out{"q", q_view}, s{"scales", scales_view};
    if (x.dtype != DType::BF16 && x.dtype != DType::F16 && x.dtype != DType::F32)
        reject("x", "has dtype {}, must be bf16, f16 or f32; convert it", name_of(x.dtype));
    out.check_dtype(DType::E4M3, "pass memory of one byte for each element of x");
    in.check_extents();
    if (!out.has_shape(x.rows, x.cols))
        reject("q", "has shape [{}, {}], but x has [{}, {}]; pass memory of the same shape", q.rows, q.cols, x.rows,
               x.cols);
    if (x.cols % 16 != 0) reject("x", "has {} columns, must be a multiple of 16; pad it with zeros", x.cols);
    check_scales(s, shape == ScaleShape::Rows ? scales_of_rows(x, "one for each row and 128 columns of x")
                                              : scales_of_blocks(x, "one for each 128x128 block of x"));
    s.check_elements_apart();

    for (const Argument& argument : {in, out, s}) argument.check_device(x.device, "x");
    const int64_t alignment = x.device.type == DeviceType::Cuda ? kAlignment : 1;   // plain loads and stores on the CPU
    in.check_pointer(std::max(alignment, size_of(x.dtype)));
    out.check_pointer(alignment);
    s.check_pointer(alignof(float));
    in.check_rows(std::max(alignment, size_of(x.dtype)));
    out.check_rows(alignment);
    in.check_apart_from(out);
    in.check_apart_from(s);
    out.check_apart_from(s);
}

}  // namespace finegemm
