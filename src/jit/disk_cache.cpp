// DiskCache: files, locks, limits. Layer jit.
#include "jit/disk_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <thread>

#include "os/trust.h"

namespace finegemm::jit {

namespace {

namespace fs = std::filesystem;

constexpr std::array<char, 8> kMagic = {'F', 'G', 'K', 'E', 'R', 'N', 'L', '1'};
constexpr const char* kSuffix = ".kernel";
constexpr const char* kTemporary = ".tmp-";

/// Before the kernel's name and its bytes.
struct Header {
    std::array<char, 8> magic = kMagic;
    uint64_t name_bytes = 0, payload_bytes = 0;
    uint64_t check = 0;  // of name and payload
};

class File {
public:
    File(const std::string& path, int flags) : fd_(open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0600)) {}
    ~File() {
        if (fd_ >= 0) close(fd_);
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    explicit operator bool() const { return fd_ >= 0; }
    int fd() const { return fd_; }

private:
    int fd_;
};

bool write_all(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t n = ::write(fd, bytes.data(), bytes.size());
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
}

bool read_all(int fd, char* to, size_t count) {
    while (count > 0) {
        const ssize_t n = ::read(fd, to, count);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        to += n;
        count -= static_cast<size_t>(n);
    }
    return true;
}

struct Contents {
    std::string name, payload;
};

/// Nothing for a file that is not there; `damaged` for one that is, but is not what was written.
std::optional<Contents> load(const std::string& path, bool& damaged) {
    const File file(path, O_RDONLY);
    if (!file) return {};
    damaged = true;
    struct stat info{};
    Header header;
    if (fstat(file.fd(), &info) != 0 || !read_all(file.fd(), reinterpret_cast<char*>(&header), sizeof header))
        return {};
    const auto size = static_cast<uint64_t>(info.st_size);
    if (header.magic != kMagic || header.name_bytes > size || header.payload_bytes > size ||
        sizeof header + header.name_bytes + header.payload_bytes != size)
        return {};
    std::string bytes(header.name_bytes + header.payload_bytes, '\0');
    if (!read_all(file.fd(), bytes.data(), bytes.size()) || checksum(bytes) != header.check) return {};
    damaged = false;
    futimens(file.fd(), nullptr);  // "used now": a file on a read-only disk just stays old
    return Contents{bytes.substr(0, header.name_bytes), bytes.substr(header.name_bytes)};
}

/// A lock on one key: a byte of a file that all keys share. The kernel lets go of it when its holder dies.
class KeyLock {
public:
    KeyLock(const std::string& directory, const Digest& key)
        : file_(directory + "/lock", O_RDWR | O_CREAT), offset_(static_cast<off_t>(key.low >> 2)) {}

