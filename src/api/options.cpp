// Reading options: the only place that looks at the environment. Layer api.
#include "api/options.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <numeric>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <finegemm/error.h>

namespace finegemm {

namespace {

constexpr const char* kLogVariable = "FINEGEMM_LOG";

constexpr int64_t kMaxThreads = 4096;

[[noreturn]] void reject_setting(const char* name, std::string_view value, std::string_view rule) {
    throw Error(Errc::InvalidArgument, fmt::format("{}='{}': {}; unset it for the default", name, value, rule));
}

int64_t read_number(const char* name, std::string_view value, int64_t most) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < 0 || number > most)
        reject_setting(name, value, fmt::format("must be a number from 0 to {}", most));
    return number;
}

bool read_switch(const char* name, std::string_view value) {
    if (value != "0" && value != "1") reject_setting(name, value, "must be 0 or 1");
    return value == "1";
}

std::string default_cache_dir(const Variables& variables) {
    if (const char* cache = variables("XDG_CACHE_HOME"); cache && *cache == '/')
        return std::string(cache) + "/finegemm";
    if (const char* home = variables("HOME"); home && *home == '/') return std::string(home) + "/.cache/finegemm";
    return {};  // no disk cache
}

/// Letters that must be put in, left out or changed to make one word of the other.
size_t distance(std::string_view x, std::string_view y) {
    std::vector<size_t> row(y.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 1; i <= x.size(); ++i) {
        size_t diagonal = std::exchange(row[0], i);
        for (size_t j = 1; j <= y.size(); ++j)
            diagonal = std::exchange(row[j],
                                     std::min({row[j] + 1, row[j - 1] + 1, diagonal + (x[i - 1] == y[j - 1] ? 0 : 1)}));
    }
    return row.back();
}

}  // namespace

std::vector<std::string> misspelt_variables(std::span<const char* const> variables) {
    std::vector<std::string> known{kLogVariable};
    options_from([&](const char* name) {
        known.emplace_back(name);
        return nullptr;
    });
    std::vector<std::string> sentences;
    for (const std::string_view variable : variables) {
        const std::string_view name = variable.substr(0, variable.find('='));
        if (!name.starts_with("FINE") || std::ranges::find(known, name) != known.end()) continue;
        const auto near = std::ranges::find_if(known, [&](const std::string& k) { return distance(k, name) <= 2; });
        if (near != known.end())
            sentences.push_back(fmt::format("{}: is set, but no variable of FineGEMM; did you mean {}?", name, *near));
    }
    return sentences;
}

std::vector<std::string> misspelt_variables() {
    size_t count = 0;
    while (environ[count]) ++count;
    return misspelt_variables(std::span<const char* const>(environ, count));
}

Options options_from(const Variables& variables) {
    const Variables set = [&](const char* name) {
        const char* value = variables(name);
        return value && *value ? value : nullptr;
    };
    const auto text = [&](const char* name, std::string fallback = {}) {
        const char* value = set(name);
        return value ? std::string(value) : std::move(fallback);
    };
    Options o;
    o.cache_dir = text("FINEGEMM_CACHE_DIR", default_cache_dir(set));
    o.driver_path = text("FINEGEMM_DRIVER", o.driver_path);
    o.nvrtc_path = text("FINEGEMM_NVRTC");
    o.nvcc_path = text("FINEGEMM_NVCC");
    o.cuda_home = text("CUDA_HOME", text("CUDA_PATH"));
    o.python_prefix = text("VIRTUAL_ENV");
    o.dump_dir = text("FINEGEMM_DUMP");
    o.plan_table = text("FINEGEMM_PLAN_TABLE");
    o.trusted_dir = text("FINEGEMM_TRUSTED_DIR");
    o.nvtx_path = text("NVTX_INJECTION64_PATH");
    if (const char* v = set("FINEGEMM_CACHE_LIMIT"))
        o.cache_limit_bytes = read_number("FINEGEMM_CACHE_LIMIT", v, INT64_MAX);
    if (const char* v = set("FINEGEMM_CPU_THREADS"))
        o.cpu_threads = static_cast<int32_t>(read_number("FINEGEMM_CPU_THREADS", v, kMaxThreads));
    if (const std::string v = text("FINEGEMM_PACK"); v == "0" || v == "1") o.use_pack = v == "1";
    else o.pack_path = v;
    if (const char* v = set("FINEGEMM_CHECK")) o.check_values = read_switch("FINEGEMM_CHECK", v);
    if (const char* v = set("FINEGEMM_BATCH_INVARIANT")) o.batch_invariant = read_switch("FINEGEMM_BATCH_INVARIANT", v);
    if (const std::string v = text("FINEGEMM_COMPILER", "nvrtc"); v == "nvcc") o.compiler = Compiler::Nvcc;
    else if (v != "nvrtc") reject_setting("FINEGEMM_COMPILER", v, "must be nvrtc or nvcc");
    return o;
}

void check_options(const Options& o) {
    const auto refuse = [](const char* name, int64_t value, const std::string& rule) {
        throw Error(Errc::InvalidArgument, fmt::format("options.{}: is {}, {}", name, value, rule));
    };
    if (o.cpu_threads < 0 || o.cpu_threads > kMaxThreads)
        refuse("cpu_threads", o.cpu_threads, fmt::format("must be from 0 to {}; 0 takes all cores", kMaxThreads));
    if (o.cache_limit_bytes < 0)
        refuse("cache_limit_bytes", o.cache_limit_bytes, "must not be negative; 0 turns the cache off");
    if (o.compiler != Compiler::Nvrtc && o.compiler != Compiler::Nvcc)
        refuse("compiler", static_cast<int32_t>(o.compiler), "must be 0 (nvrtc) or 1 (nvcc); pass one of them");
    if (o.driver_path.empty())
        throw Error(Errc::InvalidArgument,
                    "options.driver_path: is empty, must be a library; libcuda.so.1 is the default");
}

void forbid_multicast() {
    constexpr const char* kVariable = "NCCL_NVLS_ENABLE";
    const char* const value = std::getenv(kVariable);
    if (value && std::string_view(value) == "0") return;  // other threads may read the environment: it stays as it is
    if (value && *value)
        reject_setting(kVariable, value,
                       "must be 0 where FineGEMM makes communicators, as NVLink multicast may put a shared host's GPUs "
                       "out of service");
    setenv(kVariable, "0", 1);
}

std::string log_variable() {
    const char* value = std::getenv(kLogVariable);
    return value ? value : "";
}

Options Options::from_environment() {
    return options_from([](const char* name) { return std::getenv(name); });
}

}  // namespace finegemm
