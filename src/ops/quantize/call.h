// A quantisation as everything behind the public functions sees it. Layer engine.
#pragma once

#include <finegemm/quantize.h>
#include <finegemm/quantize/columns.h>
#include <finegemm/quantize/reencode.h>

namespace finegemm {

/// One 1x128 scale per row and block, one 128x128 scale per square block, or one scale per row.
enum class ScaleShape { Rows, Blocks, WholeRows };

/// Scales of rows: of one column they are for whole rows.
inline ScaleShape shape_of_row_scales(const ConstMatrix& x, const Matrix& scales) {
    return x.cols > kScaleBlock && scales.cols == 1 ? ScaleShape::WholeRows : ScaleShape::Rows;
}

/// The type of checked codes.
inline QuantizeCodes codes_of(const Matrix& q) {
    return q.dtype == DType::I8     ? QuantizeCodes::I8
           : q.dtype == DType::E5M2 ? QuantizeCodes::E5M2
                                    : QuantizeCodes::E4M3;
}

/// Operands and options of one quantisation. The options are borrowed.
struct QuantizeCall : QuantizeWeightsArgs {
    ScaleShape shape;
    const QuantizeOptions& options;

    QuantizeCall(ScaleShape of, const ConstMatrix& from, const Matrix& codes, const Matrix& scales_of_codes,
                 const QuantizeOptions& o)
        : QuantizeWeightsArgs{{from}, {codes}, {scales_of_codes}}, shape(of), options(o) {}
    QuantizeCall(const QuantizeWeightsArgs& args, const QuantizeOptions& o)
        : QuantizeWeightsArgs(args), shape(ScaleShape::Blocks), options(o) {}

    bool has_transposed() const { return transposed.matrix.data != nullptr; }
};

/// Operands and options of one quantisation of columns. The options are borrowed.
struct QuantizeColumnsCall : QuantizeColumnsArgs {
    const QuantizeOptions& options;

    bool has_rows() const { return row_q.data != nullptr; }
    bool has_groups() const { return offsets.data != nullptr; }
    ColumnGroups groups() const {
        if (!has_groups()) return {};
        return {.offsets = static_cast<const int32_t*>(offsets.data),
                .begins = static_cast<int32_t*>(begins.data),
                .groups = static_cast<uint32_t>(offsets.cols - 1)};
    }
};

/// Operands and options of codes with exponents for 32 of K that get scales for 128. The options are borrowed.
struct ReencodeCall : ReencodeArgs {
    const ReencodeOptions& options;

    /// One scale for 128x128, where it could be for a row as well: one row has scales of rows.
    bool has_blocks() const { return scales.matrix.rows != codes.matrix.rows; }
};

}  // namespace finegemm
