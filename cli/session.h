// One GEMM of any grouping on one device, from host matrices to a timed result. Layer cli.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include <finegemm/context.h>
#include <finegemm/quantize.h>

#include "api/multiply.h"
#include "cli/product.h"
#include "cli/random.h"
#include "cli/target.h"
#include "plan/fields.h"

namespace finegemm::cli {

/// One side of a dense product: values to quantise, or e4m3 codes with their scales (without any: ones).
struct Operand {
    HostMatrix values;
    std::optional<HostMatrix> scales;
};

/// Operands, quantised or, where they have no scales, rounded, and a result: where the target computes, and on the host
/// after fetch(). Sizes of groups are on the device where the layout allows it.
class Session {
public:
    /// Random operands. Groups are ragged, and they, too, are drawn by the seed; `product`: how they are told.
    Session(Context& context, const Target& target, const GemmShape& shape, const ProductOptions& product,
            uint64_t seed);
    /// A dense product of these: A [M, K] takes 1x128 scales, B [N, K] 128x128 or 1x128 scales.
    Session(Context& context, const Target& target, Operand a, Operand b, const GemmShape& fields,
            const ProductOptions& product = {}, uint64_t seed = 1);

    /// What the planner is asked about.
    const GemmShape& shape() const { return shape_; }
    /// Rows or K of each group; empty for one product.
    const std::vector<int64_t>& sizes() const { return sizes_; }

    /// The product, to be computed while the session lives.
    std::function<void()> call(const GemmOptions& options);
    /// Median microseconds of `repeats` runs; one more goes before them.
    double time(const GemmOptions& options, int repeats);
    /// All matrices and numbers on the host: D, copied there when it is on a GPU, and not added to anything, and
    /// operands as the CPU quantises them.
    Call fetch(const GemmOptions& options);
    const HostMatrix& d() const { return d_.host; }
    /// Codes and scales on a GPU, at the last fetch(), that have other bits than the CPU's.
    int64_t wrong_operands() const { return wrong_operands_; }
    /// What quantisation costs a dense product of given values: the relative root mean square that D, at the last
    /// fetch(), is off theirs. Nothing where no given value was quantised here.
    std::optional<double> error_of_quantization(int64_t max_rows) const;

private:
    struct Part : Mirrored {
        int64_t count = 1;    // matrices, one below the other
        int64_t mn_rows = 0;  // of each, where their transposes are stored, in rows at multiples of 16 bytes
    };
    /// A matrix, or a part of one, in both places; on the CPU they are one.
    struct Both {
        Matrix host, there;
    };
    using Quantize = decltype(quantize_rows);
    template <typename PartOf>
    static Both part(Part& all, const PartOf& part_of) {
        return {part_of(all.host.view()), part_of(all.there)};
    }
    static Both whole(Part& all) { return {all.host.view(), all.there}; }
    Part make(DType dtype, int64_t count, int64_t rows, int64_t cols) const;
    const ElementType& type() const { return plan::operand_type(shape_); }
    const ElementType& type_of_b() const { return plan::type_of_b(shape_); }
    bool scaled() const { return type().scaled; }
    /// Scales of a part; nothing where there are none.
    Part make_scales(int64_t count, int64_t rows, int64_t cols) const {
        return scaled() ? make(DType::F32, count, rows, cols) : Part{};
    }
    void make_dense(Operand& a, Operand& b);
    void make_row_groups(const std::string& form, uint64_t seed);
    void make_k_groups(uint64_t seed);
    void make_sum(uint64_t seed);
    void load(Operand& x, const char* name, const ElementType& type, bool blocks, Part& q, Part& scales);
    void quantize(Quantize* by, HostMatrix& x, const Matrix& there, const Both& q, const Both& scales);
    void upload_rounded();
    bool scales_rows_of_b() const { return shape_.row_b_scales || shape_.b_mx; }
    int64_t columns_of_row_scales() const { return whole_rows_ ? 1 : blocks_of(shape_.k); }
    void store_layouts();
    void transpose(Part& x);
    void quantize_k(const HostMatrix& random, int64_t first, Part& q, Part& scales);
    void make_epilogue(uint64_t seed);
    void make_indices(uint64_t seed);
    DType type_of_d() const;
    Call args(const GemmOptions& options, bool on_host);
    GemmOptions completed(GemmOptions options, bool on_host);

    Context& context_;
    const Target& target_;
    GemmShape shape_;
    bool whole_rows_ = false;
    Part a_, sfa_, b_, sfb_, d_;
    Epilogue epilogue_{}, host_epilogue_{};        // as the target and as the host is told it
    std::vector<Part> added_;                      // the epilogue's matrices
    std::vector<Mirrored> indices_;                // rows of A and of D
    std::vector<Part> scales_of_d_;                // results, too
    GemmOptions host_options_;                     // of fetch()
    std::optional<HostMatrix> given_a_, given_b_;  // values that were quantised here
    int64_t wrong_operands_ = 0;
    std::vector<int64_t> sizes_;
    GroupForm form_ = GroupForm::Offsets;
    int64_t alignment_ = kRowAlignment;
    KLayout layout_ = KLayout::Columns;
    std::vector<int32_t> offsets_;  // of groups of K
    Mirrored numbers_;              // that tell the groups
};

}  // namespace finegemm::cli
