// Progress of long work: one line on stderr, and only where a person looks. Layer cli.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include <finegemm/context.h>

namespace finegemm::cli {

/// ", 37%, 0:12, 0:20 left"; the rest is not guessed from less than two seconds.
std::string share_text(double share, double seconds);

class Progress {
public:
    Progress();
    /// Wipes the line.
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    /// `done` of `of` steps; `what` is what was just done or is being done. On one thread at a time.
    void at(size_t done, size_t of, const std::string& what);
    /// The share of the step that is done, with the time that it has taken and will still take, as it seems.
    void within(double share);
    /// What shows the share, then calls `others`. Good while both live.
    Poll polling(const Poll& others) {
        return [&](double share) {
            within(share);
            others(share);
        };
    }
    /// Wipes the line until the next step, so that something can be printed.
    void pause();

private:
    using Clock = std::chrono::steady_clock;
    void draw(const std::string& more);

    bool shown_, drawn_ = false;
    size_t done_ = 0, of_ = 0;
    std::string what_;
    Clock::time_point begin_{};  // of the step
};

}  // namespace finegemm::cli
