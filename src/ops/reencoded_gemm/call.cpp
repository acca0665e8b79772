// Products with MX scales as those of the same numbers with scales for 128 of K. Layer engine.
#include "ops/reencoded_gemm/call.h"

namespace finegemm {

namespace {

constexpr int64_t kAligned = 256;  // bytes at whose multiples parts of the memory begin

int64_t aligned(int64_t bytes) { return (bytes + kAligned - 1) / kAligned * kAligned; }

/// Where an operand's codes and scales lie: rows of whole k-blocks, and columns of scales at multiples of 16 bytes, as
/// kernels copy them fastest.
struct Layout {
    int64_t row, column, matrix, scales, scale_matrix;  // strides, and the offset of the scales, in bytes
    int64_t bytes;

    explicit Layout(const ConstStack& codes) {
        const ConstMatrix& x = codes.matrix;
        const int64_t k_blocks = (x.cols + kScaleBlock - 1) / kScaleBlock;
        row = k_blocks * kScaleBlock;
        column = (x.rows + 3) / 4 * 4;
        matrix = x.rows * row;
        scales = aligned(codes.count * matrix);
        scale_matrix = column * k_blocks;
        bytes = scales + aligned(codes.count * scale_matrix * static_cast<int64_t>(sizeof(float)));
    }
};

}  // namespace

size_t ReencodedCall::bytes() const {
    size_t sum = 0;
    for (const auto& [codes, scales] : {Operand{&Call::b, &Call::sfb}, Operand{&Call::a, &Call::sfa}})
        if (is_mx((mx_.*scales).matrix)) sum += bytes_of(mx_.*codes);
    return sum;
}

size_t ReencodedCall::bytes_of(const ConstStack& codes) { return static_cast<size_t>(Layout(codes).bytes); }

ReencodeCall ReencodedCall::call_of(const ConstStack& codes, const ConstStack& words, uint8_t* at, ConstStack& to,
                                    ConstStack& to_scales, const ReencodeOptions& options) {
    const Layout layout(codes);
    const ConstMatrix& x = codes.matrix;
    const Stack q{{at, DType::E4M3, x.rows, x.cols, layout.row, 1, x.device}, codes.count, layout.matrix};
    const Matrix scales{at + layout.scales, DType::F32, x.rows, layout.row / kScaleBlock, 1, layout.column, x.device};
    const Stack of_rows{scales, codes.count, layout.scale_matrix};
    to = q, to_scales = of_rows;
    return {{.codes = codes, .words = words, .q = q, .scales = of_rows}, options};
}

}  // namespace finegemm
