// A file that appears whole or not at all. Layer api.
#pragma once

#include <fstream>
#include <string>

namespace finegemm {

/// Written beside its place and renamed when it is done, so that readers see the old file or the new one. Until then it
/// has no name, where the file system allows that: a process that is ended, Ctrl-C say, leaves nothing there.
class WholeFile {
public:
    /// Throws Error(Io) when the file cannot be written: before the long work that makes its content.
    explicit WholeFile(std::string path);
    /// Removes what was not published.
    ~WholeFile();
    WholeFile(const WholeFile&) = delete;
    WholeFile& operator=(const WholeFile&) = delete;

    /// For the content, before publish().
    std::ostream& content() { return out_; }
    /// Throws Error(Io).
    void publish();

private:
    [[noreturn]] void fail() const;

    std::string path_, part_;
    int nameless_ = -1;  // a file that has no name yet
    std::ofstream out_;
};

/// Throws Error(Io).
void write_whole(const std::string& path, const std::string& content);

}  // namespace finegemm
