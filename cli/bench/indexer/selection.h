// Selections of the largest on one device, from a line of text. Layer cli.
#pragma once

#include <optional>

#include <finegemm/topk.h>

#include "cli/bench/indexer/operands.h"
#include "cli/bench/trial.h"

namespace finegemm::cli {

bool is_selection(const std::string& line);
/// "topk 2048 of 4096x32768", "mqa_topk 2048 of 2048x8192 64x128" or "paged_mqa_topk 2048 of 256x2x8192 64x128": k,
/// rows and columns, or the extents of scores. Then, in any order: sorted, histogram; of an indexer logits, which asks
/// for them, with a form, a relu and page16, say. Throws Error(InvalidArgument).
TopkShape parse_selection(const std::string& line);

/// A call with random numbers, or with the random operands of an indexer.
class Selection final : public Trial {
public:
    Selection(Context& context, const Target& target, const TopkShape& shape, uint64_t seed);

    double time(int repeats) override;
    Check check() override;
    /// Counts what logits take: nothing where they are given.
    double operations() const override;
    /// Does not count logits that nobody asks for.
    double bytes() const override;

private:
    void call();
    void check_row(Check& result, int64_t row, const float* logits, int64_t end);

    Context& context_;
    const Target& target_;
    TopkShape shape_;
    std::optional<IndexerOperands> operands_;  // none: numbers are given
    Mirrored logits_, indices_, histogram_;    // logits_: given, or asked for
};

}  // namespace finegemm::cli
