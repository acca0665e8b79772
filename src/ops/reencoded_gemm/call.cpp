// Products with MX scales as those of the same numbers with scales for 128 of K. Layer engine.
#include "ops/reencoded_gemm/call.h"

namespace finegemm {

namespace {

constexpr int64_t kAligned = 256;  // bytes at whose multiples parts of the memory begin

int64_t aligned(int64_t bytes) { return (bytes + kAligned - 1) / kAligned * kAligned; }

/// Where an operand's codes and scales lie: rows of whole k-blocks, and scales as kernels read them fastest.
struct Layout {
    int64_t row, matrix;              // strides of the codes
    int64_t scales;                   // where they begin
    int64_t scale_row, scale_column;  // strides of theirs
    int64_t scale_matrix;
    int64_t bytes;

    Layout(const ConstStack& codes, bool row_major_scales) {
        const ConstMatrix& x = codes.matrix;
        const int64_t k_blocks = (x.cols + kScaleBlock - 1) / kScaleBlock;
        const int64_t column = row_major_scales ? x.rows : (x.rows + 3) / 4 * 4;  // at multiples of 16 bytes
        row = k_blocks * kScaleBlock;
        matrix = x.rows * row;
        scales = aligned(codes.count * matrix);
        scale_row = row_major_scales ? k_blocks : 1;
        scale_column = row_major_scales ? 1 : column;
        scale_matrix = column * k_blocks;
        bytes = scales + aligned(codes.count * scale_matrix * static_cast<int64_t>(sizeof(float)));
    }
};

}  // namespace

size_t ReencodedCall::bytes() const {
    size_t sum = 0;
    for (const Operand& x : kOperands)
        if (is_mx((mx_.*x.scales).matrix)) sum += bytes_of(x);
    return sum;
}

size_t ReencodedCall::bytes_of(const Operand& x) const {
    return static_cast<size_t>(Layout(mx_.*x.codes, has_row_major_scales(x)).bytes);
}

ReencodeCall ReencodedCall::call_of(const Operand& operand, uint8_t* at, Call& product,
                                    const ReencodeOptions& options) const {
    const ConstStack &codes = mx_.*operand.codes, &words = mx_.*operand.scales;
    const Layout layout(codes, has_row_major_scales(operand));
    const ConstMatrix& x = codes.matrix;
    const Stack q{{at, DType::E4M3, x.rows, x.cols, layout.row, 1, x.device}, codes.count, layout.matrix};
    const Matrix scales{at + layout.scales, DType::F32,          x.rows,  layout.row / kScaleBlock,
                        layout.scale_row,   layout.scale_column, x.device};
    const Stack of_rows{scales, codes.count, layout.scale_matrix};
    product.*operand.codes = q, product.*operand.scales = of_rows;
    return {{.codes = codes, .words = words, .q = q, .scales = of_rows}, options};
}

}  // namespace finegemm
