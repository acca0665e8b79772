// A product on the CPU whose rows of A, or of D, are found by numbers. Layer engine.
#include <cstring>
#include <vector>

#include "engine/any_address.h"
#include "ops/gemm/cpu.h"

namespace finegemm {

namespace {

/// Rows one behind the other: zeros until they are filled.
struct Rows {
    DType dtype;
    int64_t rows, cols;
    std::vector<uint8_t> bytes = std::vector<uint8_t>(static_cast<size_t>(rows * row_bytes()));

    int64_t row_bytes() const { return cols * size_of(dtype); }
    uint8_t* row(int64_t i) { return bytes.data() + i * row_bytes(); }
    Matrix view() { return {bytes.data(), dtype, rows, cols, cols, 1, {}}; }
};

/// Row `from` of a matrix, whatever its strides.
void copy_row(const ConstMatrix& x, int64_t from, uint8_t* to) {
    const int64_t size = size_of(x.dtype);
    const auto* const row = static_cast<const uint8_t*>(x.data) + from * x.row_stride * size;
    if (x.col_stride == 1 || x.cols == 1) std::memcpy(to, row, static_cast<size_t>(x.cols * size));
    else
        for (int64_t c = 0; c < x.cols; ++c)
            std::memcpy(to + c * size, row + c * x.col_stride * size, static_cast<size_t>(size));
}

}  // namespace

void cpu_found_rows(const Call& call, ThreadPool& pool, bool batch_invariant) {
    const Matrix& d = call.d.matrix;
    Rows a{DType::E4M3, call.rows(), call.a.matrix.cols}, sfa{DType::F32, call.rows(), call.sfa.matrix.cols},
        product{d.dtype, call.rows(), d.cols};
    const std::vector<GroupRows> groups = rows_by_group(row_layout_of(call));
    for (const auto& [group, rows] : groups)
        for (int64_t m = rows.begin; group >= 0 && m < rows.end; ++m) {
            const int64_t from = row_of_a(call, m);
            if (from < 0) continue;
            copy_row(call.a.matrix, from, a.row(m));
            copy_row(call.sfa.matrix, from, sfa.row(m));
        }
    GemmOptions options = call.options;
    options.epilogue = {};
    options.epilogue.factors_of_rows = call.epilogue().factors_of_rows;
    if (!options.config.empty()) {  // of a kernel with numbers; all for groups of rows have the same order of sums
        static_cast<void>(arithmetic_of(problem_of(call, batch_invariant), options.config));
        options.config.clear();
    }
    const GroupedGemmArgs args{{a.view()}, {sfa.view()}, call.b, call.sfb, {product.view()}, call.groups};
    cpu_gemm({args, options}, pool, batch_invariant);
    const bool pads = !plan::places_rows(call.epilogue());  // rows of padding become zero
    for (const auto& [group, rows] : groups)
        for (int64_t m = rows.begin; (group >= 0 || pads) && m < rows.end; ++m)
            if (const int64_t to = row_of_d(call, m); to >= 0)
                std::memcpy(static_cast<uint8_t*>(d.data) + to * d.row_stride * size_of(d.dtype), product.row(m),
                            static_cast<size_t>(product.row_bytes()));
}

}  // namespace finegemm
