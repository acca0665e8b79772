// Progress of long work. Layer cli.
#include "cli/progress.h"

#include <unistd.h>

#include <iostream>

#include <fmt/format.h>

namespace finegemm::cli {

Progress::Progress() : shown_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() { pause(); }

void Progress::at(size_t done, size_t of, const std::string& what) {
    if (!shown_) return;
    drawn_ = true;
    constexpr size_t kWidth = 30;
    const size_t filled = of > 0 ? done * kWidth / of : 0;
    // To the line's beginning, then wipe it. Longer names would break the line, which could not be wiped.
    std::cerr << fmt::format("\r\x1b[K[{:#<{}}{:.<{}}] {}/{} {:.32}", "", filled, "", kWidth - filled, done, of, what)
              << std::flush;
}

void Progress::pause() {
    if (drawn_) std::cerr << "\r\x1b[K" << std::flush;
    drawn_ = false;
}

}  // namespace finegemm::cli
