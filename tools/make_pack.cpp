// make_pack FILE [--python=PREFIX] [--cuda=HOME]: compiles every kernel that a call can choose.
// Without NVRTC it writes an empty pack and says so. Layer tools.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <thread>

#include <fmt/format.h>

#include "backend/pack_contents.h"
#include "jit/pack.h"

using namespace finegemm;

namespace {

struct Arguments {
    std::string output;
    Options options;
};

Arguments parse(int argc, char** argv) {
    Arguments a;
    for (int i = 1; i < argc; ++i) {
        const std::string text = argv[i];
        const std::string name = text.substr(0, text.find('=')),
                          value = text.substr(std::min(text.size(), name.size() + 1));
        if (name == "--python") a.options.python_prefix = value;
        else if (name == "--cuda") a.options.cuda_home = value;
        else a.output = text;
    }
    return a;
}

}  // namespace

int main(int argc, char** argv) try {
    const Arguments a = parse(argc, argv);
    if (a.output.empty()) {
        std::cerr << "usage: make_pack FILE [--python=PREFIX] [--cuda=HOME]\n";
        return 2;
    }
    const jit::Search search = jit::find_nvrtc(a.options);
    if (!search.found) {
        std::ofstream(a.output, std::ios::binary);
        std::cout
            << "No NVRTC: the library gets no precompiled kernels and compiles them when they are first needed.\n";
        return 0;
    }
    const auto sources = pack_contents();
    const unsigned jobs = std::max(1u, std::thread::hardware_concurrency());
    const std::string pack = jit::build_pack(sources, *search.found, jobs, nullptr);
    std::ofstream file(a.output, std::ios::binary);
    file << pack;
    file.close();
    if (!file) {
        std::cerr << "cannot write " << a.output << '\n';
        return 1;
    }
    std::cout << fmt::format("{} kernels in {} KB, by {} from {}\n", sources.size(), pack.size() / 1024,
                             search.found->identity(), search.found->path());
    return 0;
} catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 1;
}
