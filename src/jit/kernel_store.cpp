// KernelStore: pack, disk cache, compiler. Layer jit.
#include "jit/kernel_store.h"

#include <chrono>
#include <future>
#include <map>
#include <mutex>

#include "jit/cubin.h"
#include "jit/digest.h"
#include "jit/disk_cache.h"
#include "jit/pack.h"
#include "jit/process.h"
#include "jit/toolchain.h"

namespace finegemm::jit {

struct KernelStore::Impl {
    Options options;
    int newest_cuda;
    std::string given;    // the bytes of a pack in a file
    Pack pack, embedded;  // the former goes first
    DiskCache cache;
    Digest headers = kernel_files_digest();
    std::mutex mutex;  // of the members below
    std::unique_ptr<Toolchain> toolchain;
    std::map<std::string, std::shared_future<Binary>> beyond;  // made or in the making, by entry and text

    Impl(const Options& o, int newest)
        : options(o),
          newest_cuda(newest),
          given(read_pack(o)),
          pack(given),
          embedded(o.use_pack ? embedded_pack(newest) : Pack()),
          cache(o.cache_dir, o.cache_limit_bytes, o.trusted_dir) {}

    const Toolchain& compiler() {
        const std::scoped_lock lock(mutex);
        if (!toolchain) toolchain = find_toolchain(options, newest_cuda);
        return *toolchain;
    }
    /// A pack in a file may be of a compiler newer than the driver.
    std::optional<std::string> packed(const KernelSource& source) const {
        auto cubin = pack.find(source);
        return cubin && cuda_of(*cubin) <= newest_cuda ? cubin : embedded.find(source);
    }
    Digest key_of(const KernelSource& source, const std::string& identity) const {
        return digest({headers.hex(), identity, source.entry, source.text, std::to_string(source.yield_interval)});
    }
    Binary read_or_compile(const KernelSource& source) {
        Binary binary{.cubin = {}, .entry = source.entry, .origin = Origin::Disk};
        // A kernel on disk needs no compiler: it is not even loaded.
        const std::string expected = options.compiler == Compiler::Nvrtc ? expected_nvrtc(options, newest_cuda) : "";
        if (auto found = expected.empty() ? std::nullopt : cache.read(key_of(source, expected))) {
            binary.cubin = std::move(*found);
            return binary;
        }
        const Toolchain& chosen = compiler();
        binary.cubin = cache.get(key_of(source, chosen.identity()), source.entry, [&] {
            binary.origin = Origin::Compiled;
            return chosen.compile(source).cubin;
        });
        return binary;
    }
    /// The first thread to ask makes the kernel; those that ask meanwhile or later get what it made. A failure is
    /// forgotten.
    Binary beyond_pack(const KernelSource& source) {
        std::promise<Binary> promise;
        std::unique_lock lock(mutex);
        const auto [slot, first] = beyond.try_emplace(source.entry + '\n' + source.text, promise.get_future().share());
        const std::shared_future<Binary> binary = slot->second;
        lock.unlock();
        if (!first) return binary.get();
        try {
            promise.set_value(read_or_compile(source));
        } catch (...) {
            lock.lock();
            beyond.erase(slot);
            lock.unlock();
            promise.set_exception(std::current_exception());
        }
        return binary.get();
    }
    void dump(const KernelSource& source, const std::string& cubin) const {
        if (options.dump_dir.empty()) return;
        write_file(options.dump_dir + "/" + source.entry + ".cu", source.text);
        write_file(options.dump_dir + "/" + source.entry + ".cubin", cubin);
    }
};

KernelStore::KernelStore(const Options& options, int newest_cuda)
    : impl_(std::make_unique<Impl>(options, newest_cuda)) {}
KernelStore::~KernelStore() = default;

Binary KernelStore::get(const KernelSource& source) const {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    auto packed = impl_->packed(source);
    Binary binary = packed ? Binary{.cubin = std::move(*packed), .entry = source.entry, .origin = Origin::Pack}
                           : impl_->beyond_pack(source);
    impl_->dump(source, binary.cubin);
    binary.milliseconds = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    return binary;
}

}  // namespace finegemm::jit
