// DiskCache: compiled kernels in a directory that many processes share. Layer jit.
// A file is named by the digest of all that made it, so it is right for ever or not there. It is written beside and
// renamed, so readers see all of it or nothing; its checksum finds what a torn disk left. A cubin is code: a directory
// or file that others can write to is passed over. Nothing that goes wrong here is an error for the caller: without a
// usable directory kernels are compiled each time.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "jit/digest.h"

namespace finegemm::jit {

class DiskCache {
public:
    /// `directory` empty or `limit_bytes` 0: off. The directory is made when the first file is written.
    /// `trusted`: a folder that is believed whoever owns it (os/trust.h). `patience`: how long to wait for another
    /// process that makes the same kernel.
    DiskCache(std::string directory, int64_t limit_bytes, std::string trusted = {},
              std::chrono::milliseconds patience = std::chrono::minutes(1))
        : directory_(std::move(directory)),
          trusted_(std::move(trusted)),
          limit_bytes_(limit_bytes),
          patience_(patience) {}

    /// The bytes stored under `key`. A damaged file is removed and counts as absent.
    std::optional<std::string> read(const Digest& key) const;
    /// Publishes `bytes`; then, while files take more than the limit, removes those not used for longest. False: not
    /// stored.
    bool write(const Digest& key, const std::string& entry, const std::string& bytes) const;

    /// The result of `make`, made once: of several processes (or threads) that ask for a key one calls `make`, the
    /// others wait for its file. A process that dies lets go of its place; after `patience` a waiter goes ahead on its
    /// own.
    std::string get(const Digest& key, const std::string& entry, const std::function<std::string()>& make) const;

    struct Entry {
        std::string file, entry;  // entry: the kernel's name
        int64_t bytes = 0;
        int64_t age_seconds = 0;  // since it was last used
    };
    /// Newest first.
    std::vector<Entry> list() const;
    /// Removes all of the cache's files and returns how many.
    int64_t clear() const;
    const std::string& directory() const { return directory_; }
    bool enabled() const { return !directory_.empty() && limit_bytes_ > 0; }
    /// Why the directory is passed over, although it is asked for: others could have put code there. Empty: it is not.
    std::string distrust() const;

private:
    std::string path_of(const Digest& key) const { return directory_ + "/" + key.hex() + ".kernel"; }
    void evict() const;

    bool usable() const { return enabled() && distrust().empty(); }
    /// Makes the directory if it is not there; false where it cannot be used.
    bool make_directory() const;

    std::string directory_, trusted_;
    int64_t limit_bytes_;
    std::chrono::milliseconds patience_;
};

}  // namespace finegemm::jit
