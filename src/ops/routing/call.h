// Calls of routing as everything behind the public functions sees them. Layer engine.
#pragma once

#include <string>

#include <finegemm/routing.h>
#include <finegemm/routing/routing.h>

namespace finegemm {

/// The options are borrowed.
struct RouteCall : RouteArgs {
    const RouteOptions& options;
    bool check_values = false;   // the options', or the context's
    uint32_t* stored = nullptr;  // [experts], as of ReportParams: become zeros

    int64_t choices() const { return ids.rows * ids.cols; }
    bool wants_permutation() const { return permutation.data != nullptr; }
    RoutePlaces places() const;
};

struct PermuteCall : PermuteQuantizeArgs {
    const PermuteOptions& options;
    bool check_values = false;
    ConstMatrix weights{};     // [T, k], of choices, which go to their rows:
    Matrix weights_of_rows{};  // [1, R]
    Matrix sums{};             // [T, H] bf16: rows of tokens that have none become zero
    ComingBytes coming{};
    const RouteCall* route = nullptr;  // of few choices: the launch finds their rows, and quantises

    bool quantizes() const { return x.dtype == DType::BF16 && q.matrix.dtype == DType::E4M3; }
    int64_t rows() const { return q.count * q.matrix.rows; }
};

struct CombineCall : CombineArgs {
    const CombineOptions& options;
    bool check_values = false;
    const RouteCall* route = nullptr;  // of choices that are counted: the launch finds their rows; of biases: experts
    ConstMatrix biases{};              // [E, columns of y], is added to rows of y
    bool counts = false;               // of biases: the launch finds rows, too
    ConstMatrix bias_weights{};        // [T, k], multiply it, of rows that have been multiplied; left out: ones

    bool has_bias() const { return biases.data != nullptr; }
    bool has_weights() const { return weights.data != nullptr; }
    int64_t rows() const { return y.count * y.matrix.rows; }
};

/// Where the rows of a stack are, in units of which an element has `unit`.
RowStack rows_of(const ConstStack& stack, int64_t unit);

// Calls visit(matrix) for each matrix of numbers that checks look at.
template <typename Visit>
void visit_numbers(RouteCall& call, const Visit& visit) {
    visit(call.ids);
}
template <typename Visit>
void visit_numbers(PermuteCall& call, const Visit& visit) {
    visit(call.inverse);
}
template <typename Visit>
void visit_numbers(CombineCall& call, const Visit& visit) {
    visit(call.inverse);
}

/// "route 4096x8 to 256 experts, prefix_sums"
std::string text_of(const RouteCall& call);
/// "permute_quantize 4096x7168 bf16 to 32768 rows e4m3"
std::string text_of(const PermuteCall& call);
/// "combine 32768 rows to 4096x7168 of 8"
std::string text_of(const CombineCall& call);

/// The id of choice c of token t.
int64_t id_of(const ConstMatrix& ids, int64_t t, int64_t c);

// Checks of numbers in the host's memory, which throw Error(InvalidArgument) that names the first that breaks the
// rules. Arguments have been checked.
void check_numbers(const RouteCall& call);
void check_numbers(const PermuteCall& call);
void check_numbers(const CombineCall& call);

}  // namespace finegemm
