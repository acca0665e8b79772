// Where a command computes, and memory there. Layer cli.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <finegemm/context.h>

#include "cli/files/files.h"
#include "workbench/gpu.h"

namespace finegemm::cli {

struct Target {
    std::unique_ptr<Gpu> gpu;  // null: the CPU
    std::string name;          // "cpu", "cuda:0"
    std::string why;           // no GPU was taken, when one was looked for
    Poll poll{};               // of its products and casts
};

/// `wish`: "cpu", "cuda" (the first GPU), "cuda:INDEX", or "auto": the first GPU that the kernels run on, else the CPU.
/// Throws Error(InvalidArgument) for another wish, and what the context throws for a GPU that it cannot use.
Target choose_target(Context& context, const std::string& wish);

/// Memory for the matrix where the target computes: the matrix's own, on the CPU.
Matrix allocate_on(const Target& target, HostMatrix& matrix);
/// A matrix with memory on the host and where the target computes.
struct Mirrored {
    HostMatrix host;
    Matrix there;
};
// Numbers of a matrix on the host.
inline float* floats(Mirrored& x) { return reinterpret_cast<float*>(x.host.bytes.data()); }
inline int32_t* integers(Mirrored& x) { return reinterpret_cast<int32_t*>(x.host.bytes.data()); }
Mirrored mirrored(const Target& target, DType dtype, int64_t rows, int64_t cols);
/// A row of numbers; its matrix is of f32, which are as wide.
Mirrored mirrored(const Target& target, const std::vector<int32_t>& numbers);
/// Copies to a matrix that is on the device.
void upload(const Target& target, const HostMatrix& from, const Matrix& to);

/// Words of MX exponents in the place of f32 scales for 128 columns: that of each, and smaller ones, so that the four
/// of a word differ.
void make_exponents(const Target& target, Mirrored& scales);
/// Copies a matrix back from where the target computes.
void download(const Target& target, HostMatrix& to, const Matrix& from);
/// Median microseconds of `repeats` calls; one more goes before them.
double median_time(const Target& target, int repeats, const std::function<void()>& call);

// Parts of a matrix: one of several that lie one below the other, all of these, some columns, and the part of A or B of
// a group of K, `count` from `first` on.
Matrix part_of(Matrix all, int64_t count, int64_t i);
Stack stack_of(const Matrix& all, int64_t count);
Matrix columns_of(Matrix x, int64_t first, int64_t count);
Matrix k_part_of(Matrix x, KLayout layout, int64_t first, int64_t count);

}  // namespace finegemm::cli
