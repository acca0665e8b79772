// Search paths of NVIDIA's libraries: the toolkit's, and pip's. Layer cuda.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <finegemm/context.h>

namespace finegemm::cuda {

/// Files that exist, in the order of the search, and directories that have none.
struct LibraryPaths {
    std::vector<std::string> files, without;
};

/// `names`: a library's file names, best first; the last is what messages call it. `wish`: a file or a directory that
/// goes before all others; empty: none. The loader's own search, by a bare name, is left to the caller.
LibraryPaths library_paths(const Options& options, const std::string& wish, std::span<const char* const> names);

/// The file that an address of code was loaded from.
std::filesystem::path file_of(const void* address);

}  // namespace finegemm::cuda
