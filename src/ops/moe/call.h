// A call of a layer of experts as everything behind the public function sees it. Layer engine.
#pragma once

#include <functional>
#include <string>

#include <finegemm/moe.h>

#include "ops/routing/call.h"

namespace finegemm {

/// Rows of experts that come from elsewhere, and go there, instead of those of tokens.
struct ElsewhereRows {
    /// Fills rows, their scales and the offsets of experts, [1, E + 1].
    std::function<void(const Stack& rows, const Stack& scales, const Matrix& offsets)> bring;
    /// Takes results; without a pointer where they have been stored already.
    std::function<void(const Stack& y)> take;
    RowIndices places{};  // addresses: of each row, where the second product may store its result
};

/// The options are borrowed.
struct MoeCall : MoeArgs {
    const MoeOptions& options;
    bool check_values = false;                 // the options', or the context's
    const ElsewhereRows* elsewhere = nullptr;  // then x, ids and out have shapes alone

    MoeShape shape() const;
    Device device() const { return out.device; }
    bool has_bias() const { return options.gate_up_bias.data != nullptr; }
    bool has_four_bit() const { return gate_up_packed.data != nullptr; }
    bool has_fp8() const { return gate_up.matrix.data != nullptr || !has_four_bit(); }
};

/// Which launches a layer's products are.
struct MoeForms {
    bool fused = true;                                     // the activation is part of the first product's
    bool gate_up_four_bit = false, down_four_bit = false;  // weights of 4 bits are multiplied
    bool stores_sums = false;  // the second product stores what combine would make of its rows; of one choice a token
};
/// Where nothing is faster than anything else: one launch where that may be, FP8 where it is given.
MoeForms usual_forms(const MoeShape& shape);

/// Rows that there is memory for, and that experts here are expected to have.
int64_t rows_of(const MoeShape& shape);
int64_t expected_rows_of(const MoeShape& shape);

/// Whether the activation is part of the first product's launch, where that is not the planner's to say.
std::optional<bool> fused_by_rule(const MoeShape& shape);

/// Whether a second product with FP8 may store sums: of tokens with one choice each, which leave nothing to add up.
/// Choices that launches count by themselves take kernels that store none, and biases are added where sums are.
bool may_store_sums(const MoeShape& shape);

/// May CTAs of the second product come as soon as all of the activation's have begun? Of fewer rows, not counted, it
/// ends later so, as its CTAs lie on SMs in no order; of more, or of tokens with several choices, it gains nothing.
constexpr bool begins_second_early(const MoeShape& s) {
    return s.choices == 1 && s.tokens >= 512 && s.tokens <= 4096 && !s.biased && !s.four_bit;
}

/// Does the activation of these take experts while the first product multiplies others (GemmConfig::reports_rows)? With
/// fewer or more rows it gains less than 1%. Kernels that report have more k-blocks than stages.
constexpr bool awaits_rows(const MoeShape& s) {
    constexpr int64_t kMostStages = 8;
    return begins_second_early(s) && s.hidden > kMostStages * kScaleBlock;
}

// The products as the planner knows them. `fused`: with the activation. `stores_sums`: as of MoeForms.
GemmShape gate_up_shape(const MoeShape& shape, bool fused);
GemmShape down_shape(const MoeShape& shape, bool stores_sums);
/// A product of a shape that has weights of 4 bits.
FourBitShape four_bit_shape(const MoeShape& shape, const GemmShape& product);

/// The activation as an epilogue. `scales`: of its codes. `weights`: [1, rows], or without a pointer.
Epilogue activation(const MoeOptions& options, const Stack& scales, const ConstMatrix& weights);

/// Where in the workspace is what: bytes from its first line.
struct MoeMemory {
    int64_t inverse = 0, offsets = 0;    // what route writes
    int64_t stored = 0;                  // likewise, zeros: what the first product has stored (ReportParams)
    int64_t permutation = 0;             // likewise, where a token has one choice
    int64_t codes = 0, code_scales = 0;  // of the activation
    int64_t rows = 0, row_scales = 0;    // of tokens
    int64_t weights_of_rows = 0;         // of each row, where they multiply the activation
    int64_t between = 0;                 // gates and ups in bf16, where the activation has a launch of its own
    int64_t y = 0;                       // of the second product, where rows and gates have been read
    int64_t bytes = 0;                   // wherever the memory begins
    int64_t scale_stride = 0;            // from column to column of scales, whose rows are contiguous
};
MoeMemory memory_of(const MoeShape& shape, bool fused);
/// Where parts of memory count from: its first address on a line.
uint8_t* first_line(void* memory);

/// Where rows of experts are, with what `memory` has of it.
RouteArgs route_of(const MoeCall& call, const MoeMemory& parts, void* memory);

/// "moe 4096x7168 bf16, 8 of 256 experts, 2048 pairs"
std::string text_of(const MoeCall& call);

}  // namespace finegemm
