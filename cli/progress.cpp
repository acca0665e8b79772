// Progress of long work. Layer cli.
#include "cli/progress.h"

#include <unistd.h>

#include <cstdint>
#include <iostream>

#include <fmt/format.h>

namespace finegemm::cli {

std::string share_text(double share, double seconds) {
    const auto clock = [](double s) {
        const auto whole = static_cast<int64_t>(s + 0.5);
        return fmt::format("{}:{:02}", whole / 60, whole % 60);
    };
    std::string text = fmt::format(", {:.0f}%, {}", 100 * share, clock(seconds));
    if (seconds >= 2 && share > 0) text += fmt::format(", {} left", clock(seconds / share - seconds));
    return text;
}

Progress::Progress() : shown_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() { pause(); }

void Progress::at(size_t done, size_t of, const std::string& what) {
    done_ = done, of_ = of, what_ = what, begin_ = Clock::now();
    draw("");
}

void Progress::within(double share) {
    draw(share_text(share, std::chrono::duration<double>(Clock::now() - begin_).count()));
}

void Progress::draw(const std::string& more) {
    if (!shown_) return;
    drawn_ = true;
    constexpr size_t kWidth = 20;
    const size_t filled = of_ > 0 ? done_ * kWidth / of_ : 0;
    // To the line's beginning, then wipe it. Longer names would break the line, which could not be wiped.
    std::cerr << fmt::format("\r\x1b[K[{:#<{}}{:.<{}}] {}/{} {:.32}{}", "", filled, "", kWidth - filled, done_, of_,
                             what_, more)
              << std::flush;
}

void Progress::pause() {
    if (drawn_) std::cerr << "\r\x1b[K" << std::flush;
    drawn_ = false;
}

}  // namespace finegemm::cli
