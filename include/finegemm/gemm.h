// The FP8 GEMM with fine-grained scales. Layer: public.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <finegemm/context.h>
#include <finegemm/tensor.h>

namespace finegemm {

/// D[m, n] = sum over k of (A[m, k] * sfa[m, k / 128]) * (B[n, k] * sfb[n / 128, k / 128])
/// With scales for each row of B, as gradients of weights need: sfb[n, k / 128]; a D of f32 may then be added to.
/// Scales of shape [M, 1] or [N, 1] are one for each row, of shape [1, 1] one for the matrix.
/// As MX has them, scales are exponents of powers of two, each for a row and 32 of K, the four of 128 of K in a word of
/// UE8M0x4, the first one in its lowest byte: [M, ceil(K/128)] and [N, ceil(K/128)], those of A or f32 for 128 of K as
/// above. Exponent e is 2^(e - 127), 0 for e = 0, infinity or NaN for 255; bytes behind the last 32 of K are 0. For one
/// product and groups of rows of e4m3, with D in bf16. docs/mxfp8.md has the arithmetic. Without batch_invariant a GPU
/// may re-encode both operands before, as `reencode` does, in memory of its pool, where that is expected to be faster.
/// One of A and B may be e5m2, as gradients are: docs/scales.md has the products that there are of it.
/// A and B may be bf16 or f16 instead, without scales: sfa and sfb are left empty then, and D is of their type or f32.
/// Such an A or B may have contiguous columns instead of rows, as the transposed view of a row-major [K, N] has: row
/// stride 1, and a column stride with the rules of a row stride. In groups of K both are stored so, or neither; A of
/// groups of rows only where each group has a matrix (masks, whole).
/// All on one device. Row strides of A, B and D are at least their columns; those of A and B on a GPU below 2^40 bytes.
/// Strides of scales are any that are not negative; 0 repeats a scale.
struct GemmArgs {
    ConstMatrix a;    ///< [M, K] e4m3, K contiguous; on CUDA row stride a multiple of 16, pointer aligned to 16
    ConstMatrix sfa;  ///< [M, ceil(K/128)] f32 or UE8M0x4; on CUDA pointer aligned to 4
    ConstMatrix b;    ///< [N, K] e4m3, as A
    ConstMatrix sfb;  ///< [ceil(N/128), ceil(K/128)], or [N, ceil(K/128)] for scales of rows and UE8M0x4; as sfa
    Matrix d;  ///< [M, N] bf16, f16 or f32; N contiguous; on CUDA row stride a multiple of 8 (f32: of 4), pointer
               ///< aligned to 16
};

/// A number for each row of D.
struct RowNumbers {
    ConstStack rows{};  ///< [M, 1] f32, any stride; a stack where D is one. Without a pointer: none
};

/// A number for each row of a product: which row of another matrix it is.
struct RowIndices {
    ConstMatrix rows{};  ///< [M, 1] I32, one behind the other. Without a pointer: none
};

/// What a product becomes before it is rounded, once, to the type of D: alpha * A B + beta * C + bias[n], in FP32. For
/// one product and for groups of rows, with scales of blocks of B, or with A and B in bf16 or f16. docs/epilogues.md
/// has the order of the steps. Rows of D that belong to no group get nothing of this.
struct Epilogue {
    float alpha = 1;
    std::optional<float> beta{};  ///< 1 where C is given; 0: C is not read
    ConstStack c{};      ///< [M, N] of the type of D, with the layout that D must have: D itself, or apart from it;
                         ///< a stack where D is one. Without a pointer: none
    ConstMatrix bias{};  ///< [1, N] f32; on CUDA pointer aligned to 16. Without a pointer: none
    // Instead of the above: D in heads, [M, N + heads * head_gap]. Each head has head_left columns of the product, a
    // gap that is not written, and head_right columns of the product; N is heads * (head_left + head_right). Multiples
    // of 8, at most 65536. For one product, with D of the type of A and B, or of bf16.
    int64_t head_left = 0;
    int64_t head_gap = 0;
    int64_t head_right = 0;
    // Instead of the above: D is the SwiGLU of the product, quantised. B is [2 I, K], the rows of the gates above those
    // of the ups, I a multiple of 128, and D [M, I] e4m3. Of a gate g and an up u it is, each step rounded to FP32,
    // g / (1 + e^(-alpha g)) * (u + offset) * weight; docs/epilogues.md has the steps. For one product and for groups
    // of rows, of e4m3 with scales of blocks of B.
    Stack sfd{};                        ///< scales of D, written: [M, I/128] f32, any strides; a stack where D is one
    RowNumbers row_weights{};           ///< of each row
    std::optional<float> gate_limit{};  ///< g is at most, and |u| at most so much; 0: as they are
    std::optional<float> gate_alpha{};  ///< above 0; 0: 1
    float up_offset = 0;
    bool bf16_between = false;  ///< g and u are rounded to bf16, and so is what is quantised: the bits of a product
                                ///< with a D of bf16, of its SwiGLU in bf16 and of quantize_rows one after the other
    bool power_of_two_sfd = false;  ///< scales are rounded up to powers of two
    // Instead of the above, in groups of rows that share a matrix: rows of A and of D by their numbers, so that nothing
    // has to be permuted before or after. M is the size of the numbers, and the groups are of these. Of e4m3 with
    // scales of blocks of B, D in bf16 or f32. On the device of D, read by the kernel.
    RowIndices rows_of_a{};  ///< row m of the product is of row rows_of_a[m] of A; -1, as any number that is no row of
                             ///< A: of a row of zeros, for which nothing is read
    RowIndices rows_of_d{};  ///< and is stored as row rows_of_d[m] of D, which no other one is; -1, as any number that
                             ///< is no row of D: nowhere. Rows of D that none names are not written, padding neither
    RowNumbers factors_of_rows{};  ///< row m is multiplied by it, in FP32, before it is rounded
};

struct GemmOptions {
    Stream stream = nullptr;                ///< CUDA only
    Numerics numerics = Numerics::Fast;     ///< CPU only
    std::optional<bool> check_values{};     ///< overrides Options::check_values for this call
    std::optional<bool> batch_invariant{};  ///< overrides Options::batch_invariant for this call
    int32_t num_sms = 0;                    ///< CUDA only: SMs that the kernel may use at most, so that others stay
                                            ///< free, for communication say; 0, or more than there are: all
    bool pdl = false;                       ///< CUDA only: programmatic dependent launch. The kernel is set up while
                                            ///< the one before it in the stream ends, and waits for it before it
                                            ///< reads or writes a matrix: always right, a little faster
    bool prefetch_weights = false;          ///< with pdl, which it needs: loads of B begin before that. Set it only
                                            ///< where no kernel that may still be running in this stream writes to
                                            ///< B; with pdl more than the last one may be. Not for groups, whose
                                            ///< sizes are read first
    bool accumulate = false;                ///< D += the product instead of D = the product; D is f32 then
    Epilogue epilogue{};                    ///< D is more than the product; not with `accumulate`, nor for K = 0
    std::string config{};                   ///< a kernel by name (see explain) instead of the planner's choice;
                                            ///< on the CPU it gives Numerics::Hopper the order of the sums
    Poll poll{};                            ///< what it throws ends the call; D has parts of the result then
};

/// M is any value, N a multiple of 8, K a multiple of 16, or of 8 without scales. M = 0 or N = 0 does
/// nothing; K = 0 writes zeros, or leaves D if `accumulate` is set. Runs where D lives; on CUDA the work is queued on
/// `stream` and the call does not wait for it. Arguments are checked in each case. Between the first and the last byte
/// of D lies none of the other four, not even in the padding of its rows. Extents are at most 2^31 - 1, strides and
/// offsets 64-bit. Throws Error: InvalidArgument, Unsupported (no Hopper GPU), Driver, Compile. Nothing is written
/// then.
FINEGEMM_API void gemm(Context& context, const GemmArgs& args, const GemmOptions& options = {});

/// Meaning of the numbers in `Groups::data`.
enum class GroupForm : int32_t {
    Offsets = 1,     ///< [G + 1], ascending: group g has rows data[g] up to data[g + 1]; any numbers, 0 too
    Indices = 2,     ///< [M]: the group of each row, -1 for padding. Groups begin at multiples of `alignment` and have
                     ///< their padding behind their rows. Rows of D for padding become zero
    PrefixSums = 3,  ///< [G]: group g ends at row data[g]; it begins at the next multiple of `alignment` after the one
                     ///< before. The rows between are neither read nor written
    Masked = 4,      ///< [G]: A, sfa and D are stacks of G matrices of M rows, of which the first data[g] are used.
                     ///< The rows behind them are neither read nor written
    Whole = 5,       ///< No numbers: stacks as of Masked, of which all M rows are used. A product for each matrix
};

/// Which rows belong to which group. The numbers are on the device of D and are read by the kernel, so that they may
/// be the result of work queued before it. Numbers that break the rules never lead outside of the matrices;
/// GemmOptions::check_values finds them first.
struct Groups {
    GroupForm form = GroupForm::Offsets;
    const int32_t* data = nullptr;
    int64_t size = 0;         ///< of data
    int64_t alignment = 128;  ///< of Indices and PrefixSums; a power of two from 1 (Indices: from 64) to 2^30
    int64_t expected_m = 0;   ///< of a group, to choose the kernel by; 0: M / G less half of
                              ///< `alignment`, and M for stacks
    Device device{};
};

/// D[m, n] = sum over k of (A[m, k] * sfa[m, k / 128]) * (B[g, n, k] * sfb[g, n / 128, k / 128]), g the group of row m;
/// with scales for each row of B: sfb[g, n, k / 128].
/// Matrices have the layouts that GemmArgs asks for; on CUDA strides of stacks of A, B and D are multiples of 16
/// bytes.
struct GroupedGemmArgs {
    ConstStack a;    ///< [M, K] e4m3; Masked and Whole: [G, M, K]
    ConstStack sfa;  ///< [M, ceil(K/128)] f32 or UE8M0x4; Masked and Whole: [G, M, ceil(K/128)]
    ConstStack b;    ///< [G, N, K] e4m3
    ConstStack sfb;  ///< [G, ceil(N/128), ceil(K/128)], or [G, N, ceil(K/128)] for scales of rows and UE8M0x4
    Stack d;         ///< [M, N] bf16, f16 or f32; Masked and Whole: [G, M, N]
    Groups groups;
};

/// With rows_of_a or rows_of_d of an Epilogue A and sfa, or D, have rows of their own number.
/// G from 1 to 4096, M any value and no promise about how much of it is used, N a multiple of 8, K a multiple of 16 and
/// not 0. M = 0 or N = 0 does nothing. Rows of D that belong to no group are not written, except that Indices makes
/// them zero. Otherwise as `gemm`; `options.batch_invariant` changes nothing but for exponents, as it holds always.
FINEGEMM_API void grouped_gemm(Context& context, const GroupedGemmArgs& args, const GemmOptions& options = {});

/// Layout of the groups' parts of A and B in memory. The values are part of the C ABI.
enum class KLayout : int32_t {
    Columns = 0,  ///< side by side: A is [M, K] and B [N, K], and a group has some columns of them
    Blocks = 1,   ///< one behind the other: group g has an A [M, k_g] and a B [N, k_g] of its own, k_g = offsets[g+1]
                  ///< - offsets[g], row-major without gaps, which begin M * offsets[g] and N * offsets[g] elements
                  ///< behind the pointers of `a` and `b`
};

/// D[g, m, n] = sum over the k of group g of (A[m, k] * sfa[m, k / 128]) * (B[n, k] * sfb[n, k / 128])
/// Matrices have the layouts that GemmArgs asks for; on CUDA D of each group begins at a multiple of 16 bytes.
struct KGroupedGemmArgs {
    ConstMatrix a;    ///< [M, K] e4m3, the k of all groups together; Blocks: row stride K, as it has no gaps
    ConstMatrix sfa;  ///< [M, K/128] f32, any strides, in both layouts
    ConstMatrix b;    ///< [N, K] e4m3, as A
    ConstMatrix sfb;  ///< [N, K/128] f32, as sfa
    Stack d;          ///< [G, M, N] f32, bf16 or f16
    /// [G + 1], ascending, multiples of 128, at most K: group g has the k from offsets[g] up to offsets[g + 1].
    /// On the device of D they are read by the kernel, so that they may be the result of work queued before it. Numbers
    /// that break the rules never lead outside of the matrices then; GemmOptions::check_values finds them first.
    /// On the CPU they are read and checked by the call; a CUDA graph that captures it keeps them. Blocks needs this.
    const int32_t* offsets = nullptr;
    int64_t groups = 0;       ///< G
    Device offsets_device{};  ///< that of D, or the CPU
    KLayout layout = KLayout::Columns;
};

/// G from 1 to 65535, M any value, N a multiple of 8, K a multiple of 128. M = 0 or N = 0 does nothing. D of a group
/// without k becomes zero, or stays as it is if `options.accumulate` is set. Otherwise as `gemm`.
FINEGEMM_API void k_grouped_gemm(Context& context, const KGroupedGemmArgs& args, const GemmOptions& options = {});

/// A product as far as the host knows it: what the planner chooses a kernel by.
struct GemmShape {
    int64_t m = 0, n = 0, k = 0;   ///< of all groups together; M of masked groups: G times that of each
    std::optional<DType> dtype{};  ///< of A and B: E4M3, E5M2 or I8 with scales, BF16 or F16 without; left out: E4M3
    std::optional<DType> dtype_of_b{};  ///< of B where A is E4M3 and B E5M2, or the other way round, as of gradients
    bool row_b_scales = false;         ///< scales for each row of B, not for each 128x128 block; groups of K have these
    bool a_mx = false;                 ///< scales of A are UE8M0x4, for each row and 32 of K; with b_mx
    bool b_mx = false;                 ///< likewise of B; one product and groups of rows, of E4M3, with D in BF16
    std::optional<DType> out_dtype{};  ///< of D; left out: F32 for groups of K, else as A and B, BF16 for E4M3
    std::optional<int64_t> groups{};   ///< of rows, for grouped_gemm
    int64_t expected_m = 0;            ///< as Groups::expected_m
    int64_t alignment = 0;             ///< Groups::alignment of Indices and PrefixSums; 0: groups begin anywhere
    std::optional<int64_t> k_groups{};  ///< of K, for k_grouped_gemm; K is a multiple of 128
    std::optional<int64_t> summed{};    ///< matrices of A and of B, whose products are added up (finegemm/einsum.h); K
                                        ///< is that of all together
    bool accumulate = false;            ///< as the option of a call
    bool affine = false;                ///< of an Epilogue with alpha, beta, C or a bias; not for groups of K
    bool head_gaps = false;             ///< of an Epilogue with heads; for one product
    bool gated = false;                 ///< of an Epilogue with sfd, whose D has half as many columns, in e4m3;
                                        ///< out_dtype is left out
    bool indexed = false;          ///< of an Epilogue with rows_of_a, rows_of_d or factors_of_rows; for groups of rows
    int32_t num_sms = 0;           ///< likewise
    bool batch_invariant = false;  ///< likewise
    bool a_mn_major = false;       ///< A is stored as [K, M], not [M, K]; of bf16 or f16, for groups of K as B
    bool b_mn_major = false;       ///< B is stored as [K, N], not [N, K]; of bf16 or f16
    bool operator==(const GemmShape&) const = default;
};

/// Which kernel `gemm`, `grouped_gemm` or `k_grouped_gemm` takes and why: JSON text (docs/jit.md gives the fields).
/// `device`: a known device ("h200", "h100", "gh200", "h800", "h20"), or empty for the first GPU, if the driver of
/// Options::from_environment has one and it is a Hopper, else h200.
/// `plan_table`: as Options::plan_table; empty: none, or that of the environment if `device` is empty, too.
/// If `device` is empty, FINEGEMM_BATCH_INVARIANT=1 holds for every shape, as it does for calls that do not say.
/// Throws Error(InvalidArgument), Error(Io) for a table that cannot be read.
FINEGEMM_API std::string explain(const GemmShape& shape, const std::string& device = {},
                                 const std::string& plan_table = {});
/// `explain` for scales of 128x128 blocks of B and D in bf16.
FINEGEMM_API std::string explain(int64_t m, int64_t n, int64_t k, const std::string& device = {},
                                 bool batch_invariant = false, const std::string& plan_table = {});

}  // namespace finegemm
