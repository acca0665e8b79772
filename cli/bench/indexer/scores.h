// Scores of an indexer on one device, from a line of text. Layer cli.
#pragma once

#include <finegemm/mqa.h>

#include "cli/bench/indexer/operands.h"
#include "cli/bench/trial.h"

namespace finegemm::cli {

/// Is it the line of such a call, not of a product?
bool is_scores(const std::string& line);
/// "mqa_logits 2048x8192 64x128", or "paged_mqa_logits 256x2x8192 64x128": queries and keys, or requests, queries of
/// each and the most keys; heads and D. Then, in any order, a type, a form, a relu and page16, say, where they are not
/// f32, filled, exact and page64. Throws Error(InvalidArgument).
MqaShape parse_scores(const std::string& line);

/// A call with random operands.
class Scores final : public Trial {
public:
    Scores(Context& context, const Target& target, const MqaShape& shape, uint64_t seed);

    double time(int repeats) override;
    Check check() override;
    /// Counts the pairs of a query and a key that it sees.
    double operations() const override;
    double bytes() const override;

private:
    const Target& target_;
    MqaShape shape_;
    IndexerOperands operands_;
    Mirrored d_;
};

}  // namespace finegemm::cli
