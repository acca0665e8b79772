// Facts about a machine that the library can use. Layer api.
#include "workbench/doctor.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include <finegemm/error.h>

#include "cuda/device.h"
#include "engine/device_spec.h"
#include "engine/pack_contents.h"
#include "engine/thread_pool.h"
#include "jit/cubin.h"
#include "jit/disk_cache.h"
#include "jit/pack.h"
#include "jit/toolchain.h"
#include "os/trust.h"
#include "plan/table.h"
#include "workbench/whole_file.h"

namespace finegemm {

namespace {

/// The major version of the driver's CUDA; the newest that compilers are known of where there is no driver.
int newest_cuda_of(const Options& options) {
    try {
        return cuda::Driver::open(options.driver_path)->version / 1000;
    } catch (const Error&) {
        return jit::kNewestCuda;
    }
}

/// Returns the GPUs that the kernels run on.
std::vector<plan::DeviceSpec> look_at_gpus(const Options& options, std::vector<Finding>& findings) {
    std::vector<plan::DeviceSpec> hoppers;
    std::shared_ptr<const cuda::Driver> driver;
    try {
        driver = cuda::Driver::open(options.driver_path);
    } catch (const Error& e) {
        findings.push_back(
            {"driver", State::Missing, e.what(), "GEMMs run on the CPU until there is a driver and a GPU"});
        return hoppers;
    }
    findings.push_back(
        {"driver", State::Ok,
         fmt::format("{}, for CUDA {}.{}", options.driver_path, driver->version / 1000, driver->version % 1000 / 10),
         ""});
    for (int i = 0; i < driver->devices; ++i) {
        try {
            const cuda::DeviceFacts f = cuda::Device(driver, i).facts();
            const bool hopper = f.major == 9 && f.minor == 0;
            if (hopper) hoppers.push_back(spec_of(f));
            findings.push_back(
                {"gpu", hopper ? State::Ok : State::Missing,
                 fmt::format("cuda:{}: {}, compute capability {}.{}, {} SMs", i, f.name, f.major, f.minor, f.sms),
                 hopper ? "" : "the kernels need compute capability 9.0 (H100, H200, H20, GH200)"});
        } catch (const Error& e) {
            findings.push_back({"gpu", State::Broken, fmt::format("cuda:{}: {}", i, e.what()), "look at nvidia-smi"});
        }
    }
    return hoppers;
}

/// A file or a directory that the user named, and the variable for it.
struct Wish {
    const char* variable;
    const std::string& path;
};

/// Note that a file was taken from elsewhere than wished; empty if it was not.
std::string passed_over(const Wish& wish, const jit::Search& search) {
    for (const std::string& tried : search.tried) {  // "path: why"; of a directory perhaps the path of a file in it
        const std::filesystem::path path = tried.substr(0, tried.find(": "));
        if (path == wish.path || path.parent_path() / "" == std::filesystem::path(wish.path) / "")
            return fmt::format("; not that of {}, as {}", wish.variable, tried);
    }
    return {};
}

void look_at_toolchain(const char* name, const jit::Search& search, const Wish& wish, const std::string& remedy,
                       std::vector<Finding>& findings) {
    if (search.found)
        findings.push_back({name, State::Ok,
                            fmt::format("{}: {}{}", search.found->path(), search.found->identity(),
                                        wish.path.empty() ? "" : passed_over(wish, search)),
                            ""});
    else findings.push_back({name, State::Missing, fmt::format("searched: {}", fmt::join(search.tried, "; ")), remedy});
}

/// Why no file can be made in a directory, which need not exist yet; empty if one can.
std::string fault_of(const std::string& directory) {
    namespace fs = std::filesystem;
    std::error_code error;
    fs::path nearest = fs::absolute(directory, error);  // that exists: it decides whether the rest can be made
    while (!fs::exists(fs::symlink_status(nearest, error)) && nearest.has_relative_path())
        nearest = nearest.parent_path();
    if (!fs::is_directory(nearest, error)) return fmt::format("{} is no directory", nearest.string());
    return access(nearest.c_str(), W_OK | X_OK) == 0 ? "" : fmt::format("{} is not writable", nearest.string());
}

Finding look_at_cache(const Options& options) {
    const jit::DiskCache cache(options.cache_dir, options.cache_limit_bytes, options.trusted_dir);
    if (!cache.enabled()) return {"cache", State::Missing, "off", "set FINEGEMM_CACHE_DIR to keep compiled kernels"};
    int64_t bytes = 0;
    const auto entries = cache.list();
    for (const auto& e : entries) bytes += e.bytes;
    const std::string contents =
        fmt::format("{}: {} kernels, {:.1f} of {:.0f} MB", cache.directory(), entries.size(),
                    static_cast<double>(bytes) / 1e6, static_cast<double>(options.cache_limit_bytes) / 1e6);
    if (const std::string fault = fault_of(cache.directory()); !fault.empty())
        return {
            "cache", State::Broken, fmt::format("{}; {}", contents, fault),
            "set FINEGEMM_CACHE_DIR to a directory that can be written to, or kernels are compiled in each process"};
    if (const std::string distrust = cache.distrust(); !distrust.empty())
        return {"cache", State::Broken, "passed over, kernels are compiled instead: " + distrust,
                "a cubin is code: its folder may belong to you or root only, and be written by nobody else"};
    return {"cache", State::Ok, contents, ""};
}

Finding look_at_pack(const Options& options, int newest_cuda) {
    if (!options.use_pack) return {"pack", State::Missing, "turned off by FINEGEMM_PACK=0", "unset it"};
    const auto packs = jit::embedded_packs();
    if (packs.empty())
        return {"pack", State::Missing, "none in this build",
                "kernels are compiled when they are first needed; a build with FINEGEMM_PACK=compile has them"};
    const auto loads = [&](const jit::EmbeddedPack& p) { return p.cuda <= newest_cuda; };
    const auto chosen = std::ranges::find_if(packs, loads);
    if (chosen == packs.end())
        return {"pack", State::Broken,
                fmt::format("a driver of CUDA {} does not load code of CUDA {}", newest_cuda, packs.back().cuda),
                packs.back().cuda > 12 ? "update the driver, or install a build with FINEGEMM_PACK_CUDA=12"
                                       : "update the driver"};
    const jit::Pack pack(chosen->bytes);
    const auto sources = pack_contents();
    const auto good =
        std::ranges::count_if(sources, [&](const jit::KernelSource& s) { return pack.find(s).has_value(); });
    const bool whole = good == std::ssize(sources);
    return {"pack", whole ? State::Ok : State::Broken,
            fmt::format("{} of {} kernels by CUDA {}, {:.0f} KB", good, sources.size(), chosen->cuda,
                        static_cast<double>(pack.bytes()) / 1e3),
            whole ? "" : "build the library again"};
}

Finding look_at_pack_file(const Options& options, int newest_cuda) {
    const std::string& file = options.pack_path;
    const auto broken = [](const std::string& detail, const char* remedy) {
        return Finding{"pack file", State::Broken, detail, remedy};
    };
    if (const std::string distrust = os::file_distrust(file, options.trusted_dir); !distrust.empty())
        return broken(
            "passed over, the library's own kernels hold: " + distrust,
            "a cubin is code: it may belong to you or root only, and be written by nobody else, as its folder");
    std::string bytes;
    try {
        bytes = jit::read_pack(options);
    } catch (const Error& e) {
        return broken(e.what(), "calls on a GPU fail with this");
    }
    const jit::Pack pack(bytes);
    const auto sources = pack_contents();
    int64_t good = 0;
    int cuda = 0;
    for (const jit::KernelSource& source : sources) {
        const auto cubin = pack.find(source);
        good += cubin.has_value();
        if (cubin) cuda = jit::cuda_of(*cubin);
    }
    const std::string detail = fmt::format("{}: {} of {} kernels by CUDA {}", file, good, sources.size(), cuda);
    if (good < std::ssize(sources))
        return broken(detail, "it was made of other sources; write it again with this version's `finegemm pack --out`");
    if (cuda > newest_cuda)
        return broken(fmt::format("{}, which a driver of CUDA {} does not load", detail, newest_cuda),
                      "write it again with `finegemm pack --cuda 12 --out`");
    return {"pack file", State::Ok, detail, ""};
}

Finding look_at_plan_table(const Options& options, const std::vector<plan::DeviceSpec>& gpus) {
    const std::string& file = options.plan_table;
    if (file.empty())
        return {"plan table", State::Missing, "none", "not needed; `finegemm tune` measures one for this GPU"};
    if (const std::string distrust = os::file_distrust(file, options.trusted_dir); !distrust.empty())
        return {"plan table", State::Broken, "passed over, the library's own choices hold: " + distrust,
                "it may belong to you or root only, and be written by nobody else, as its folder may"};
    try {
        const plan::PlanTable table = plan::read_table(file);
        for (const plan::DeviceSpec& gpu : gpus) plan::load_table(file, gpu, options.trusted_dir);
        return {"plan table", State::Ok,
                fmt::format("{}: {} entries for device '{}' with {} SMs", file, table.entries.size(), table.device,
                            table.sms),
                ""};
    } catch (const Error& e) {
        return {"plan table", State::Broken, e.what(), "calls on a GPU fail with this"};
    }
}

}  // namespace

std::vector<Finding> diagnose(const Options& options) {
    std::vector<Finding> findings{
        {"cpu", State::Ok, fmt::format("{} threads", ThreadPool(options.cpu_threads).threads()), ""}};
    const std::vector<plan::DeviceSpec> gpus = look_at_gpus(options, findings);
    const int newest_cuda = newest_cuda_of(options);
    look_at_toolchain("nvrtc", jit::find_nvrtc(options, newest_cuda), {"FINEGEMM_NVRTC", options.nvrtc_path},
                      fmt::format("`pip install {}`, or set FINEGEMM_NVRTC; not needed for kernels of the pack",
                                  jit::nvrtc_package(newest_cuda)),
                      findings);
    look_at_toolchain("nvcc", jit::find_nvcc(options, newest_cuda), {"FINEGEMM_NVCC", options.nvcc_path}, "not needed",
                      findings);
    findings.push_back(look_at_cache(options));
    findings.push_back(look_at_pack(options, newest_cuda));
    if (!options.pack_path.empty()) findings.push_back(look_at_pack_file(options, newest_cuda));
    findings.push_back(look_at_plan_table(options, gpus));
    return findings;
}

std::vector<CacheEntry> list_cache(const Options& options) {
    std::vector<CacheEntry> entries;
    for (const auto& e : jit::DiskCache(options.cache_dir, options.cache_limit_bytes).list())
        entries.push_back({e.file, e.entry, e.bytes, e.age_seconds});
    return entries;
}

int64_t clear_cache(const Options& options) {
    return jit::DiskCache(options.cache_dir, options.cache_limit_bytes).clear();
}

size_t write_pack(const Options& options, const std::string& file, int newest_cuda, unsigned jobs,
                  const std::function<void(size_t, size_t, const std::string&)>& progress) {
    WholeFile out(file);
    const auto sources = pack_contents();
    out.content() << jit::build_pack(
        sources, *jit::find_toolchain(options, newest_cuda > 0 ? newest_cuda : newest_cuda_of(options)), jobs,
        progress);
    out.publish();
    return sources.size();
}

}  // namespace finegemm
