// Argument checks. Layer api.
#include "api/checks.h"

#include <fmt/format.h>

#include <finegemm/core/base.h>
#include <finegemm/error.h>

namespace finegemm {

namespace {

constexpr int64_t kMaxExtent = INT32_MAX;   // coordinates of tensor maps are signed 32-bit numbers
constexpr int64_t kAlignment = 16;          // bytes: what the copy engine asks of addresses and rows

template <typename... Args>
[[noreturn, gnu::noinline, gnu::cold]] void reject(const char* argument, fmt::format_string<Args...> message, Args&&... args) {
    throw Error(Errc::InvalidArgument, fmt::format("{}: {}", argument, fmt::format(message, std::forward<Args>(args)...)));
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

    void check_dtype(DType wanted, const char* way_out) const {
        if (x.dtype != wanted) reject(name, "has dtype {}, must be {}; {}", name_of(x.dtype), name_of(wanted), way_out);
    }
    void check_extents() const {
        for (const int64_t extent : {x.rows, x.cols})
            if (extent < 0 || extent > kMaxExtent)
                reject(name, "has shape [{}, {}], extents must be from 0 to {}; split larger problems", x.rows, x.cols, kMaxExtent);
    }
    void check_device(Device wanted, const char* other) const {
        if (x.device.type != DeviceType::Cpu && x.device.type != DeviceType::Cuda)
            reject(name, "is on {}, must be on the CPU (1) or a CUDA device (2); copy it there", name_of(x.device));
        if (x.device.type == DeviceType::Cuda && x.device.index < 0)
            reject(name, "is on cuda:{}, the index must not be negative; pass the device's index", x.device.index);
        if (x.device != wanted) reject(name, "is on {}, but {} is on {}; all must be on one device", name_of(x.device), other, name_of(wanted));
    }
    void check_pointer(int64_t alignment) const {
        if (empty()) return;
        if (!x.data) reject(name, "is null, but has shape [{}, {}]; pass its address", x.rows, x.cols);
        if (reinterpret_cast<uintptr_t>(x.data) % static_cast<uintptr_t>(alignment) != 0)
            reject(name, "has address {}, must be a multiple of {}; copy it to aligned memory", x.data, alignment);
    }
    /// Rows that are contiguous and start on multiples of `alignment` bytes.
    void check_rows(int64_t alignment) const {
        if (x.cols > 1 && x.col_stride != 1)
            reject(name, "has column stride {}, must be 1 (rows contiguous); make it contiguous, or transpose it if it is stored by columns",
                   x.col_stride);
        if (x.rows <= 1) return;
        if (x.row_stride < x.cols) reject(name, "has row stride {}, must be at least its {} columns; its rows overlap", x.row_stride, x.cols);
        if (const int64_t unit = alignment / size_of(x.dtype); x.row_stride % unit != 0)
            reject(name, "has row stride {}, must be a multiple of {} elements ({} bytes); pad the rows", x.row_stride, unit, alignment);
        check_span();
    }
    void check_strides_not_negative() const {
        if (x.row_stride < 0 || x.col_stride < 0)
            reject(name, "has strides [{}, {}], must not be negative; copy it", x.row_stride, x.col_stride);
        check_span();
    }
    /// Offsets in bytes must fit 63 bits.
    void check_span() const {
        int64_t down = 0, across = 0, sum = 0, bytes = 0;
        if (__builtin_mul_overflow(x.rows, x.row_stride, &down) || __builtin_mul_overflow(x.cols, x.col_stride, &across) ||
            __builtin_add_overflow(down, across, &sum) || __builtin_mul_overflow(sum, size_of(x.dtype), &bytes))
            reject(name, "has shape [{}, {}] and strides [{}, {}], which reach beyond 2^63 bytes; check the strides", x.rows, x.cols,
                   x.row_stride, x.col_stride);
    }
    uintptr_t begin() const { return reinterpret_cast<uintptr_t>(x.data); }
    uintptr_t end() const {
        return begin() + static_cast<uintptr_t>(((x.rows - 1) * x.row_stride + (x.cols - 1) * x.col_stride + 1) * size_of(x.dtype));
    }
    void check_apart_from(const Argument& output) const {
        if (!empty() && !output.empty() && begin() < output.end() && output.begin() < end())
            reject(output.name, "shares memory with {}; write to memory of its own", name);
    }
};

int64_t blocks(int64_t extent) { return (extent + kScaleBlock - 1) / kScaleBlock; }

/// f32, [rows, cols], any strides that are not negative. `meaning` says what a scale covers.
void check_scales(const Argument& s, int64_t rows, int64_t cols, const char* meaning) {
    s.check_dtype(DType::F32, "convert it (packed UE8M0 scales are not for this architecture)");
    s.check_extents();
    const ConstMatrix& x = s.x;
    if (x.rows != rows || x.cols != cols) {
        if (x.rows == cols && x.cols == rows)
            reject(s.name, "has shape [{}, {}], must be [{}, {}] ({}); it looks transposed: swap its extents and strides", x.rows, x.cols, rows,
                   cols, meaning);
        if (x.rows == 1 && x.cols == 1)
            reject(s.name, "has shape [1, 1], must be [{}, {}] ({}); a scale for the whole matrix can be broadcast with strides of 0", rows,
                   cols, meaning);
        reject(s.name, "has shape [{}, {}], must be [{}, {}] ({}); quantize_{} makes it", x.rows, x.cols, rows, cols, meaning,
               std::string_view(meaning).find("128x128") == std::string_view::npos ? "rows" : "blocks");
    }
    s.check_strides_not_negative();
}

}  // namespace

void check_gemm(const GemmArgs& args, const GemmOptions& options) {
    const Argument a{"a", args.a}, sfa{"sfa", args.sfa}, b{"b", args.b}, sfb{"sfb", args.sfb};
    const ConstMatrix d_view = args.d;
    const Argument d{"d", d_view};
    for (const Argument& x : {a, b}) x.check_dtype(DType::E4M3, "quantize_rows and quantize_blocks make it");
    d.check_dtype(DType::BF16, "other output types are not supported yet");
    for (const Argument& x : {a, b, d}) x.check_extents();
    const int64_t m = d.x.rows, n = d.x.cols, k = a.x.cols;
    if (a.x.rows != m) reject("a", "has {} rows, but d has {}; a is [M, K], d is [M, N]", a.x.rows, m);
    if (b.x.cols != k) reject("b", "has {} columns, but a has {}; b is [N, K], K-major like a: pass it transposed if it is [K, N]", b.x.cols, k);
    if (b.x.rows != n) reject("b", "has {} rows, but d has {} columns; b is [N, K], d is [M, N]", b.x.rows, n);
    if (n % 8 != 0) reject("d", "has N = {} columns, must be a multiple of 8; pad b with rows of zeros", n);
    if (k % 16 != 0) reject("a", "has K = {} columns, must be a multiple of 16; pad a and b with zeros", k);
    check_scales(sfa, m, blocks(k), "one for each row and 128 columns of a");
    check_scales(sfb, blocks(n), blocks(k), "one for each 128x128 block of b");
    for (const Argument& x : {a, sfa, b, sfb, d}) {
        x.check_device(d.x.device, "d");
        x.check_pointer(&x.x == &args.sfa || &x.x == &args.sfb ? 4 : kAlignment);
    }
    for (const Argument& x : {a, b, d}) x.check_rows(kAlignment);
    for (const Argument& x : {a, sfa, b, sfb}) x.check_apart_from(d);
    if (options.numerics != Numerics::Fast && options.numerics != Numerics::Exact && options.numerics != Numerics::Hopper)
        reject("numerics", "is {}, must be 0 (fast), 1 (exact) or 2 (hopper)", static_cast<int32_t>(options.numerics));
}

void check_quantize(ScaleShape shape, const ConstMatrix& x, const Matrix& q, const Matrix& scales) {
    const ConstMatrix q_view = q, scales_view = scales;
    const Argument in{"x", x}, out{"q", q_view}, s{"scales", scales_view};
    if (x.dtype != DType::BF16 && x.dtype != DType::F16 && x.dtype != DType::F32)
        reject("x", "has dtype {}, must be bf16, f16 or f32; convert it", name_of(x.dtype));
    out.check_dtype(DType::E4M3, "pass memory of one byte for each element of x");
    in.check_extents();
    if (q.rows != x.rows || q.cols != x.cols)
        reject("q", "has shape [{}, {}], but x has [{}, {}]; they must be the same", q.rows, q.cols, x.rows, x.cols);
    if (x.cols % 16 != 0) reject("x", "has {} columns, must be a multiple of 16; pad it with zeros", x.cols);
    if (shape == ScaleShape::Rows) check_scales(s, x.rows, blocks(x.cols), "one for each row and 128 columns of x");
    else check_scales(s, blocks(x.rows), blocks(x.cols), "one for each 128x128 block of x");
    if ((scales.rows > 1 && scales.row_stride == 0) || (scales.cols > 1 && scales.col_stride == 0))
        reject("scales", "has strides [{}, {}], must not be 0 where it is written; give each scale its own place", scales.row_stride,
               scales.col_stride);
    const int64_t alignment = x.device.type == DeviceType::Cuda ? kAlignment : 1;
    for (const Argument& argument : {in, out, s}) {
        argument.check_device(x.device, "x");
        argument.check_pointer(&argument == &s ? 4 : std::max(alignment, size_of(argument.x.dtype)));
    }
    in.check_rows(std::max(alignment, size_of(x.dtype)));
    out.check_rows(alignment);
    in.check_apart_from(out);
    in.check_apart_from(s);
    out.check_apart_from(s);
}

}  // namespace finegemm
