// make_pack FILE [--python=PREFIX] [--cuda=HOME] [--budget=FILE [--update]]: compiles every kernel that a call can choose.
// Without NVRTC it writes an empty pack and says so. With --budget it fails on spills, on serialised wgmma, and on kernels
// that take more registers or bytes than the file records. Layer tools.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <finegemm/core/smem_plan.h>

#include "backend/pack_contents.h"
#include "jit/pack.h"
#include "jit/resources.h"
#include "plan/plan.h"

using namespace finegemm;

namespace {

struct Arguments {
    std::string output, budget;
    bool update = false;
    Options options;
};

Arguments parse(int argc, char** argv) {
    Arguments a;
    for (int i = 1; i < argc; ++i) {
        const std::string text = argv[i];
        const std::string name = text.substr(0, text.find('=')), value = text.substr(std::min(text.size(), name.size() + 1));
        if (name == "--python") a.options.python_prefix = value;
        else if (name == "--cuda") a.options.cuda_home = value;
        else if (name == "--budget") a.budget = value;
        else if (name == "--update") a.update = true;
        else a.output = text;
    }
    return a;
}

/// Complaints about kernels that take more than recorded, or waste what they have.
std::vector<std::string> over_budget(const Arguments& a, const std::vector<jit::KernelSource>& sources,
                                     const std::vector<std::string>& logs) {
    nlohmann::ordered_json budget = nlohmann::ordered_json::object();
    if (std::ifstream file(a.budget); file && !a.update) budget = nlohmann::ordered_json::parse(file);
    std::vector<std::string> complaints;
    for (size_t i = 0; i < sources.size(); ++i) {
        const std::string& entry = sources[i].entry;
        const jit::Resources r = jit::resources_of(logs[i]);
        const int64_t smem = i < plan::candidates().size() ? smem_plan(plan::candidates()[i]).total : 0;
        if (r.registers < 0) complaints.push_back(entry + ": the compiler's log does not say how many registers it takes");
        if (r.spill_bytes > 0) complaints.push_back(fmt::format("{}: spills {} bytes", entry, r.spill_bytes));
        if (r.serialised) complaints.push_back(entry + ": its wgmma instructions are serialised");
        if (a.update) {
            budget[entry] = {{"registers", r.registers}, {"smem", smem}};
        } else if (!budget.contains(entry)) {
            complaints.push_back(entry + ": has no budget; --update records one");
        } else {
            for (const auto& [what, taken] : {std::pair{"registers", r.registers}, std::pair{"smem", smem}})
                if (taken > budget[entry][what].get<int64_t>())
                    complaints.push_back(fmt::format("{}: takes {} {}, its budget is {}", entry, taken, what, budget[entry][what].get<int64_t>()));
        }
    }
    if (a.update) std::ofstream(a.budget) << budget.dump(1) << '\n';
    return complaints;
}

}  // namespace

int main(int argc, char** argv) try {
    const Arguments a = parse(argc, argv);
    if (a.output.empty()) {
        std::cerr << "usage: make_pack FILE [--python=PREFIX] [--cuda=HOME] [--budget=FILE [--update]]\n";
        return 2;
    }
    const jit::Search search = jit::find_nvrtc(a.options);
    if (!search.found) {
        std::ofstream(a.output, std::ios::binary);
        std::cout << "No NVRTC: the library gets no precompiled kernels and compiles them when they are first needed.\n";
        return 0;
    }
    const auto sources = pack_contents();
    std::vector<std::string> logs;
    const std::string pack =
        jit::build_pack(sources, *search.found, std::max(1u, std::thread::hardware_concurrency()), nullptr, &logs);
    std::ofstream file(a.output, std::ios::binary);
    file << pack;
    file.close();
    if (!file) {
        std::cerr << "cannot write " << a.output << '\n';
        return 1;
    }
    std::cout << fmt::format("{} kernels in {} KB, by {} from {}\n", sources.size(), pack.size() / 1024, search.found->identity(),
                             search.found->path());
    if (a.budget.empty()) return 0;
    const auto complaints = over_budget(a, sources, logs);
    for (const std::string& c : complaints) std::cerr << c << '\n';
    return complaints.empty() ? 0 : 1;
} catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 1;
}
