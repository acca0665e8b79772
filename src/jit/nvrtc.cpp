// NVRTC, opened at run time. Layer jit. Own declarations of the few entry points that are used.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>

#include <fmt/format.h>

#include <finegemm/error.h>

#include "cuda/library_paths.h"
#include "cuda/symbols.h"
#include "jit/kernel_files.h"
#include "jit/toolchain.h"

namespace finegemm::jit {

namespace {

namespace fs = std::filesystem;

using Program = struct ProgramTag*;

struct NvrtcApi {
    int (*Version)(int*, int*);
    int (*CreateProgram)(Program*, const char* source, const char* name, int headers, const char* const* texts,
                         const char* const* names);
    int (*CompileProgram)(Program, int options, const char* const* texts);
    int (*GetCUBINSize)(Program, size_t*);
    int (*GetCUBIN)(Program, char*);
    int (*GetProgramLogSize)(Program, size_t*);
    int (*GetProgramLog)(Program, char*);
    int (*DestroyProgram)(Program*);
    const char* (*GetErrorString)(int);
};

bool resolve_all(void* lib, NvrtcApi& api) {
    using cuda::resolve;
    return resolve(lib, api.Version, "nvrtcVersion") && resolve(lib, api.CreateProgram, "nvrtcCreateProgram") &&
           resolve(lib, api.CompileProgram, "nvrtcCompileProgram") &&
           resolve(lib, api.GetCUBINSize, "nvrtcGetCUBINSize") && resolve(lib, api.GetCUBIN, "nvrtcGetCUBIN") &&
           resolve(lib, api.GetProgramLogSize, "nvrtcGetProgramLogSize") &&
           resolve(lib, api.GetProgramLog, "nvrtcGetProgramLog") &&
           resolve(lib, api.DestroyProgram, "nvrtcDestroyProgram") &&
           resolve(lib, api.GetErrorString, "nvrtcGetErrorString");
}

constexpr std::array kOptions = {"--gpu-architecture=sm_90a", "--std=c++20", "--ptxas-options=-v"};

class Nvrtc final : public Toolchain {
public:
    Nvrtc(const NvrtcApi& api, std::string path, std::string identity)
        : api_(api), path_(std::move(path)), identity_(std::move(identity)) {}

    std::string identity() const override { return identity_; }
    std::string path() const override { return path_; }

protected:
    Output translate(const KernelSource& source) const override {
        std::vector<std::string> names, texts;
        for (const auto& [name, text] : kernel_files()) {
            names.emplace_back(name);
            texts.emplace_back(text);
        }
        std::vector<const char*> name_pointers, text_pointers;
        for (size_t i = 0; i < names.size(); ++i) {
            name_pointers.push_back(names[i].c_str());
            text_pointers.push_back(texts[i].c_str());
        }
        Program program = nullptr;
        check(api_.CreateProgram(&program, source.text.c_str(), (source.entry + ".cu").c_str(),
                                 static_cast<int>(names.size()), text_pointers.data(), name_pointers.data()),
              "nvrtcCreateProgram");
        const auto destroy = [this](Program p) { api_.DestroyProgram(&p); };
        const std::unique_ptr<ProgramTag, decltype(destroy)> owner(program, destroy);
        const int result = api_.CompileProgram(program, kOptions.size(), kOptions.data());
        Output out;
        out.log = text_of(program, api_.GetProgramLogSize, api_.GetProgramLog);
        out.log.resize(out.log.find_last_not_of('\0') + 1);  // NVRTC counts the terminator
        if (result != 0)
            throw Error(Errc::Compile, fmt::format("{} could not compile {}: {}\n{}", identity(), source.entry,
                                                   api_.GetErrorString(result), out.log));
        out.cubin = text_of(program, api_.GetCUBINSize, api_.GetCUBIN);
        return out;
    }

private:
    std::string text_of(Program program, int (*size_of)(Program, size_t*), int (*get)(Program, char*)) const {
        size_t size = 0;
        check(size_of(program, &size), "asking NVRTC for a size");
        std::string text(size, '\0');
        check(get(program, text.data()), "asking NVRTC for its output");
        return text;
    }
    void check(int result, const char* what) const {
        if (result != 0)
            throw Error(Errc::Compile, fmt::format("{}: {} failed: {}", path_, what, api_.GetErrorString(result)));
    }

    NvrtcApi api_;
    std::string path_, identity_;
};

constexpr int kOldestCuda = 12;  // that knows sm_90a and C++20
constexpr std::array kNames = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
static_assert(kNames.size() == kNewestCuda - kOldestCuda + 2);

/// File names of versions that are not too new, best first.
std::span<const char* const> names_up_to(int newest_cuda) {
    return std::span(kNames).subspan(
        static_cast<size_t>(kNewestCuda - std::clamp(newest_cuda, kOldestCuda, kNewestCuda)));
}

cuda::LibraryPaths library_paths(const Options& options, int newest_cuda) {
    return cuda::library_paths(options, options.nvrtc_path, names_up_to(newest_cuda));
}

/// A file that NVRTC loads by its bare name: where the loader does not search, it must be loaded already.
fs::path builtins_beside(const fs::path& library, int major, int minor) {
    return library.parent_path() / fmt::format("libnvrtc-builtins.so.{}.{}", major, minor);
}

std::string identity_of(int major, int minor) {
    return fmt::format("nvrtc {}.{} {}", major, minor, fmt::join(kOptions, " "));
}

/// Null, and why, for a file that cannot be used. A library is never closed: kernels may be compiled at any time.
std::unique_ptr<Toolchain> open_nvrtc(const std::string& path, int newest_cuda, std::string& why) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    NvrtcApi api{};
    int major = 0, minor = 0;
    if (!library) why = dlerror();
    else if (!resolve_all(library, api) || api.Version(&major, &minor) != 0) why = path + ": is not NVRTC";
    else if (major < kOldestCuda) why = fmt::format("{}: NVRTC {}.{} does not know sm_90a", path, major, minor);
    else if (major > newest_cuda) why = too_new(path, fmt::format("NVRTC {}.{}", major, minor), newest_cuda);
    if (!why.empty()) return nullptr;
    const fs::path file = cuda::file_of(reinterpret_cast<const void*>(api.Version));
    // Fails, and need not succeed, where NVRTC and its builtins are where the loader searches.
    dlopen(builtins_beside(file, major, minor).c_str(), RTLD_NOW | RTLD_LOCAL);
    return std::make_unique<Nvrtc>(api, file.string(), identity_of(major, minor));
}

}  // namespace

Search find_nvrtc(const Options& options, int newest_cuda) {
    cuda::LibraryPaths paths = library_paths(options, newest_cuda);
    Search search{.found = nullptr, .tried = std::move(paths.without)};
    const auto names = names_up_to(newest_cuda);
    paths.files.insert(paths.files.end(), names.begin(), names.end());  // last, the loader's own search
    for (const std::string& file : paths.files) {
        std::string why;
        search.found = open_nvrtc(file, newest_cuda, why);
        if (search.found) break;
        search.tried.push_back(why);
    }
    return search;
}

std::string expected_nvrtc(const Options& options, int newest_cuda) {
    std::error_code error;
    for (const std::string& file : library_paths(options, newest_cuda).files) {
        int major = kNewestCuda, minor = 9;
        while (major >= kOldestCuda && !fs::exists(builtins_beside(file, major, minor), error))
            if (--minor < 0) --major, minor = 9;
        if (major < kOldestCuda) return {};  // only loading tells
        if (major <= newest_cuda) return identity_of(major, minor);
    }
    return {};
}

}  // namespace finegemm::jit
