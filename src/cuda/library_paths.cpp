// Looking for NVIDIA's libraries. Layer cuda.
#include "cuda/library_paths.h"

#include <dlfcn.h>

#include <algorithm>

#include <fmt/format.h>

namespace finegemm::cuda {

namespace {

namespace fs = std::filesystem;

struct Looker {
    std::span<const char* const> names;
    LibraryPaths paths;

    bool look_in(const fs::path& directory) {
        std::error_code error;
        for (const char* name : names)
            if (fs::exists(directory / name, error)) {
                paths.files.push_back((directory / name).string());
                return true;
            }
        return false;
    }
    size_t rank(const std::string& file) const {
        const std::string name = fs::path(file).filename().string();
        return static_cast<size_t>(std::ranges::find(names, name) - names.begin());
    }
    void look_in_directory(const fs::path& directory) {
        if (!look_in(directory))
            paths.without.push_back(fmt::format("{}: has no {}", directory.string(), names.back()));
    }
    /// Looks where pip puts NVIDIA's libraries below a site-packages directory: nvidia/cu13/lib, nvidia/cuda_nvrtc/lib.
    void look_in_packages(const fs::path& site) {
        std::error_code error;
        const size_t before = paths.files.size();
        for (const auto& package : fs::directory_iterator(site / "nvidia", error)) look_in(package.path() / "lib");
        // Versions of several packages lie side by side, in an order of the file system's.
        std::stable_sort(paths.files.begin() + static_cast<std::ptrdiff_t>(before), paths.files.end(),
                         [this](const std::string& x, const std::string& y) { return rank(x) < rank(y); });
        if (paths.files.size() == before)
            paths.without.push_back(fmt::format("{}/nvidia/*/lib: has no {}", site.string(), names.back()));
    }
};

}  // namespace

fs::path file_of(const void* address) {
    Dl_info info{};
    return dladdr(address, &info) && info.dli_fname ? info.dli_fname : "";
}

LibraryPaths library_paths(const Options& options, const std::string& wish, std::span<const char* const> names) {
    Looker looker{names, {}};
    std::error_code error;
    if (fs::is_directory(wish, error)) looker.look_in_directory(wish);
    else if (!wish.empty()) looker.paths.files.push_back(wish);
    // A library that is part of a Python package has pip's other packages beside it.
    const fs::path own = file_of(reinterpret_cast<const void*>(&library_paths));
    for (fs::path up = own.parent_path(); up.has_relative_path(); up = up.parent_path())
        if (up.filename() == "site-packages" || up.filename() == "dist-packages") looker.look_in_packages(up);
    if (!options.python_prefix.empty())
        for (const auto& python : fs::directory_iterator(options.python_prefix + "/lib", error))
            if (fs::exists(python.path() / "site-packages", error))
                looker.look_in_packages(python.path() / "site-packages");
    for (const std::string& home : {options.cuda_home, std::string("/usr/local/cuda")})
        if (!home.empty()) looker.look_in_directory(home + "/lib64");
    return looker.paths;
}

}  // namespace finegemm::cuda
