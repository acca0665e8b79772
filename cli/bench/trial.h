// A call besides those of gemm and its kind on one device, from a line of text: its time and its check. Layer cli.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <finegemm/context.h>

#include "cli/target.h"

namespace finegemm::cli {

/// With random operands.
class Trial {
public:
    virtual ~Trial() = default;

    /// Median microseconds of `repeats` runs; one more goes before them.
    virtual double time(int repeats) = 0;

    struct Check {
        int64_t rows = 0;          // of d, that were looked at
        double of_bound = 0;       // the largest error, as a share of its bound
        bool by_bits = false;      // are they the CPU's bits, too?
        int64_t wrong_fill = 0;    // elements that should be -inf and are not
        int64_t wrong_bits = 0;    // of a GPU, that are not the CPU's
        bool sorted = false;       // was it held to a sort, which has no error bound?
        int64_t wrong_places = 0;  // that a sort gives to others
        bool right() const { return of_bound <= 1 && wrong_fill == 0 && wrong_bits == 0 && wrong_places == 0; }
        /// `found` should be `exact`; NaN is beyond any bound.
        void add(double found, double exact, double bound);
    };
    /// Looks at some rows of what the last run left.
    virtual Check check() = 0;

    // Work of a run, 0 where it multiplies nothing, and its traffic where each byte goes once.
    virtual double operations() const = 0;
    virtual double bytes() const = 0;
};

/// Is it the line of such a call, as logs have it?
bool is_trial(const std::string& line);
/// Throws Error(InvalidArgument) for a line that is none.
void check_trial(const std::string& line);
std::unique_ptr<Trial> make_trial(Context& context, const Target& target, const std::string& line, uint64_t seed);
/// JSON: which kernel it takes on a GPU and why. `device`: as explain has it; scores take the same on all.
std::string explain_trial(const std::string& line, const std::string& device);

/// "2048x8192" as numbers from 1 on; empty for another text.
std::vector<int64_t> extents_of(const std::string& word, size_t count);

}  // namespace finegemm::cli
