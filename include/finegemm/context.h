// Context: owns devices' state, kernels, caches and options. Nothing in the library is global. Layer: public.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <finegemm/export.h>
#include <finegemm/tensor.h>

namespace finegemm {

/// Arithmetic of the CPU backend's GEMM.
enum class Numerics : int32_t {
    Fast = 0,    ///< float products and sums, vectorised; scales applied per 128-block
    Exact = 1,   ///< double accumulation: the oracle
    Hopper = 2,  ///< bit for bit what the SM90 kernel computes (docs/numerics.md)
};

enum class Compiler : int32_t { Nvrtc = 0, Nvcc = 1 };

/// A call that was made, as a log is told of it.
struct LoggedCall {
    std::string line;    ///< of a product what `finegemm run`, bench and tune take: "gemm 64x2112x7168 e4m3:row128 ..."
    std::string kernel;  ///< on a GPU by the name that explain gives it; empty for other operations
    std::string origin;  ///< of the kernel: pack, disk or compiled; empty on the CPU
    Device device;       ///< where it runs
    double host_us = 0;  ///< what the call took the host: on a GPU to launch it, on the CPU to compute it
};

/// Told of each call that did not fail, on the thread of the call, which returns when the log does. Several threads may
/// call it at once. What it throws leaves the call, whose work goes on.
using Log = std::function<void(const LoggedCall&)>;

/// Options of a Context, each with its environment variable; one that is set to nothing counts as not set.
struct FINEGEMM_API Options {
    std::string cache_dir;                     ///< FINEGEMM_CACHE_DIR, else $XDG_CACHE_HOME/finegemm, else
                                               ///< ~/.cache/finegemm; empty: no disk cache
    int64_t cache_limit_bytes = 256ll << 20;   ///< FINEGEMM_CACHE_LIMIT, in bytes; 0: no disk cache
    std::string driver_path = "libcuda.so.1";  ///< FINEGEMM_DRIVER: the CUDA driver's library
    std::string nvrtc_path;                    ///< FINEGEMM_NVRTC: a libnvrtc to load first; empty: search
    std::string nvcc_path;                     ///< FINEGEMM_NVCC: an nvcc to try first; empty: search
    std::string cuda_home;                     ///< CUDA_HOME or CUDA_PATH: a toolkit, searched for both compilers
    std::string python_prefix;                 ///< VIRTUAL_ENV: a Python environment, searched for NVRTC
    Compiler compiler = Compiler::Nvrtc;       ///< FINEGEMM_COMPILER=nvrtc|nvcc
    std::string trusted_dir;                   ///< FINEGEMM_TRUSTED_DIR: caches and plan tables in this folder are used
                                               ///< whoever owns them, a cluster's say; empty: only what belongs to the
                                               ///< user or root and nobody else can write to
    bool use_pack = true;                      ///< FINEGEMM_PACK=0 turns the embedded kernels off
    std::string pack_path;                     ///< FINEGEMM_PACK=FILE: kernels of `finegemm pack`, which go before the
                                               ///< embedded ones; empty: none
    std::string dump_dir;                      ///< FINEGEMM_DUMP: write generated sources and cubins here
    int32_t cpu_threads = 0;                   ///< FINEGEMM_CPU_THREADS, up to 4096; 0: as many as
                                               ///< the process may use: affinity mask, control group
    bool check_values = false;                 ///< FINEGEMM_CHECK=1: look at scale values too, before each GEMM
    bool batch_invariant = false;              ///< FINEGEMM_BATCH_INVARIANT=1: the bits of a row of D depend on
                                               ///< that row of A and on B only (docs/numerics.md)
    std::string plan_table;                    ///< FINEGEMM_PLAN_TABLE: measured choices of kernels, a file of
                                               ///< `finegemm tune`, read when a GPU is first used; empty: none
    std::string nvtx_path;                     ///< NVTX_INJECTION64_PATH, which profilers set: the library that ranges
                                               ///< of NVTX around calls go to; a process has one; empty: none
    Log log;                                   ///< no variable: the library writes nothing by itself

    /// The only reader of environment variables. Throws Error(InvalidArgument) for a value that it cannot read.
    static Options from_environment();
};

/// Called now and then on the thread of a call that takes long: about every 50 ms on the CPU, with the share of the
/// work that has been begun, and on a GPU with 0 while a compiler makes the kernel, which goes on where the call ends.
using Poll = std::function<void(double share)>;

struct ContextState;  // defined by the api layer

/// Everything that calls share: options, compiled kernels, threads, devices. Any number of threads may use one at once.
/// Making one is cheap: a device is looked for when a call first needs it.
/// Before it goes, calls that use it must have returned and work that they queued on a GPU must be done.
/// One that was moved from can only be assigned to or destroyed.
/// A child of fork may destroy those that it inherits, and use them and new ones on the CPU, whatever other threads of
/// the parent were doing. On a GPU they are Error(Unsupported) there, as CUDA does not work in it.
class FINEGEMM_API Context {
public:
    /// Throws Error(InvalidArgument) for an option out of range.
    explicit Context(Options options = Options::from_environment());
    ~Context();
    Context(Context&&) noexcept;
    Context& operator=(Context&&) noexcept;

    const Options& options() const;
    ContextState& state() const { return *state_; }

private:
    std::unique_ptr<ContextState> state_;
};

}  // namespace finegemm
