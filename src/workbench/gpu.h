// A GPU for front ends: memory, copies, timing. Layer api.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <finegemm/context.h>
#include <finegemm/gemm.h>

#include "plan/plan.h"

namespace finegemm {

class Gpu {
public:
    /// Throws Error(Unsupported) when there is no driver or no such GPU.
    static std::unique_ptr<Gpu> open(const Options& options, int index);
    virtual ~Gpu() = default;

    virtual std::string name() const = 0;
    /// "00000000:1b:00.0"
    virtual std::string pci_bus_id() const = 0;
    /// The CUDA version that the driver is for: "13.0".
    virtual std::string cuda_version() const = 0;
    virtual Device device() const = 0;
    /// The GPU's facts for the planner.
    virtual const plan::DeviceSpec& spec() const = 0;

    /// The name of the kernel that the planner takes here.
    virtual std::string kernel_for(const GemmShape& shape) const = 0;

    /// Memory on the device, until release() or the Gpu's end.
    virtual void* allocate(size_t bytes) = 0;
    /// Frees all that was allocated.
    virtual void release() = 0;
    // On the default stream, each waits until it is done.
    virtual void upload(void* to, const void* from, size_t bytes) = 0;
    virtual void download(void* to, const void* from, size_t bytes) = 0;
    // Copies and fills are queued on the default stream.
    virtual void copy(void* to, const void* from, size_t bytes) = 0;
    virtual void fill(void* to, unsigned char value, size_t bytes) = 0;
    /// Calls `work` with this GPU's context current, for libraries that take the current one, and waits for what it
    /// queued on the default stream.
    virtual void run(const std::function<void()>& work) = 0;

    /// All times of each of `calls` in microseconds, between events of the default stream, with the L2 cache emptied
    /// before each. They run in turn, so that the drift of clocks and temperature hits all alike: `repeats` rounds, in
    /// each of them every call once. One more round goes before them.
    virtual std::vector<std::vector<double>> times(int repeats, std::span<const std::function<void()>> calls) = 0;
    /// The medians of those.
    std::vector<double> time(int repeats, std::span<const std::function<void()>> calls);
    double time(int repeats, const std::function<void()>& call) { return time(repeats, {&call, 1})[0]; }
};

/// The value that half of `values`, which are not empty, are below.
double median_of(std::vector<double> values);

}  // namespace finegemm
