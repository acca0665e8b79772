// Pack: header, index, one zstd frame for each kernel. Layer jit.
#include "jit/pack.h"

#include <zstd.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <mutex>
#include <thread>

#include <finegemm/error.h>

#include "jit/digest.h"
#include "os/trust.h"

namespace finegemm::jit {

namespace {

constexpr char kMagic[8] = {'F', 'G', 'P', 'A', 'C', 'K', '0', '1'};
constexpr int kLevel = 19;                           // read often, written once
constexpr unsigned long long kMostBytes = 64 << 20;  // of a cubin, a hundred times what the largest one has
static_assert(kMostBytes < ZSTD_CONTENTSIZE_ERROR && kMostBytes < ZSTD_CONTENTSIZE_UNKNOWN);

struct Header {
    char magic[8];
    uint64_t count;
    uint64_t check;  // of all that follows
};

struct IndexEntry {
    Digest key;
    uint64_t offset, bytes;  // of the frame, from the beginning of the pack
};

Digest key_of(const KernelSource& source) {
    const Digest files = kernel_files_digest();
    return digest({files.hex(), source.entry, source.text, std::to_string(source.yield_interval)});
}

std::string compress(const std::string& cubin) {
    std::string frame(ZSTD_compressBound(cubin.size()), '\0');
    const size_t n = ZSTD_compress(frame.data(), frame.size(), cubin.data(), cubin.size(), kLevel);
    if (ZSTD_isError(n)) throw Error(Errc::Internal, std::string("zstd: ") + ZSTD_getErrorName(n));
    frame.resize(n);
    return frame;
}

std::string assemble(std::span<const KernelSource> sources, const std::vector<std::string>& frames) {
    std::string body;
    uint64_t offset = sizeof(Header) + sources.size() * sizeof(IndexEntry);
    for (size_t i = 0; i < sources.size(); ++i) {
        const IndexEntry entry{key_of(sources[i]), offset, frames[i].size()};
        body.append(reinterpret_cast<const char*>(&entry), sizeof entry);
        offset += frames[i].size();
    }
    for (const std::string& frame : frames) body += frame;
    Header header{.magic = {}, .count = sources.size(), .check = checksum(body)};
    std::memcpy(header.magic, kMagic, sizeof kMagic);
    return std::string(reinterpret_cast<const char*>(&header), sizeof header) + body;
}

}  // namespace

Pack::Pack(std::string_view bytes) {
    Header header;
    if (bytes.size() < sizeof header) return;
    std::memcpy(&header, bytes.data(), sizeof header);
    const std::string_view body = bytes.substr(sizeof header);
    if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.count > body.size() / sizeof(IndexEntry) ||
        header.check != checksum(body))
        return;
    bytes_ = bytes;
    count_ = header.count;
}

std::optional<std::string> Pack::find(const KernelSource& source) const {
    if (count_ == 0) return {};
    const Digest key = key_of(source);
    for (size_t i = 0; i < count_; ++i) {
        IndexEntry entry;
        std::memcpy(&entry, bytes_.data() + sizeof(Header) + i * sizeof entry, sizeof entry);
        if (!(entry.key == key)) continue;
        if (entry.offset > bytes_.size() || entry.bytes > bytes_.size() - entry.offset) return {};
        const std::string_view frame = bytes_.substr(entry.offset, entry.bytes);
        const auto size = ZSTD_getFrameContentSize(frame.data(), frame.size());
        if (size > kMostBytes) return {};  // as the values that zstd has for errors are
        std::string cubin(size, '\0');
        if (ZSTD_decompress(cubin.data(), cubin.size(), frame.data(), frame.size()) != size) return {};
        return cubin;
    }
    return {};
}

Pack embedded_pack(int newest_cuda) {
    for (const auto& [cuda, bytes] : embedded_packs())
        if (cuda <= newest_cuda) return Pack(bytes);
    return {};
}

std::string read_pack(const Options& options) {
    const std::string& path = options.pack_path;
    if (path.empty() || !os::file_distrust(path, options.trusted_dir).empty()) return {};
    std::ifstream file(path, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(file), {}};
    if (!file.is_open() || file.bad())
        throw Error(Errc::Io, path + ": cannot be read; FINEGEMM_PACK or pack_path names it, check the path");
    if (Pack(bytes).size() == 0)
        throw Error(Errc::Io, path + ": is no pack, or a damaged one; write it again with `finegemm pack --out`");
    return bytes;
}

std::string build_pack(std::span<const KernelSource> sources, const Toolchain& toolchain, unsigned jobs,
                       const PackProgress& progress, std::vector<std::string>* logs) {
    std::vector<std::string> frames(sources.size());
    if (logs) logs->assign(sources.size(), {});
    std::atomic<size_t> next{0};
    size_t done = 0;
    std::mutex mutex;
    std::exception_ptr failure;
    const auto work = [&] {
        for (size_t i; (i = next++) < sources.size();) {
            try {
                Toolchain::Output out = toolchain.compile(sources[i]);
                frames[i] = compress(out.cubin);
                const std::scoped_lock lock(mutex);
                if (logs) (*logs)[i] = std::move(out.log);
                if (progress) progress(++done, sources.size(), sources[i].entry);
            } catch (...) {
                const std::scoped_lock lock(mutex);
                failure = std::current_exception();
                next = sources.size();
            }
        }
    };
    std::vector<std::thread> threads;
    for (unsigned t = 1; t < jobs; ++t) threads.emplace_back(work);
    work();
    for (std::thread& t : threads) t.join();
    if (failure) std::rethrow_exception(failure);
    return assemble(sources, frames);
}

}  // namespace finegemm::jit
