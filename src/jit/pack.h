// Pack: kernels compiled in advance, in one file inside the library. Layer jit.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <finegemm/context.h>

#include "jit/toolchain.h"

namespace finegemm::jit {

/// A view of a pack's bytes; finding a kernel reads the index, then decompresses that kernel only. Kernels are found by
/// the digest of their source and of all kernel headers: a pack of another version finds nothing, it is never wrong.
class Pack {
public:
    Pack() = default;
    /// Bytes that are no pack, or a damaged one, make an empty pack.
    explicit Pack(std::string_view bytes);

    std::optional<std::string> find(const KernelSource& source) const;
    size_t size() const { return count_; }
    size_t bytes() const { return bytes_.size(); }

private:
    std::string_view bytes_;
    size_t count_ = 0;
};

/// A pack that was linked into this library, by compilers of one major version of CUDA.
struct EmbeddedPack {
    int cuda;
    std::string_view bytes;
};

/// Newest first; none in a build with FINEGEMM_PACK=none.
std::span<const EmbeddedPack> embedded_packs();

/// The newest one whose code a driver of this major version of CUDA, or of a newer one, loads; else an empty pack.
Pack embedded_pack(int newest_cuda);

/// The bytes of the pack that the options name; none where they name none, or one that somebody else can write to
/// (os/trust.h). Throws Error(Io) where it cannot be read or is damaged.
std::string read_pack(const Options& options);

using PackProgress = std::function<void(size_t done, size_t of, const std::string& entry)>;

/// Compiles all `sources` with `jobs` threads and packs them. Throws Error(Compile). The logs go to `logs`, one for
/// each source.
std::string build_pack(std::span<const KernelSource> sources, const Toolchain& toolchain, unsigned jobs,
                       const PackProgress& progress, std::vector<std::string>* logs = nullptr);

}  // namespace finegemm::jit
