// What checks of arguments share: a matrix with its name, and the rules for one and for the five of a GEMM. Layer api.
#pragma once

#include <finegemm/gemm.h>
#include <finegemm/gemm/config.h>

#include "plan/problem.h"
#include "plan/reject.h"

namespace finegemm {

/// A matrix argument, or a stack of them, and its name in messages. Checks throw Error(InvalidArgument).
struct Argument {
    static constexpr int64_t kAlignment = 16;  // bytes: what TMA asks of addresses and rows

    const char* name;
    const ConstMatrix& x;
    int64_t count = 1, stride = 0;  // of the stack; at least one matrix

    bool empty() const { return x.rows == 0 || x.cols == 0; }
    bool has_shape(int64_t rows, int64_t cols) const { return x.rows == rows && x.cols == cols; }
    // A stride that no step is taken with may be anything.
    int64_t row_step() const { return x.rows > 1 ? x.row_stride : 0; }
    int64_t col_step() const { return x.cols > 1 ? x.col_stride : 0; }
    int64_t stack_step() const { return count > 1 ? stride : 0; }

    void check_dtype(DType wanted, const char* way_out) const;
    void check_extents() const;
    void check_device(Device wanted, const char* other) const;
    void check_pointer(int64_t alignment) const;
    /// Rows that are contiguous, apart, and start on multiples of `alignment` bytes, in each matrix of a stack.
    void check_rows(int64_t alignment) const;
    /// Columns that are contiguous, apart and aligned so, or rows as check_rows wants them.
    void check_rows_or_columns(int64_t alignment) const;
    void check_steps_not_negative() const;
    /// For scales that are written: no two at one place.
    void check_elements_apart() const;
    /// For stacks that are written: no two of their rows share memory. Rows and the span have been checked.
    void check_matrices_apart() const;
    /// The end of the last element is an address, and offsets in bytes fit 63 bits.
    void check_span() const;
    void check_apart_from(const Argument& output) const;
    /// Between the first and the last byte of each, with what lies between.
    bool overlaps(const Argument& other) const;
    /// Is it the other one, element by element?
    bool is_same_as(const Argument& other) const {
        return x.data == other.x.data && row_step() == other.row_step() && stack_step() == other.stack_step();
    }

private:
    /// Rows or columns, so many elements long, each `stride` behind the one before.
    struct Lines {
        const char *name, *across;  // "row", "column"
        int64_t count, length, stride;
    };
    void check_lines(const Lines& lines, int64_t alignment) const;
    void check_matrices_not_negative() const;
    uintptr_t begin() const { return reinterpret_cast<uintptr_t>(x.data); }
    uintptr_t end() const;
};

/// Of addresses and rows of e4m3 and of results, in bytes: 1 on the CPU, which loads from and stores to any address.
int64_t alignment_on(Device device);

/// A row of numbers that say where groups are.
struct NumbersArgument {
    const char* name;
    const int32_t* data;
    int64_t size;
    Device device;
};
/// On the device `wanted`, and none of them in `d`.
void check_numbers(const NumbersArgument& numbers, Device wanted, const Argument& d);

/// The layout that the scales of a matrix must have.
struct Wanted {
    int64_t rows, cols;
    const char* meaning;  // what a scale covers
    const char* maker;    // of scales that are read; null for those that are written
};
Wanted scales_of_rows(const ConstMatrix& x, const char* meaning, const char* maker = nullptr);
Wanted scales_of_blocks(const ConstMatrix& x, const char* meaning, const char* maker = nullptr);

/// f32, of the wanted shape, any strides that are not negative.
void check_scales(const Argument& s, const Wanted& wanted);

/// The matrices of a GEMM, or of several in stacks. Groups of K have scales for each row of B and a D of f32. `n`:
/// columns of the product. `finish`: one that says how many rows A and D have, and which type D, has checked these.
void check_operands(const Argument& a, const Argument& sfa, const Argument& b, const Argument& sfb, const Argument& d,
                    int64_t n, Grouping grouping, Finish finish);

/// A GPU's backend looks up the kernel that options name, where it has something to do.
void check_gemm_options(const GemmOptions& options, bool backend_looks_up_config);
/// Rejects `prefetch_weights` for a grouped product.
void check_no_prefetch(const GemmOptions& options);

}  // namespace finegemm
