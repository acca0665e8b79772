// Progress of long work: one line on stderr, and only where a person looks. Layer cli.
#pragma once

#include <cstddef>
#include <string>

namespace finegemm::cli {

class Progress {
public:
    Progress();
    /// Wipes the line.
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    /// `done` of `of` steps; `what` is what was just done or is being done. On one thread at a time.
    void at(size_t done, size_t of, const std::string& what);
    /// Wipes the line until the next step, so that something can be printed.
    void pause();

private:
    bool shown_, drawn_ = false;
};

}  // namespace finegemm::cli