    /// False after `patience`, or at once where locks do not work.
    bool acquire(std::chrono::milliseconds patience) const {
        using Clock = std::chrono::steady_clock;
        const auto deadline = Clock::now() + patience;
        while (file_) {
            struct flock range{};
            range.l_type = F_WRLCK;
            range.l_whence = SEEK_SET;
            range.l_start = offset_;
            range.l_len = 1;
            if (fcntl(file_.fd(), F_OFD_SETLK, &range) == 0) return true;
            if (errno != EAGAIN && errno != EACCES && errno != EINTR) return false;
            if (Clock::now() >= deadline) return false;
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
        return false;
    }

private:
    File file_;  // closing it unlocks
    off_t offset_;
};

/// Visits the files of a directory, for as long as it can be read.
template <typename F>
void for_each_file(const std::string& directory, const F& visit) {
    std::error_code error;
    for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) visit(*at);
}

bool is_ours(const fs::path& path) {
    const std::string name = path.filename().string();
    return path.extension() == kSuffix || name.starts_with(kTemporary);
}

}  // namespace

/// Looks twice, as another user may have made it meanwhile.
bool DiskCache::make_directory() const { return usable() && os::make_private_folder(directory_) && usable(); }

std::string DiskCache::distrust() const { return os::folder_distrust(directory_, trusted_); }

std::optional<std::string> DiskCache::read(const Digest& key) const {
    if (!usable() || !os::file_distrust(path_of(key), trusted_).empty()) return {};
    bool damaged = false;
    auto contents = load(path_of(key), damaged);
    if (damaged) unlink(path_of(key).c_str());
    if (!contents) return {};
    return std::move(contents->payload);
}

bool DiskCache::write(const Digest& key, const std::string& entry, const std::string& bytes) const {
    if (!make_directory()) return false;
    std::string temporary = directory_ + "/" + kTemporary + "XXXXXX";
    const int fd = mkostemp(temporary.data(), O_CLOEXEC);
    if (fd < 0) return false;
    const std::string body = entry + bytes;
    const Header header{.name_bytes = entry.size(), .payload_bytes = bytes.size(), .check = checksum(body)};
    const bool written =
        write_all(fd, {reinterpret_cast<const char*>(&header), sizeof header}) && write_all(fd, body) && fsync(fd) == 0;
    const bool published = close(fd) == 0 && written && rename(temporary.c_str(), path_of(key).c_str()) == 0;
    if (!published) unlink(temporary.c_str());
    else evict();
    return published;
}

std::string DiskCache::get(const Digest& key, const std::string& entry,
                           const std::function<std::string()>& make) const {
    if (!usable()) return make();
    if (auto found = read(key)) return std::move(*found);
    if (!make_directory()) return make();
    const KeyLock lock(directory_, key);
    if (lock.acquire(patience_))
        if (auto found = read(key)) return std::move(*found);  // made while this process waited
    std::string bytes = make();
    write(key, entry, bytes);
    return bytes;
}

std::vector<DiskCache::Entry> DiskCache::list() const {
    std::vector<Entry> entries;
    const auto now = fs::file_time_type::clock::now();
    for_each_file(directory_, [&](const fs::directory_entry& item) {
        if (item.path().extension() != kSuffix) return;
        std::error_code error;
        const auto used = item.last_write_time(error);
        Entry e{.file = item.path().filename().string(), .entry = "damaged", .bytes = 0, .age_seconds = 0};
        if (!error) e.bytes = static_cast<int64_t>(item.file_size(error));
        if (error) return;  // removed by another process meanwhile
        e.age_seconds = std::chrono::duration_cast<std::chrono::seconds>(now - used).count();
        const File file(item.path().string(), O_RDONLY);
        Header header;
        if (file && read_all(file.fd(), reinterpret_cast<char*>(&header), sizeof header) && header.magic == kMagic &&
            header.name_bytes < 256) {
            std::string name(header.name_bytes, '\0');
            if (read_all(file.fd(), name.data(), name.size())) e.entry = std::move(name);
        }
        entries.push_back(std::move(e));
    });
    std::sort(entries.begin(), entries.end(), [](const Entry& x, const Entry& y) {
        return x.age_seconds != y.age_seconds ? x.age_seconds < y.age_seconds : x.file < y.file;
    });
    return entries;
}

int64_t DiskCache::clear() const {
    int64_t removed = 0;
    for_each_file(directory_, [&](const fs::directory_entry& item) {
        std::error_code error;
        if (is_ours(item.path()) && fs::remove(item.path(), error)) ++removed;
    });
    return removed;
}

void DiskCache::evict() const {
    struct Item {
        fs::path path;
        fs::file_time_type used;
        int64_t bytes;
    };
    std::vector<Item> items;
    int64_t total = 0;
    const auto now = fs::file_time_type::clock::now();
    for_each_file(directory_, [&](const fs::directory_entry& entry) {
        if (!is_ours(entry.path())) return;
        std::error_code error;
        const auto used = entry.last_write_time(error);
        const auto bytes = error ? 0 : static_cast<int64_t>(entry.file_size(error));
        if (error) return;
        // A temporary file that old belongs to a writer that died.
        const bool orphan = entry.path().extension() != kSuffix && now - used > std::chrono::hours(1);
        if (orphan && fs::remove(entry.path(), error)) return;
        items.push_back({entry.path(), used, bytes});
        total += bytes;
    });
    std::sort(items.begin(), items.end(), [](const Item& x, const Item& y) { return x.used < y.used; });
    for (const Item& i : items) {
        std::error_code error;
        if (total <= limit_bytes_) return;
        if (fs::remove(i.path, error)) total -= i.bytes;
    }
}

}  // namespace finegemm::jit
