// Rows of A, and of D, that are found by numbers, one behind the other. Layer engine.
#pragma once

#include <vector>

#include "ops/gemm/groups.h"

namespace finegemm {

/// A call on the CPU whose rows are found by numbers as a product of rows that lie in order.
class FoundRows {
public:
    /// Copies the rows of A.
    explicit FoundRows(const Call& call);

    /// With a D of its own, which is zero.
    Call call();
    /// Copies rows of that D to where numbers say.
    void store();
    /// Copies them from there.
    void take_stored();

private:
    /// Zeros until they are filled.
    struct Rows {
        DType dtype;
        int64_t rows, cols;
        std::vector<uint8_t> bytes = std::vector<uint8_t>(static_cast<size_t>(rows * row_bytes()));

        int64_t row_bytes() const { return cols * size_of(dtype); }
        uint8_t* row(int64_t i) { return bytes.data() + i * row_bytes(); }
        Matrix view() { return {bytes.data(), dtype, rows, cols, cols, 1, {}}; }
    };
    void add_up(int64_t m);
    /// Calls visit(m, row m of the product, where D has it) for those that are stored.
    template <typename Visit>
    void for_stored(const Visit& visit);

    const Call& call_;
    const std::vector<GroupRows> groups_;
    Rows a_, sfa_, product_;
    GemmOptions options_;
};

}  // namespace finegemm
