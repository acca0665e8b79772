// A log of calls. Layer cli.
#include "cli/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include <finegemm/error.h>

#include "cli/text.h"

namespace finegemm::cli {

namespace {

/// `line` where commands take it, else a comment; then what people want to know.
std::string annotated(const std::string& line, const std::string& note) {
    return line.starts_with("gemm ") ? fmt::format("{}  # {}\n", line, note) : fmt::format("# {}: {}\n", line, note);
}

std::string calls_text(int64_t calls) { return fmt::format("{} call{}", calls, calls == 1 ? "" : "s"); }

int opened(const std::string& path) {
    const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0)
        throw Error(Errc::Io, fmt::format("log: {} cannot be written: {}; name another file", path, strerror(errno)));
    return file;
}

}  // namespace

CallLog::CallLog(const std::string& wish) : file_(STDERR_FILENO), process_(getpid()) {
    const size_t colon = std::min(wish.find(':'), wish.size());
    const std::string what = wish.substr(0, colon);
    path_ = wish.substr(std::min(colon + 1, wish.size()));
    if ((what != "calls" && what != "shapes") || (colon < wish.size() && path_.empty()))
        throw Error(Errc::InvalidArgument,
                    fmt::format("log: is '{}', must be calls or shapes, for standard error, or calls:FILE or "
                                "shapes:FILE; pass one of them",
                                wish));
    each_ = what == "calls";
    if (!path_.empty()) file_ = opened(path_);
}

CallLog::~CallLog() {
    write_summary();
    if (file_ != STDERR_FILENO) close(file_);
}

void CallLog::add(const LoggedCall& call) {
    if (each_) write(text_of(call));
    if (getpid() != process_) return;  // where another thread of the parent may have held the lock
    const std::scoped_lock lock(mutex_);
    Count& count = counts_[call.line];
    ++count.calls;
    count.host_us += call.host_us;
    count.kernel = call.kernel;
}

void CallLog::finish() {
    write_summary();
    if (lost_.exchange(false))
        throw Error(Errc::Io, fmt::format("log: {} cannot be written; some of the log is lost",
                                          path_.empty() ? "standard error" : path_));
}

void CallLog::write_summary() {
    if (getpid() != process_) return;
    const std::scoped_lock lock(mutex_);
    if (counts_.empty()) return;
    std::vector<std::pair<std::string, Count>> shapes(counts_.begin(), counts_.end());
    std::ranges::stable_sort(shapes, std::greater(), [](const auto& shape) { return shape.second.calls; });
    int64_t calls = 0;
    std::string text;
    for (const auto& [line, count] : shapes) {
        calls += count.calls;
        text += annotated(line, fmt::format("{}, {} of the host{}{}", calls_text(count.calls), time_text(count.host_us),
                                            count.kernel.empty() ? "" : ", ", count.kernel));
    }
    write(fmt::format("# {} of {} shape{}\n{}", calls_text(calls), shapes.size(), shapes.size() == 1 ? "" : "s", text));
    counts_.clear();
}

/// A log that cannot be written ends no call.
void CallLog::write(const std::string& text) {
    size_t done = 0;
    while (done < text.size()) {
        const ssize_t more = ::write(file_, text.data() + done, text.size() - done);
        if (more < 0 && errno == EINTR) continue;
        if (more <= 0) {
            lost_ = true;
            return;
        }
        done += static_cast<size_t>(more);
    }
}

std::string text_of(const LoggedCall& call) {
    const bool gpu = call.device.type == DeviceType::Cuda;
    std::string note = gpu ? fmt::format("cuda:{}", call.device.index) : "cpu";
    for (const std::string& word : {call.kernel, call.origin})
        if (!word.empty()) note += ", " + word;
    return annotated(call.line, fmt::format("{}, {}", note, time_text(call.host_us)));
}

}  // namespace finegemm::cli
