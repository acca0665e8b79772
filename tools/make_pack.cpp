// make_pack FILE [--report=FILE] [--from=PACK] [--newest-cuda=MAJOR] [--python=PREFIX] [--cuda=HOME]: compiles every
// kernel that a call can choose, or takes them from a pack that was made of the same sources. The report is JSON: the
// compiler, and of each kernel what it takes of an SM and the digest of its machine code. Layer tools.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "engine/pack_contents.h"
#include "jit/cubin.h"
#include "jit/pack.h"
#include "jit/resources.h"

using namespace finegemm;

namespace {

struct Arguments {
    std::string output, report, from;
    Options options;
    int newest_cuda = jit::kNewestCuda;
};

Arguments parse(int argc, char** argv) {
    Arguments a;
    for (int i = 1; i < argc; ++i) {
        const std::string text = argv[i];
        const std::string name = text.substr(0, text.find('=')),
                          value = text.substr(std::min(text.size(), name.size() + 1));
        if (name == "--python") a.options.python_prefix = value;
        else if (name == "--newest-cuda") a.newest_cuda = std::stoi(value);
        else if (name == "--cuda") a.options.cuda_home = value;
        else if (name == "--report") a.report = value;
        else if (name == "--from") a.from = value;
        else a.output = text;
    }
    return a;
}

void write(const std::string& path, const std::string& bytes) {
    std::ofstream file(path, std::ios::binary);
    file << bytes;
    file.close();
    if (!file) throw std::runtime_error("cannot write " + path);
}

/// The bytes of a pack that has every one of `sources`.
std::string read_pack(const std::string& path, const std::vector<jit::KernelSource>& sources) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot read " + path);
    std::string bytes{std::istreambuf_iterator<char>(file), {}};
    const jit::Pack pack(bytes);
    for (const jit::KernelSource& source : sources)
        if (!pack.find(source))
            throw std::runtime_error(
                fmt::format("{} ({} kernels) lacks {}: it was not made of these sources; build with FINEGEMM_PACK="
                            "compile, or with a pack of this checkout",
                            path, pack.size(), source.entry));
    return bytes;
}

nlohmann::ordered_json report_on(const std::vector<jit::KernelSource>& sources, const jit::Pack& pack,
                                 const std::vector<std::string>& logs, const std::string& compiler) {
    nlohmann::ordered_json kernels;
    for (size_t i = 0; i < sources.size(); ++i) {
        const jit::Resources r = jit::resources_of(logs[i]);
        kernels[sources[i].entry] = {{"registers", r.registers},
                                     {"spill_bytes", r.spill_bytes},
                                     {"serialised", r.serialised},
                                     {"text", jit::code_digest(pack.find(sources[i]).value()).hex()}};
    }
    return {{"compiler", compiler}, {"kernels", kernels}};
}

void compile_pack(const Arguments& a, const std::vector<jit::KernelSource>& sources) {
    const jit::Search search = jit::find_nvrtc(a.options, a.newest_cuda);
    if (!search.found)
        throw std::runtime_error(
            jit::not_found(Compiler::Nvrtc, search.tried) +
            "\nTo build a library without precompiled kernels: cmake -DFINEGEMM_PACK=none; with those of "
            "one compiler alone: -DFINEGEMM_PACK_CUDA=13, or 12");
    std::vector<std::string> logs;
    const auto progress = [last = size_t{0}](size_t done, size_t of, const std::string&) mutable {
        if (done == of || done >= last + 10) std::cout << fmt::format("{} of {} kernels", last = done, of) << std::endl;
    };
    const unsigned jobs = std::max(1u, std::thread::hardware_concurrency());
    const std::string bytes = jit::build_pack(sources, *search.found, jobs, progress, &logs);
    const std::string compiler = search.found->identity();
    if (!a.report.empty()) write(a.report, report_on(sources, jit::Pack(bytes), logs, compiler).dump(1) + "\n");
    write(a.output, bytes);
    std::cout << fmt::format("{} KB, by {} from {}\n", bytes.size() / 1024, compiler, search.found->path());
}

}  // namespace

int main(int argc, char** argv) try {
    const Arguments a = parse(argc, argv);
    if (a.output.empty()) {
        std::cerr << "usage: make_pack FILE [--report=FILE] [--from=PACK] [--newest-cuda=MAJOR] [--python=PREFIX] "
                     "[--cuda=HOME]\n";
        return 2;
    }
    std::vector<jit::KernelSource> sources = pack_contents();
    if (const char* some = std::getenv("SOME")) std::erase_if(sources, [&](const auto& x) { return x.entry.find(some) == std::string::npos; });
    for (auto& x : sources) if (std::getenv("NAMES")) std::cout << x.entry << '\n';
    if (a.from.empty()) compile_pack(a, sources);
    else write(a.output, read_pack(a.from, sources));
    return 0;
} catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 1;
}
