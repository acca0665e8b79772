// Helpers of all checks of arguments. Layer api.
#include "api/argument.h"

#include <algorithm>
#include <array>
#include <utility>

#include <finegemm/core/base.h>

#include "ops/gemm/call.h"
#include "plan/fields.h"
#include "plan/plan.h"

namespace finegemm {

namespace {

constexpr int64_t kMaxExtent = INT32_MAX;  // coordinates of tensor maps are signed 32-bit numbers

std::string layout_of(const Argument& a) {
    const std::string stack = a.count > 1 ? fmt::format("{} matrices of ", a.count) : "";
    const std::string stride = a.count > 1 ? fmt::format("{}, ", a.stride) : "";
    return fmt::format("{}shape [{}, {}] and strides [{}{}, {}]", stack, a.x.rows, a.x.cols, stride, a.x.row_stride,
                       a.x.col_stride);
}

[[noreturn, gnu::noinline, gnu::cold]] void reject_span(const Argument& a) {
    reject(a.name, "has {}, which reach beyond 2^63 bytes; check the strides", layout_of(a));
}

std::string name_of(Device d) {
    if (d.type == DeviceType::Cpu) return "cpu";
    if (d.type == DeviceType::Cuda) return fmt::format("cuda:{}", d.index);
    return fmt::format("unknown device type {}", static_cast<int32_t>(d.type));
}

}  // namespace

void Argument::check_dtype(DType wanted, const char* way_out) const {
    if (x.dtype != wanted) reject(name, "has dtype {}, must be {}; {}", name_of(x.dtype), name_of(wanted), way_out);
}

void Argument::check_extents() const {
    if (x.rows < 0 || x.cols < 0)
        reject(name, "has shape [{}, {}], extents must not be negative; check what computed them", x.rows, x.cols);
    if (x.rows > kMaxExtent || x.cols > kMaxExtent)
        reject(name, "has shape [{}, {}], extents must be at most {}; split larger problems", x.rows, x.cols,
               kMaxExtent);
}

void Argument::check_device(Device wanted, const char* other) const {
    if (x.device.type != DeviceType::Cpu && x.device.type != DeviceType::Cuda)
        reject(name, "is on {}, must be on the CPU (1) or a CUDA device (2); copy it there", name_of(x.device));
    const bool cuda = x.device.type == DeviceType::Cuda;
    if (cuda && x.device.index < 0)
        reject(name, "is on cuda:{}, the index must not be negative; pass the device's index", x.device.index);
    if (x.device.type != wanted.type || (cuda && x.device.index != wanted.index))
        reject(name, "is on {}, but {} is on {}; all must be on one device", name_of(x.device), other, name_of(wanted));
}

void Argument::check_pointer(int64_t alignment) const {
    if (empty()) return;
    if (!x.data) reject(name, "is null, but has shape [{}, {}]; pass its address", x.rows, x.cols);
    if (begin() % static_cast<uintptr_t>(alignment) != 0)
        reject(name, "has address {}, must be a multiple of {}; copy it to aligned memory", x.data, alignment);
}

void Argument::check_rows(int64_t alignment) const {
    if (empty()) return;
    if (x.cols > 1 && x.col_stride != 1)
        reject(name,
               "has column stride {}, must be 1 (rows contiguous); make it contiguous, or transpose it if it is "
               "stored by columns",
               x.col_stride);
    check_lines({"row", "column", x.rows, x.cols, x.row_stride}, alignment);
}

void Argument::check_rows_or_columns(int64_t alignment) const {
    if (empty() || x.cols == 1 || x.col_stride == 1) return check_rows(alignment);
    if (x.rows > 1 && x.row_stride != 1)
        reject(name, "has strides [{}, {}], one of which must be 1 (rows or columns contiguous); make it contiguous",
               x.row_stride, x.col_stride);
    check_lines({"column", "row", x.cols, x.rows, x.col_stride}, alignment);
}

void Argument::check_lines(const Lines& lines, int64_t alignment) const {
    if (lines.count > 1 && lines.stride < lines.length)
        reject(name, "has {0} stride {1}, must be at least its {2} {3}s ({0}s apart and ascending); make it contiguous",
               lines.name, lines.stride, lines.length, lines.across);
    const int64_t unit = std::max<int64_t>(1, alignment / size_of(x.dtype));
    if (lines.count > 1 && lines.stride % unit != 0)
        reject(name, "has {0} stride {1}, must be a multiple of {2} elements ({3} bytes); pad the {0}s", lines.name,
               lines.stride, unit, alignment);
    check_matrices_not_negative();
    if (stack_step() % unit != 0)
        reject(name,
               "has stride {} from matrix to matrix, must be a multiple of {} elements ({} bytes); pad the matrices",
               stride, unit, alignment);
    check_span();
}

void Argument::check_steps_not_negative() const {
    if (empty()) return;
    if (row_step() < 0 || col_step() < 0)
        reject(name, "has strides [{}, {}], must not be negative; copy it", x.row_stride, x.col_stride);
    check_matrices_not_negative();
    check_span();
}

void Argument::check_matrices_not_negative() const {
    if (stack_step() < 0) reject(name, "has stride {} from matrix to matrix, must not be negative; copy it", stride);
}

void Argument::check_elements_apart() const {
    if (empty()) return;
    // From the smallest step to the largest, each steps over all that those before it reach.
    std::array<std::pair<int64_t, int64_t>, 3> steps = {
        {{row_step(), x.rows}, {col_step(), x.cols}, {stack_step(), count}}};
    std::ranges::sort(steps);
    int64_t reach = 0;
    for (const auto& [step, extent] : steps) {
        if (extent > 1 && step <= reach)
            reject(name,
                   "has {}, which must give each scale its own place; use the strides of a contiguous matrix or of its "
                   "transpose",
                   layout_of(*this));
        reach += (extent - 1) * step;
    }
}

void Argument::check_matrices_apart() const {
    if (empty() || count == 1) return;
    // Either the matrices lie one behind the other, or their first rows, then their second ones, and so on.
    const bool rows_inside = row_step() <= stride;
    const int64_t jump = rows_inside ? stride : row_step();
    const int64_t taken = (rows_inside ? (x.rows - 1) * row_step() : (count - 1) * stride) + x.cols;
    if (jump < taken || (!rows_inside && stride < x.cols))
        reject(name,
               "has {} matrices of shape [{}, {}] with strides {}, from matrix to matrix, and {}, from row to row, so "
               "that rows overlap; use the strides of a contiguous stack",
               count, x.rows, x.cols, stride, x.row_stride);
}

void Argument::check_span() const {
    int64_t down = 0, across = 0, over = 0, last = 0, elements = 0, bytes = 0;
    uintptr_t end = 0;
    if (__builtin_mul_overflow(x.rows - 1, row_step(), &down) ||
        __builtin_mul_overflow(x.cols - 1, col_step(), &across) ||
        __builtin_mul_overflow(count - 1, stack_step(), &over) || __builtin_add_overflow(down, across, &last) ||
        __builtin_add_overflow(last, over, &last) || __builtin_add_overflow(last, 1, &elements) ||
        __builtin_mul_overflow(elements, size_of(x.dtype), &bytes) || __builtin_add_overflow(begin(), bytes, &end))
        reject_span(*this);
}

uintptr_t Argument::end() const {
    const int64_t last = (x.rows - 1) * row_step() + (x.cols - 1) * col_step() + (count - 1) * stack_step();
    return begin() + static_cast<uintptr_t>((last + 1) * size_of(x.dtype));
}

bool Argument::overlaps(const Argument& other) const {
    return !empty() && !other.empty() && begin() < other.end() && other.begin() < end();
}

void Argument::check_apart_from(const Argument& output) const {
    if (overlaps(output))
        reject(output.name, "shares {} bytes with {}; write to memory of its own",
               std::min(end(), output.end()) - std::max(begin(), output.begin()), name);
}

int64_t alignment_on(Device device) { return device.type == DeviceType::Cuda ? Argument::kAlignment : 1; }

void check_numbers(const NumbersArgument& numbers, Device wanted, const Argument& d) {
    static_assert(sizeof(int32_t) == size_of(DType::F32));
    const auto& [name, data, size, device] = numbers;
    const ConstMatrix row{data, DType::F32, 1, size, size, 1, device};
    const Argument all{name, row};
    all.check_device(wanted, d.name);
    all.check_pointer(alignof(int32_t));
    all.check_span();
    all.check_apart_from(d);
}

namespace {

int64_t blocks(int64_t extent) { return (extent + kScaleBlock - 1) / kScaleBlock; }

[[noreturn, gnu::noinline, gnu::cold]] void reject_shape(const Argument& s, const Wanted& wanted) {
    const auto& [rows, cols, meaning, maker] = wanted;
    std::string way_out = maker ? fmt::format("{} makes it", maker) : "pass memory of that shape";
    if (s.has_shape(cols, rows)) way_out = "it looks transposed: swap its extents and strides";
    else if (maker && s.x.rows == rows && s.x.cols > 4 * (cols - 1) && s.x.cols <= 4 * cols)
        way_out = fmt::format(
            "one for each 32 columns, as in MX, is taken as exponents, four in a word (ue8m0x4); or {} makes those of "
            "128",
            maker);
    reject(s.name, "has shape [{}, {}], must be [{}, {}] ({}); {}", s.x.rows, s.x.cols, rows, cols, meaning, way_out);
}

void check_shapes(const Argument& a, const Argument& b, int64_t m, int64_t n) {
    const int64_t k = a.x.cols, unit = 16 / size_of(a.x.dtype);
    if (a.x.rows != m) reject("a", "has {} rows, but d has {}; a is [M, K], d is [M, N]", a.x.rows, m);
    if (b.x.cols != k)
        reject("b", "has {} columns, but a has {}; b is [N, K], K-major like a: pass it transposed if it is [K, N]",
               b.x.cols, k);
    if (b.x.rows != n) reject("b", "has {} rows, but d has {} columns; b is [N, K], d is [M, N]", b.x.rows, n);
    if (n % 8 != 0) reject("d", "has N = {} columns, must be a multiple of 8; pad b with rows of zeros", n);
    if (k % unit != 0) reject("a", "has K = {} columns, must be a multiple of {}; pad a and b with zeros", k, unit);
}

/// Where A, B and D are, and that D is apart from what is read.
void check_places(const Argument& a, const Argument& b, const Argument& d) {
    d.check_device(d.x.device, "d");
    for (const Argument& x : {a, b}) x.check_device(d.x.device, "d");
    const int64_t alignment = alignment_on(d.x.device);
    for (const Argument& x : {a, b, d}) x.check_pointer(alignment);
    for (const Argument& x : {a, b}) {
        if (are(is_unscaled, x.x.dtype)) {
            x.check_rows_or_columns(alignment);
            continue;
        }
        if (!x.empty() && x.x.cols > 1 && x.x.col_stride != 1)
            reject(x.name,
                   "has column stride {}, must be 1 (rows contiguous), as {} multiplied in no other layout; make it "
                   "contiguous{}",
                   x.x.col_stride, x.x.dtype == DType::I8 ? "integers are" : "FP8 is",
                   x.x.dtype == DType::I8 ? "" : ", or have quantize_columns write it transposed");
        x.check_rows(alignment);
    }
    d.check_rows(alignment);
    d.check_matrices_apart();
    for (const Argument& x : {a, b}) x.check_apart_from(d);
}

/// `type`: of A and B.
void check_result(const ElementType& type, const Argument& d) {
    if (!may_give(type, d.x.dtype))
        reject("d", "has dtype {}, must be {}; pass memory of one of them", name_of(d.x.dtype), names_of_results(type));
}

/// Where A and B have no scales a call has ones in their place (ops/gemm/call.h).
void check_unscaled_operands(const Argument& a, const Argument& sfa, const Argument& b, const Argument& sfb,
                             const Argument& d, int64_t n) {
    const ElementType& type = *find_type(a.x.dtype);
    b.check_dtype(type.dtype, "pass it as a is, or quantise a, too");
    check_result(type, d);
    for (const auto& [scales, of] : {std::pair{sfa, a}, {sfb, b}})
        if (scales.x.data != unit_scales({of.x}).matrix.data)
            reject(scales.name, "has shape [{}, {}], but {} is of {}, which has no scales; leave it out", scales.x.rows,
                   scales.x.cols, of.name, type.name);
    for (const Argument& x : {a, b, d}) x.check_extents();
    check_shapes(a, b, d.x.rows, n);
    check_places(a, b, d);
}

}  // namespace

/// The shape and the strides of scales, whatever their type.
static void check_scale_layout(const Argument& s, const Wanted& wanted) {
    s.check_extents();
    if (!s.has_shape(wanted.rows, wanted.cols)) reject_shape(s, wanted);
    s.check_steps_not_negative();
}

Wanted scales_of_rows(const ConstMatrix& x, const char* meaning, const char* maker) {
    return {x.rows, blocks(x.cols), meaning, maker};
}
Wanted scales_of_blocks(const ConstMatrix& x, const char* meaning, const char* maker) {
    return {blocks(x.rows), blocks(x.cols), meaning, maker};
}

void check_scales(const Argument& s, const Wanted& wanted) {
    // Checkpoints have scales of bf16, and of bytes that are exponents.
    const char* way_out = !wanted.maker              ? "pass memory of f32"
                          : s.x.dtype == DType::E4M3 ? "convert it; if its bytes are exponents (UE8M0), a scale is "
                                                       "2^(byte - 127)"
                                                     : "convert it, which loses nothing";
    s.check_dtype(DType::F32, way_out);
    check_scale_layout(s, wanted);
}

/// Scales of operands where those of B are MX, and those of A may be.
static void check_mx_scales(const Argument& a, const Argument& sfa, const Argument& b, const Argument& sfb) {
    if (!is_mx(sfb.x))
        reject("sfb", "has dtype {}, but sfa has {}: exponents of b, too, or floats of both; pass words of exponents",
               name_of(sfb.x.dtype), name_of(sfa.x.dtype));
    const char* const words = "a word of four exponents for each row and 128 columns of";
    if (is_mx(sfa.x)) check_scale_layout(sfa, scales_of_rows(a.x, fmt::format("{} a", words).c_str()));
    else check_scales(sfa, scales_of_rows(a.x, "one for each row and 128 columns of a", "quantize_rows"));
    check_scale_layout(sfb, scales_of_rows(b.x, fmt::format("{} b", words).c_str()));
}

/// Where scales are, and that D is apart from them.
static void check_scale_places(const Argument& sfa, const Argument& sfb, const Argument& d) {
    for (const Argument& x : {sfa, sfb}) {
        x.check_device(d.x.device, "d");
        x.check_pointer(std::min<int64_t>(alignment_on(d.x.device), alignof(float)));
        x.check_apart_from(d);
    }
}

void check_operands(const Argument& a, const Argument& sfa, const Argument& b, const Argument& sfb, const Argument& d,
                    int64_t n, Grouping grouping, Finish finish) {
    if (are(is_unscaled, a.x.dtype)) return check_unscaled_operands(a, sfa, b, sfb, d, n);
    const bool of_k = grouping == Grouping::K;
    for (const Argument& x : {a, b})
        if (!are(is_scaled, x.x.dtype))
            x.check_dtype(DType::E4M3, fmt::format("quantize_rows and quantize_blocks make it; or pass a and b of {}, "
                                                   "without scales",
                                                   names_of(is_unscaled))
                                           .c_str());
    if (!pairs_columns(finish)) check_result(*find_type(a.x.dtype), d);
    for (const Argument& x : {a, b, d}) x.check_extents();
    check_shapes(a, b, finds_rows(finish) ? a.x.rows : d.x.rows, n);
    for (const auto& [scales, of] : {std::pair{sfa, a}, {sfb, b}})
        if (!of.empty() && !scales.x.data && scales.x.rows == 0 && scales.x.cols == 0)
            reject(scales.name, "is left out, but {} is of {}, which has scales; pass those that it was quantised with",
                   of.name, name_of(of.x.dtype));
    if (is_mx(sfa.x) || is_mx(sfb.x)) {
        check_mx_scales(a, sfa, b, sfb);
        check_places(a, b, d);
        return check_scale_places(sfa, sfb, d);
    }

    const Wanted of_a = scales_of_rows(a.x, "one for each row and 128 columns of a", "quantize_rows");
    const Wanted rows_of_b = scales_of_rows(b.x, "one for each row and 128 columns of b", "quantize_rows");
    const bool sfa_fits = sfa.has_shape(of_a.rows, of_a.cols);
    const bool takes_rows =
        of_k || sfb.x.rows == b.x.rows || (!sfa_fits && sfa.has_shape(rows_of_b.rows, rows_of_b.cols));
    const Wanted of_b =
        takes_rows ? rows_of_b : scales_of_blocks(b.x, "one for each 128x128 block of b", "quantize_blocks");
    if (!sfa_fits && sfa.has_shape(of_b.rows, of_b.cols) && sfb.has_shape(of_a.rows, of_a.cols))
        reject("sfa",
               "has shape [{}, {}] and sfb [{}, {}], must be [{}, {}] and [{}, {}]; they look swapped: pass sfb as sfa",
               sfa.x.rows, sfa.x.cols, sfb.x.rows, sfb.x.cols, of_a.rows, of_a.cols, of_b.rows, of_b.cols);
    for (const auto& [scales, of, wanted] : {std::tuple{sfa, a, of_a}, {sfb, b, of_b}})
        if (scales.has_shape(1, of.x.rows) && !scales.has_shape(wanted.rows, wanted.cols))
            reject(scales.name, "has shape [1, {0}], must be [{0}, 1] as one scale for each row of {1}; transpose it",
                   of.x.rows, of.name);
    check_scales(sfa, of_a);
    check_scales(sfb, of_b);

    check_places(a, b, d);
    check_scale_places(sfa, sfb, d);
}

void check_no_prefetch(const GemmOptions& options) {
    if (options.prefetch_weights)
        reject("prefetch_weights", "is set, but a kernel for groups reads their sizes before it loads; leave it out");
}

void check_gemm_options(const GemmOptions& options, bool backend_looks_up_config) {
    if (options.numerics != Numerics::Fast && options.numerics != Numerics::Exact &&
        options.numerics != Numerics::Hopper)
        reject("numerics", "is {}, must be 0 (fast), 1 (exact) or 2 (hopper); pass one of them",
               static_cast<int32_t>(options.numerics));
    plan::check_num_sms(options.num_sms);
    if (options.prefetch_weights && !options.pdl)
        reject("prefetch_weights", "is set, but pdl is not: nothing overlaps then; set pdl, too, or leave it out");
    if (!options.config.empty() && !backend_looks_up_config) static_cast<void>(plan::config_named(options.config));
}

}  // namespace finegemm
