// A log of calls: lines that commands take again, and a summary of shapes. Layer cli.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>

#include <sys/types.h>

#include <finegemm/context.h>

namespace finegemm::cli {

/// Writes each line by itself, so that several threads and processes may append to one file.
class CallLog {
public:
    /// `wish`: "calls" (a line for each, and the summary) or "shapes" (the summary alone), on standard error or, as
    /// "shapes:FILE", at the end of a file. Throws Error(InvalidArgument) for anything else, Error(Io) for a file that
    /// cannot be written.
    explicit CallLog(const std::string& wish);
    /// Writes the summary, as far as that is possible.
    ~CallLog();
    CallLog(const CallLog&) = delete;
    CallLog& operator=(const CallLog&) = delete;

    /// From any thread. A child of fork has its lines in the log, but no part in a summary.
    void add(const LoggedCall& call);
    /// Writes the summary of the calls since the last one; nothing where there were none. Throws Error(Io) if any part
    /// of the log could not be written.
    void finish();

private:
    struct Count {
        int64_t calls = 0;
        double host_us = 0;
        std::string kernel;  // of the last
    };
    void write(const std::string& text);
    void write_summary();

    bool each_ = false;
    std::string path_;  // empty: standard error
    std::atomic<bool> lost_ = false;
    int file_;
    pid_t process_;
    std::mutex mutex_;
    std::map<std::string, Count> counts_;  // by line
};

/// A call as a log has it. What follows # is for people.
/// "gemm 64x2112x7168 e4m3:row128 e4m3:block128 bf16  # cuda:0, m64n128s6w1, pack, 5.3 us"
std::string text_of(const LoggedCall& call);

}  // namespace finegemm::cli
