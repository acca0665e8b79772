// NCCL, opened at run time. Layer comm.
#include "comm/nccl.h"

#include <dlfcn.h>

#include <fmt/format.h>

#include <finegemm/error.h>

#include "cuda/library_paths.h"
#include "cuda/symbols.h"

namespace finegemm::nccl {

namespace {

constexpr std::array kNames = {"libnccl.so.2"};

bool resolve_all(void* lib, Api& api) {
    using cuda::resolve;
    return resolve(lib, api.GetVersion, "ncclGetVersion") && resolve(lib, api.GetUniqueId, "ncclGetUniqueId") &&
           resolve(lib, api.CommInitRank, "ncclCommInitRank") && resolve(lib, api.CommDestroy, "ncclCommDestroy") &&
           resolve(lib, api.CommAbort, "ncclCommAbort") &&
           resolve(lib, api.CommGetAsyncError, "ncclCommGetAsyncError") &&
           resolve(lib, api.GetErrorString, "ncclGetErrorString") &&
           resolve(lib, api.GetLastError, "ncclGetLastError") && resolve(lib, api.GroupStart, "ncclGroupStart") &&
           resolve(lib, api.GroupEnd, "ncclGroupEnd") && resolve(lib, api.Send, "ncclSend") &&
           resolve(lib, api.Recv, "ncclRecv");
}

/// Never closed: it does not survive it.
void* load(const Options& options, const std::string& wish, std::string& path, std::string& tried) {
    const auto try_file = [&](const std::string& file, int flags) {
        void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | flags);
        if (library) path = file;
        else if (const char* why = dlerror(); flags == 0) tried += fmt::format("\n  {}", why);
        return library;
    };
    if (wish.empty())
        if (void* loaded = try_file(kNames[0], RTLD_NOLOAD)) return loaded;
    cuda::LibraryPaths paths = cuda::library_paths(options, wish, kNames);
    for (const std::string& without : paths.without) tried += fmt::format("\n  {}", without);
    paths.files.insert(paths.files.end(), kNames.begin(), kNames.end());  // last, the loader's own search
    for (const std::string& file : paths.files)
        if (void* library = try_file(file, 0)) return library;
    return nullptr;
}

}  // namespace

std::shared_ptr<const Library> Library::open(const Options& options, const std::string& wish) {
    auto made = std::make_shared<Library>();
    std::string tried;
    void* const library = load(options, wish, made->path, tried);
    if (!library)
        throw Error(
            Errc::Unsupported,
            fmt::format("NCCL was not found; `pip install nvidia-nccl-cu13` (or -cu12) has it, or pass its file "
                        "as nccl_path. Tried:{}",
                        tried));
    if (!resolve_all(library, made->api))
        throw Error(Errc::Unsupported, fmt::format("{} is too old: it has no {}; update NCCL", made->path,
                                                   "ncclSend or ncclGetLastError (2.13)"));
    made->check(made->api.GetVersion(&made->version), "ncclGetVersion");
    return made;
}

UniqueId Library::make_id() const {
    UniqueId id{};
    check(api.GetUniqueId(&id), "ncclGetUniqueId");
    return id;
}

void Library::fail(int result, const char* call, Comm comm) const {
    const char* const detail = api.GetLastError(comm);
    throw Error(Errc::Peer, fmt::format("{} failed: {} ({}){}{}", call, api.GetErrorString(result), result,
                                        detail && *detail ? ": " : "", detail ? detail : ""));
}

}  // namespace finegemm::nccl
