// NVRTC, opened at run time. Layer jit. Own declarations of the few entry points that are used.
#include <dlfcn.h>

#include <array>
#include <filesystem>

#include <fmt/format.h>

#include <finegemm/error.h>

#include "jit/kernel_files.h"
#include "jit/toolchain.h"

namespace finegemm::jit {

namespace {

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

template <typename F>
bool resolve(void* library, F& entry, const char* name) {
    entry = reinterpret_cast<F>(dlsym(library, name));
    return entry != nullptr;
}

bool resolve_all(void* lib, NvrtcApi& api) {
    return resolve(lib, api.Version, "nvrtcVersion") && resolve(lib, api.CreateProgram, "nvrtcCreateProgram") &&
           resolve(lib, api.CompileProgram, "nvrtcCompileProgram") && resolve(lib, api.GetCUBINSize, "nvrtcGetCUBINSize") &&
           resolve(lib, api.GetCUBIN, "nvrtcGetCUBIN") && resolve(lib, api.GetProgramLogSize, "nvrtcGetProgramLogSize") &&
           resolve(lib, api.GetProgramLog, "nvrtcGetProgramLog") && resolve(lib, api.DestroyProgram, "nvrtcDestroyProgram") &&
           resolve(lib, api.GetErrorString, "nvrtcGetErrorString");
}

constexpr std::array kOptions = {"--gpu-architecture=sm_90a", "--std=c++20", "--ptxas-options=-v"};

class Nvrtc final : public Toolchain {
public:
    Nvrtc(const NvrtcApi& api, std::string path, int major, int minor)
        : api_(api), path_(std::move(path)), major_(major), minor_(minor) {}

    std::string identity() const override {
        return fmt::format("nvrtc {}.{} {}", major_, minor_, fmt::join(kOptions, " "));
    }
    std::string path() const override { return path_; }

    Output compile(const KernelSource& source) const override {
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
        check(api_.CreateProgram(&program, source.text.c_str(), (source.entry + ".cu").c_str(), static_cast<int>(names.size()),
                                 text_pointers.data(), name_pointers.data()),
              "nvrtcCreateProgram");
        const auto destroy = [this](Program p) { api_.DestroyProgram(&p); };
        const std::unique_ptr<ProgramTag, decltype(destroy)> owner(program, destroy);
        const int result = api_.CompileProgram(program, kOptions.size(), kOptions.data());
        Output out;
        out.log = text_of(program, api_.GetProgramLogSize, api_.GetProgramLog);
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
        if (result != 0) throw Error(Errc::Compile, fmt::format("{}: {} failed: {}", path_, what, api_.GetErrorString(result)));
    }

    NvrtcApi api_;
    std::string path_;
    int major_, minor_;
};

/// The library's own file, from where Python packages can be reached.
std::filesystem::path own_path() {
    Dl_info info{};
    return dladdr(reinterpret_cast<void*>(&find_nvrtc), &info) && info.dli_fname ? info.dli_fname : "";
}

/// Directories `nvidia/*/lib` below a site-packages directory: where pip puts NVIDIA's libraries.
void add_packages(const std::filesystem::path& site, std::vector<std::string>& directories) {
    std::error_code error;
    for (const auto& package : std::filesystem::directory_iterator(site / "nvidia", error))
        if (std::filesystem::is_directory(package.path() / "lib", error)) directories.push_back((package.path() / "lib").string());
}

std::vector<std::string> library_directories(const Options& options) {
    std::vector<std::string> directories;
    std::error_code error;
    if (!options.nvrtc_path.empty() && std::filesystem::is_directory(options.nvrtc_path, error))
        directories.push_back(options.nvrtc_path);
    for (auto up = own_path().parent_path(); up.has_relative_path(); up = up.parent_path()) add_packages(up, directories);
    if (!options.python_prefix.empty())
        for (const auto& python : std::filesystem::directory_iterator(options.python_prefix + "/lib", error))
            add_packages(python.path() / "site-packages", directories);
    for (const std::string& home : {options.cuda_home, std::string("/usr/local/cuda")})
        if (!home.empty())
            for (const char* sub : {"/lib64", "/lib"}) directories.push_back(home + sub);
    return directories;
}

}  // namespace

Search find_nvrtc(const Options& options) {
    constexpr std::array kNames = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
    std::vector<std::string> paths;
    std::error_code error;
    if (!options.nvrtc_path.empty() && !std::filesystem::is_directory(options.nvrtc_path, error))
        paths.push_back(options.nvrtc_path);
    for (const std::string& directory : library_directories(options))
        for (const char* name : kNames)
            if (std::filesystem::exists(directory + "/" + name, error)) paths.push_back(directory + "/" + name);
    for (const char* name : kNames) paths.push_back(name);   // the loader's own search

    Search search;
    for (const std::string& path : paths) {
        void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);   // never closed: kernels may be compiled at any time
        if (!library) {
            search.tried.push_back(dlerror());
            continue;
        }
        NvrtcApi api{};
        int major = 0, minor = 0;
        if (!resolve_all(library, api) || api.Version(&major, &minor) != 0) {
            search.tried.push_back(path + ": not a usable NVRTC");
        } else if (major < 12) {
            search.tried.push_back(fmt::format("{}: NVRTC {}.{} does not know sm_90a", path, major, minor));
        } else {
            search.found = std::make_unique<Nvrtc>(api, path, major, minor);
            return search;
        }
    }
    return search;
}

}  // namespace finegemm::jit
