// nvcc, as a process. Layer jit.
#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include <finegemm/error.h>

#include "jit/kernel_files.h"
#include "jit/process.h"
#include "jit/toolchain.h"

namespace finegemm::jit {

namespace {

constexpr std::array kOptions = {"-gencode=arch=compute_90a,code=sm_90a", "-std=c++20", "-cubin", "-Xptxas=-v"};

class Nvcc final : public Toolchain {
public:
    Nvcc(std::string path, std::string version) : path_(std::move(path)), version_(std::move(version)) {}

    std::string identity() const override { return fmt::format("nvcc {} {}", version_, fmt::join(kOptions, " ")); }
    std::string path() const override { return path_; }

protected:
    Output translate(const KernelSource& source) const override {
        const TemporaryDirectory work;
        for (const auto& [name, text] : kernel_files()) write_file(work.path() + '/' + std::string(name), text);
        const std::string input = work.path() + "/kernel.cu", output = work.path() + "/kernel.cubin";
        write_file(input, source.text);
        std::vector<std::string> arguments = {path_};
        arguments.insert(arguments.end(), kOptions.begin(), kOptions.end());
        arguments.insert(arguments.end(), {"-I", work.path(), input, "-o", output});
        const ProcessResult result = run_process(arguments);
        std::ifstream file(output, std::ios::binary);
        std::stringstream cubin;
        cubin << file.rdbuf();
        if (result.status != 0 || cubin.str().empty())
            throw Error(Errc::Compile, fmt::format("{} could not compile {}:\n{}", path_, source.entry, result.output));
        return {cubin.str(), result.output};
    }

private:
    std::string path_, version_;
};

}  // namespace

Search find_nvcc(const Options& options, int newest_cuda) {
    std::vector<std::string> paths;
    if (!options.nvcc_path.empty()) paths.push_back(options.nvcc_path);
    if (!options.cuda_home.empty()) paths.push_back(options.cuda_home + "/bin/nvcc");
    paths.insert(paths.end(), {"nvcc", "/usr/local/cuda/bin/nvcc"});
    Search search;
    for (const std::string& path : paths) {
        const ProcessResult result = run_process({path, "--version"});
        const size_t release = result.output.find(", V");
        if (result.status == 0 && release != std::string::npos) {
            const std::string version =
                result.output.substr(release + 3, result.output.find('\n', release) - release - 3);
            if (std::atoi(version.c_str()) <= newest_cuda) {
                search.found = std::make_unique<Nvcc>(path, version);
                return search;
            }
            search.tried.push_back(too_new(path, "nvcc " + version, newest_cuda));
        } else {
            search.tried.push_back(fmt::format("{}: {}", path, result.status < 0 ? result.output : "not nvcc"));
        }
    }
    return search;
}

std::string too_new(const std::string& path, const std::string& compiler, int newest_cuda) {
    return fmt::format("{}: {} makes code that a driver of CUDA {} does not load", path, compiler, newest_cuda);
}

const char* nvrtc_package(int newest_cuda) {
    return newest_cuda < kNewestCuda ? "nvidia-cuda-nvrtc-cu12" : "nvidia-cuda-nvrtc";
}

std::string not_found(Compiler compiler, const std::vector<std::string>& tried, int newest_cuda) {
    const bool nvrtc = compiler == Compiler::Nvrtc;
    return fmt::format("no {} found; {}. Searched:\n  {}", nvrtc ? "NVRTC" : "nvcc",
                       nvrtc ? fmt::format("`pip install {}` brings it, or set FINEGEMM_NVRTC to a libnvrtc.so",
                                           nvrtc_package(newest_cuda))
                             : "install the CUDA toolkit, set FINEGEMM_NVCC, or use NVRTC (FINEGEMM_COMPILER=nvrtc)",
                       fmt::join(tried, "\n  "));
}

std::unique_ptr<Toolchain> find_toolchain(const Options& options, int newest_cuda) {
    Search search =
        options.compiler == Compiler::Nvrtc ? find_nvrtc(options, newest_cuda) : find_nvcc(options, newest_cuda);
    if (!search.found) throw Error(Errc::Compile, not_found(options.compiler, search.tried, newest_cuda));
    return std::move(search.found);
}

}  // namespace finegemm::jit
