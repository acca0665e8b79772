// KernelStore: pack, disk cache, compiler. Layer jit.
#include "jit/kernel_store.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "jit/digest.h"
#include "jit/disk_cache.h"
#include "jit/pack.h"
#include "jit/toolchain.h"

namespace finegemm::jit {

struct KernelStore::Impl {
    Options options;
    Pack pack;
    DiskCache cache;
    Digest headers = kernel_files_digest();
    std::mutex mutex;                       // one thread of this process at a time goes beyond the pack
    std::unique_ptr<Toolchain> toolchain;   // found when it is first needed

    explicit Impl(const Options& o)
        : options(o), pack(o.use_pack ? embedded_pack() : Pack()), cache(o.cache_dir, o.cache_limit_bytes) {}

    const Toolchain& compiler() {
        if (!toolchain) toolchain = find_toolchain(options);
        return *toolchain;
    }
    void dump(const KernelSource& source, const std::string& cubin) const {
        if (options.dump_dir.empty()) return;
        std::error_code error;
        std::filesystem::create_directories(options.dump_dir, error);
        std::ofstream(options.dump_dir + "/" + source.entry + ".cu") << source.text;
        std::ofstream(options.dump_dir + "/" + source.entry + ".cubin", std::ios::binary) << cubin;
    }
    Binary beyond_pack(const KernelSource& source) {
        const std::scoped_lock lock(mutex);
        Binary binary{.cubin = {}, .entry = source.entry, .origin = Origin::Disk};
        const std::string identity = compiler().identity();
        const Digest key = digest({headers.hex(), identity, source.entry, source.text});
        binary.cubin = cache.get(key, source.entry, [&] {
            binary.origin = Origin::Compiled;
            return compiler().compile(source).cubin;
        });
        return binary;
    }
};

KernelStore::KernelStore(const Options& options) : impl_(std::make_unique<Impl>(options)) {}
KernelStore::~KernelStore() = default;

Binary KernelStore::get(const KernelSource& source) const {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    auto packed = impl_->pack.find(source);
    Binary binary = packed ? Binary{.cubin = std::move(*packed), .entry = source.entry, .origin = Origin::Pack}
                           : impl_->beyond_pack(source);
    impl_->dump(source, binary.cubin);
    binary.milliseconds = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    return binary;
}

}  // namespace finegemm::jit
