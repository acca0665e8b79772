// Reading options: the only place that looks at the environment. Layer api.
#include "api/options.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include <finegemm/error.h>

namespace finegemm {

namespace {

[[noreturn]] void reject(const char* name, std::string_view value, std::string_view rule) {
    throw Error(Errc::InvalidArgument, fmt::format("{}='{}': {}; unset it for the default", name, value, rule));
}

int64_t read_number(const char* name, std::string_view value, int64_t most) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < 0 || number > most)
        reject(name, value, fmt::format("must be a number from 0 to {}", most));
    return number;
}

bool read_switch(const char* name, std::string_view value) {
    if (value != "0" && value != "1") reject(name, value, "must be 0 or 1");
    return value == "1";
}

std::string default_cache_dir(const Variables& variables) {
    if (const char* cache = variables("XDG_CACHE_HOME"); cache && *cache == '/') return std::string(cache) + "/finegemm";
    if (const char* home = variables("HOME"); home && *home == '/') return std::string(home) + "/.cache/finegemm";
    return {};   // no disk cache
}

constexpr const char* kNames[] = {"FINEGEMM_CACHE_DIR", "FINEGEMM_CACHE_LIMIT", "FINEGEMM_DRIVER", "FINEGEMM_NVRTC",
                                  "FINEGEMM_NVCC",      "FINEGEMM_COMPILER",    "FINEGEMM_PACK",   "FINEGEMM_DUMP",
                                  "FINEGEMM_CPU_THREADS", "FINEGEMM_CHECK",     "CUDA_HOME",       "CUDA_PATH",
                                  "VIRTUAL_ENV",        "XDG_CACHE_HOME",       "HOME"};

}  // namespace

Options options_from(const Variables& variables) {
    const auto text = [&](const char* name, std::string fallback = {}) {
        const char* value = variables(name);
        return value ? std::string(value) : std::move(fallback);
    };
    Options o;
    o.cache_dir = variables("FINEGEMM_CACHE_DIR") ? text("FINEGEMM_CACHE_DIR") : default_cache_dir(variables);
    o.driver_path = text("FINEGEMM_DRIVER", o.driver_path);
    o.nvrtc_path = text("FINEGEMM_NVRTC");
    o.nvcc_path = text("FINEGEMM_NVCC");
    o.cuda_home = text("CUDA_HOME", text("CUDA_PATH"));
    o.python_prefix = text("VIRTUAL_ENV");
    o.dump_dir = text("FINEGEMM_DUMP");
    if (const char* v = variables("FINEGEMM_CACHE_LIMIT")) o.cache_limit_bytes = read_number("FINEGEMM_CACHE_LIMIT", v, INT64_MAX);
    if (const char* v = variables("FINEGEMM_CPU_THREADS"))
        o.cpu_threads = static_cast<int32_t>(read_number("FINEGEMM_CPU_THREADS", v, 4096));
    if (const char* v = variables("FINEGEMM_PACK")) o.use_pack = read_switch("FINEGEMM_PACK", v);
    if (const char* v = variables("FINEGEMM_CHECK")) o.check_values = read_switch("FINEGEMM_CHECK", v);
    if (const std::string v = text("FINEGEMM_COMPILER", "nvrtc"); v == "nvcc") o.compiler = Compiler::Nvcc;
    else if (v != "nvrtc") reject("FINEGEMM_COMPILER", v, "must be nvrtc or nvcc");
    return o;
}

Options Options::from_environment() { return options_from([](const char* name) { return std::getenv(name); }); }

Options Options::from_environment(std::span<const std::string> overrides) {
    for (const std::string& o : overrides) {
        const std::string_view name = std::string_view(o).substr(0, o.find('='));
        const bool known = std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
        if (!known || o.find('=') == std::string::npos)
            throw Error(Errc::InvalidArgument, fmt::format("option '{}': must be NAME=value with one of the names {}", o, fmt::join(kNames, ", ")));
    }
    return options_from([&](const char* name) -> const char* {
        const size_t length = std::strlen(name);
        for (const std::string& o : overrides)
            if (o.compare(0, length, name) == 0 && o[length] == '=') return o.c_str() + length + 1;
        return std::getenv(name);
    });
}

}  // namespace finegemm
