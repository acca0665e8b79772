// The k largest numbers of each row, and of an indexer's scores the k keys that a query attends to. Layer: public.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <finegemm/context.h>
#include <finegemm/mqa.h>
#include <finegemm/tensor.h>

namespace finegemm {

/// Larger numbers go first, and of equal ones those of lower columns; -0 equals 0. NaN is above all, as
/// torch.topk has it.
struct TopkOptions {
    bool sorted = false;                   ///< the largest first; else by ascending column
    LogitsForm form = LogitsForm::Filled;  ///< of the logits that are asked for; not Compressed
    Relu relu = Relu::Exact;               ///< as MqaOptions::relu
    Stream stream = nullptr;               ///< CUDA only
    std::optional<bool> check_values{};    ///< as MqaOptions::check_values; topk has none to look at
    int32_t num_sms = 0;                   ///< as GemmOptions::num_sms
    bool pdl = false;                      ///< as GemmOptions::pdl, of the first launch
    Poll poll{};                           ///< as GemmOptions::poll
};

/// What a selection writes: rows contiguous and apart, of one device. Histograms have 256 bins, which ascend with
/// numbers: bins from 128 on are of numbers from 0 on, four for each power of two from 2^-15 on, those below counted
/// in 128, and those from 1.75 * 2^16 on, and NaN, in 255. Bins below 128 are of negative numbers, likewise from 127
/// downwards. docs/indexer_topk.md has the rule.
struct TopkOutputs {
    Matrix indices;    ///< [rows, k] i32, k from 1 to 2048: columns; -1 where a row has fewer than k numbers. Or left
                       ///< out where histograms are asked for
    Matrix values;     ///< [rows, k] f32: the numbers there, -inf where there is none; or left out
    Matrix histogram;  ///< [rows, 256] i32: how many numbers each bin has; or left out
};

/// Row i has the numbers from column starts[i] to before ends[i]; what of that lies outside of the columns is ignored.
struct TopkArgs {
    ConstMatrix logits;  ///< [rows, cols] f32, rows contiguous
    ConstMatrix starts;  ///< [1, rows] i32, contiguous; or left out: 0
    ConstMatrix ends;    ///< [1, rows] i32, contiguous; or left out: cols
    TopkOutputs out;
};

/// CPU and GPU give the same bits. On CUDA the work is queued and the call does not wait. Throws Error:
/// InvalidArgument, Unsupported, Driver, Compile.
FINEGEMM_API void topk(Context& context, const TopkArgs& args, const TopkOptions& options = {});

/// topk of the logits that mqa_logits gives, bit for bit. They are computed for so many queries at once that they take
/// no more than 256 MiB, or as much as 16 queries take, unless they are asked for. Columns are keys: rows of k.
struct MqaTopkArgs {
    ConstStack q;  ///< as all of MqaLogitsArgs
    ConstMatrix k, sfk, w, starts, ends;
    TopkOutputs out;
    Matrix logits;  ///< [S, Skv] f32, as MqaLogitsArgs::d; or left out
};
FINEGEMM_API void mqa_topk(Context& context, const MqaTopkArgs& args, const TopkOptions& options = {});

/// topk of the logits that paged_mqa_logits gives, bit for bit; memory as of mqa_topk, for whole requests. Columns are
/// keys of a request: key p * P + s is in slot s of its page p.
struct PagedMqaTopkArgs {
    ConstStack q;  ///< as all of PagedMqaLogitsArgs
    ConstMatrix cache, w, lengths, block_table;
    int64_t keys = 0;  ///< that a request has at most: more are cut. 0: as many as block_table and logits have room for
    TopkOutputs out;
    Matrix logits;  ///< [B * T, any] f32, as PagedMqaLogitsArgs::d; or left out
};
FINEGEMM_API void paged_mqa_topk(Context& context, const PagedMqaTopkArgs& args, const TopkOptions& options = {});

/// A call of one of the three, as far as the host knows it.
struct TopkShape {
    int64_t k = 1;  ///< columns of indices; 0: they are left out, and histograms are asked for
    bool paged = false;
    int64_t requests = 1;  ///< B; 1 for what is in rows
    int64_t queries = 1;   ///< of a request; S for keys in rows, and rows of topk's logits
    int64_t keys = 1;      ///< columns of logits
    int64_t heads = 0;     ///< 0: topk, of numbers in memory
    int64_t dim = 0;
    int64_t page_size = 64;  ///< P, of pages
    Relu relu = Relu::Exact;
    LogitsForm form = LogitsForm::Filled;
    bool logits = false;  ///< of all queries are asked for, in that form
    bool histogram = false;
    bool sorted = false;
    int32_t num_sms = 0;
    int64_t rows() const { return requests * queries; }
    bool of_numbers() const { return heads == 0 && dim == 0 && !paged && requests == 1; }
};

/// Which kernel selects and why: JSON text with `device`, `kernel`, its name, `why`, sentences, and `config`, what the
/// kernel is made of; where logits are computed also `logits`, what explain says of them, and `steps`, how many there
/// are, of how many rows, and the bytes of memory they take in turn. `device`: as explain of products. Throws
/// Error(InvalidArgument) for what no call may have.
FINEGEMM_API std::string explain(const TopkShape& shape, const std::string& device = {});

}  // namespace finegemm
