// Scores of an indexer for sparse attention: logits of queries with several heads and keys that all heads share (MQA).
// Layer: public.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <finegemm/context.h>
#include <finegemm/tensor.h>

namespace finegemm {

/// How sums over heads take relu(x). The values are part of the C ABI. docs/indexer.md has both, with their bounds.
enum class Relu : int32_t {
    Exact = 0,  ///< max(x, 0)
    Abs = 1,    ///< (x + |x|) / 2, where the sum of the x is a product of its own, of two residual e4m3 columns: faster
                ///< on a GPU where it is not the tensor cores that take the time. With fewer than 32 heads, of keys in
                ///< pages, and where that sum is not finite, max(x, 0) is taken
};

/// What rows of logits have. The values are part of the C ABI.
enum class LogitsForm : int32_t {
    Filled = 0,      ///< column j is of key j; -inf where the query does not see the key
    Untouched = 1,   ///< column j is of key j; what lies elsewhere is not written
    Compressed = 2,  ///< column 0 is of the first key that the query sees; what lies behind the last is not written
};

struct MqaOptions {
    LogitsForm form = LogitsForm::Filled;  ///< paged_mqa_logits has no Compressed: each of its rows begins at key 0
    Relu relu = Relu::Exact;
    Stream stream = nullptr;             ///< CUDA only
    std::optional<bool> check_values{};  ///< overrides Options::check_values for this call: look at windows, lengths
                                         ///< and numbers of pages first; on CUDA that waits for the stream
    int32_t num_sms = 0;                 ///< as GemmOptions::num_sms
    bool pdl = false;                    ///< as GemmOptions::pdl
    Poll poll{};                         ///< as GemmOptions::poll
};

/// d[i, j] = sfk[j] * sum over heads h of relu(q[i, h] . k[j]) * w[i, h] for each key j that query i sees: those from
/// starts[i] to before ends[i]. Scales of q are in `w`. H is 8, 16, 32 or 64, D is 32, 64 or 128.
/// Windows are in any order and may overlap; where the end is not behind the start a query sees nothing. What of them
/// lies outside of the keys is ignored. The numbers are read when the work is done, so that they may be the result of
/// work queued before it; MqaOptions::check_values finds those that reach outside.
struct MqaLogitsArgs {
    ConstStack q;        ///< S matrices [H, D] e4m3, D contiguous; on CUDA rows and strides at multiples of 16 bytes
    ConstMatrix k;       ///< [Skv, D] e4m3, as q
    ConstMatrix sfk;     ///< [1, Skv] f32, contiguous; on CUDA pointer aligned to 16
    ConstMatrix w;       ///< [S, H] f32, H contiguous, any row stride of at least H
    ConstMatrix starts;  ///< [1, S] i32, contiguous
    ConstMatrix ends;    ///< [1, S] i32, contiguous
    Matrix d;  ///< [S, Skv], or Compressed [S, any], where windows that have more keys are cut; f32 or bf16, rows
               ///< contiguous and apart; on CUDA stores are the fastest where rows start at multiples of 16 bytes
};

/// Rows of d share no memory with each other or with what is read; nothing between them is written. S = 0, no keys,
/// or d without columns: nothing is done. A logit is rounded once, to the type of d. What keys hold
/// that a query does not see, NaN say, never reaches its logits. CPU and GPU give the same bits. On CUDA the work is
/// queued and the call does not wait. Throws Error: InvalidArgument, Unsupported, Driver, Compile.
FINEGEMM_API void mqa_logits(Context& context, const MqaLogitsArgs& args, const MqaOptions& options = {});

/// Scores for decoding: keys are in pages of a cache. B requests have T queries each, T from 1 to 8. Page p of
/// request b has its keys from p * P: slot s of page block_table[b, p] is key p * P + s. P is 4, 16, 32 or 64.
/// With lengths [B, T] query t of request b sees the keys before lengths[b, t], and none behind those of the last
/// query: lengths of a request ascend. With lengths [B, 1] it sees those before lengths[b, 0] - (T - 1 - t). 0, and
/// what is below, is no key; more keys than block_table or d have columns for are cut. A number that is no page is
/// taken as page 0. Slots behind the keys, and entries of block_table behind them, may hold anything.
struct PagedMqaLogitsArgs {
    ConstStack q;         ///< B * T matrices [H, D] e4m3, as of MqaLogitsArgs
    ConstMatrix cache;    ///< [pages, P * (D + 4)] e4m3: bytes, of which the last 4 * P are the scales of the P keys
                          ///< before them, f32; row stride at least that; on CUDA pages start at multiples of
                          ///< 16 bytes
    ConstMatrix w;        ///< [B * T, H] f32, as of MqaLogitsArgs
    ConstMatrix lengths;  ///< [B, T] or [B, 1] i32, columns contiguous
    ConstMatrix block_table;  ///< [B, any] i32, columns contiguous, any row stride of at least its columns
    ConstMatrix schedule;     ///< [slots + 1, 2] i32, contiguous, or left out: what paged_mqa_schedule makes. The
                              ///< kernels of this version split the work by themselves and do not read it
    Matrix d;                 ///< [B * T, any], as of MqaLogitsArgs
};

/// Row b * T + t of d is of query t of request b, its column j of key j. Otherwise as mqa_logits.
FINEGEMM_API void paged_mqa_logits(Context& context, const PagedMqaLogitsArgs& args, const MqaOptions& options = {});

/// A call of one of both, as far as the host knows it.
struct MqaShape {
    bool paged = false;
    int64_t requests = 1;  ///< B; 1 for keys in rows
    int64_t queries = 1;   ///< of a request; S for keys in rows
    int64_t keys = 1;      ///< columns of d
    int64_t heads = 64;
    int64_t dim = 128;
    int64_t page_size = 64;    ///< P, of pages
    DType dtype = DType::F32;  ///< of d
    LogitsForm form = LogitsForm::Filled;
    Relu relu = Relu::Exact;
    int64_t rows() const { return requests * queries; }
};

/// Which kernel it takes and why: JSON text with `kernel`, its name, `why`, sentences, and `config`, what the kernel is
/// made of. Throws Error(InvalidArgument) for what no call may have.
FINEGEMM_API std::string explain(const MqaShape& shape);

/// How work of paged_mqa_logits would be split over slots, most often as many as the GPU has SMs. docs/indexer.md has
/// the numbers: they are those that clients of DeepGEMM make and expect.
struct PagedMqaScheduleArgs {
    ConstMatrix lengths;       ///< [B, T] or [B, 1] i32, as of PagedMqaLogitsArgs
    int64_t queries_each = 1;  ///< T
    Matrix schedule;           ///< [slots + 1, 2] i32, contiguous
};

struct PagedMqaScheduleOptions {
    Stream stream = nullptr;  ///< CUDA only
    bool pdl = false;         ///< as GemmOptions::pdl
    Poll poll{};              ///< as GemmOptions::poll
};

/// On the device of the schedule, whatever the lengths: all may be 0, and B may be.
FINEGEMM_API void paged_mqa_schedule(Context& context, const PagedMqaScheduleArgs& args,
                                     const PagedMqaScheduleOptions& options = {});

}  // namespace finegemm
