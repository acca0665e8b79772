// One GEMM on one device, from host matrices to a timed result. Layer cli.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <finegemm/context.h>
#include <finegemm/gemm.h>

#include "api/gpu.h"
#include "cli/files.h"
#include "cli/shapes.h"

namespace finegemm::cli {

struct Target {
    std::unique_ptr<Gpu> gpu;  // null: the CPU
    std::string name;          // "cpu", "cuda:0"
    std::string why;           // no GPU was taken, when one was looked for
};

/// `wish`: "cpu", "cuda" (the first GPU), "cuda:INDEX", or "auto": the first GPU that the kernels run on, else the CPU.
/// Throws Error(InvalidArgument) for another wish, and what the context throws for a GPU that it cannot use.
Target choose_target(Context& context, const std::string& wish);

/// random_matrix repeats its values after so many, a prime number: no two rows or blocks near one another are alike,
/// and large matrices are quick.
inline constexpr int64_t kRandomPeriod = 4'194'301;

/// Standard normal values, f32; the same on every machine for the same seed.
HostMatrix random_matrix(int64_t rows, int64_t cols, uint64_t seed);

/// Takes `to` from a long row of random values, cyclically, beginning at one of them.
void fill(HostMatrix& to, const HostMatrix& random, int64_t first);

/// Memory for the matrix where the target computes: the matrix's own, on the CPU.
Matrix allocate_on(const Target& target, HostMatrix& matrix);
/// A matrix with memory on the host and where the target computes.
struct Mirrored {
    HostMatrix host;
    Matrix there;
};
Mirrored mirrored(const Target& target, DType dtype, int64_t rows, int64_t cols);
/// A row of numbers; its matrix is of f32, which are as wide.
Mirrored mirrored(const Target& target, const std::vector<int32_t>& numbers);
/// Copies to a matrix that is on the device.
void upload(const Target& target, const HostMatrix& from, const Matrix& to);
/// Copies a matrix back from where the target computes.
void download(const Target& target, HostMatrix& to, const Matrix& from);
/// Median microseconds of `repeats` calls; one more goes before them.
double median_time(const Target& target, int repeats, const std::function<void()>& call);

/// One side of the product: values to quantise, or e4m3 codes with their scales (without any: ones).
struct Operand {
    HostMatrix values;
    std::optional<HostMatrix> scales;
};

/// Quantised operands and a result: where the target computes, and on the host after fetch().
class Session {
public:
    /// A [M, K] takes 1x128 scales, B [N, K] 128x128 or 1x128 scales.
    Session(Context& context, const Target& target, Operand a, Operand b, const ProductKind& kind = {});

    /// The product's shape for the planner.
    GemmShape shape() const;

    /// The product, as a call to be made while the session lives.
    std::function<void()> call(const GemmOptions& options) const;
    /// Median microseconds of `repeats` runs; one more goes before them.
    double time(const GemmOptions& options, int repeats);
    /// The five matrices on the host, copied there when they are on a GPU.
    GemmArgs fetch();
    const HostMatrix& d() const { return host_[4]; }

private:
    void fill(Operand& x, const char* name, bool blocks, int q, int scales);

    Context& context_;
    const Target& target_;
    ProductKind kind_;
    HostMatrix host_[5];  // a, sfa, b, sfb, d
    Matrix there_[5];
    GemmArgs args_;
};

/// Work of a product: operations and bytes (each matrix once, B for each group) for figures per time.
double operations(int64_t m, int64_t n, int64_t k);
double traffic_bytes(const GemmShape& shape, int64_t groups = 1);

}  // namespace finegemm::cli
