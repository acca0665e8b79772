// A GPU for front ends. Layer api.
#include "workbench/gpu.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "cuda/device.h"
#include "engine/device_spec.h"
#include "plan/table.h"

namespace finegemm {

namespace {

using cuda::DeviceAttribute;
using cuda::DevicePtr;

class CudaGpu final : public Gpu {
public:
    CudaGpu(const Options& options, int index)
        : batch_invariant_(options.batch_invariant),
          driver_(cuda::Driver::open(options.driver_path)),
          device_(driver_, index),
          spec_(spec_of(device_.facts())),
          table_(plan::load_table(options.plan_table, spec_, options.trusted_dir)) {}
    ~CudaGpu() override {
        release();
        const cuda::CurrentDevice current(device_);
        for (void* e : events_) driver_->api.EventDestroy(e);
    }

    std::string name() const override { return device_.facts().name; }
    std::string pci_bus_id() const override {
        return fmt::format("{:08x}:{:02x}:{:02x}.0", attribute(DeviceAttribute::PciDomain),
                           attribute(DeviceAttribute::PciBus), attribute(DeviceAttribute::PciDevice));
    }
    std::string cuda_version() const override {
        return fmt::format("{}.{}", driver_->version / 1000, driver_->version % 1000 / 10);
    }
    Device device() const override { return {DeviceType::Cuda, device_.facts().index}; }
    const plan::DeviceSpec& spec() const override { return spec_; }
    std::string kernel_for(const GemmShape& shape) const override {
        GemmShape asked = shape;
        asked.batch_invariant |= batch_invariant_;
        return plan::name_of(plan::choose(plan::problem_of(asked), spec_, &table_).config);
    }

    void* allocate(size_t bytes) override {
        const cuda::CurrentDevice current(device_);
        DevicePtr p = 0;
        driver_->check(driver_->api.MemAlloc(&p, std::max<size_t>(bytes, 16)), "cuMemAlloc");
        allocated_.push_back(p);
        return reinterpret_cast<void*>(p);
    }
    void release() override {
        const cuda::CurrentDevice current(device_);
        for (const DevicePtr p : allocated_) driver_->api.MemFree(p);
        allocated_.clear();
        flush_ = nullptr;
    }
    void upload(void* to, const void* from, size_t bytes) override {
        const cuda::CurrentDevice current(device_);
        driver_->check(driver_->api.MemcpyHtoDAsync(reinterpret_cast<DevicePtr>(to), from, bytes, nullptr),
                       "cuMemcpyHtoDAsync");
        driver_->check(driver_->api.StreamSynchronize(nullptr), "cuStreamSynchronize");
    }
    void download(void* to, const void* from, size_t bytes) override {
        const cuda::CurrentDevice current(device_);
        driver_->check(driver_->api.MemcpyDtoHAsync(to, reinterpret_cast<DevicePtr>(from), bytes, nullptr),
                       "cuMemcpyDtoHAsync");
        driver_->check(driver_->api.StreamSynchronize(nullptr), "cuStreamSynchronize");
    }

    void copy(void* to, const void* from, size_t bytes) override {
        const cuda::CurrentDevice current(device_);
        driver_->check(driver_->api.MemcpyDtoDAsync(reinterpret_cast<DevicePtr>(to), reinterpret_cast<DevicePtr>(from),
                                                    bytes, nullptr),
                       "cuMemcpyDtoDAsync");
    }
    void fill(void* to, unsigned char value, size_t bytes) override {
        const cuda::CurrentDevice current(device_);
        driver_->check(driver_->api.MemsetD8Async(reinterpret_cast<DevicePtr>(to), value, bytes, nullptr),
                       "cuMemsetD8Async");
    }
    void run(const std::function<void()>& work) override {
        const cuda::CurrentDevice current(device_);
        work();
        driver_->check(driver_->api.StreamSynchronize(nullptr), "cuStreamSynchronize");
    }

    std::vector<std::vector<double>> times(int repeats, std::span<const std::function<void()>> calls) override {
        const size_t flush_bytes = 4ull * device_.facts().l2_bytes;
        if (!flush_) flush_ = allocate(flush_bytes);
        const cuda::CurrentDevice current(device_);
        while (events_.size() < 2) {
            events_.push_back(nullptr);
            driver_->check(driver_->api.EventCreate(&events_.back(), 0), "cuEventCreate");
        }
        std::vector<std::vector<double>> times(calls.size());
        for (int round = 0; round < repeats + 1; ++round) {
            for (size_t i = 0; i < calls.size(); ++i) {
                fill(flush_, static_cast<unsigned char>(round), flush_bytes);
                const double us = time_once(calls[i]);
                if (round > 0) times[i].push_back(us);  // the first one loads the kernel
            }
        }
        return times;
    }

private:
    int attribute(DeviceAttribute which) const {
        int value = 0;
        driver_->check(driver_->api.DeviceGetAttribute(&value, static_cast<int>(which), device_.handle()),
                       "cuDeviceGetAttribute");
        return value;
    }

    double time_once(const std::function<void()>& call) const {
        driver_->check(driver_->api.EventRecord(events_[0], nullptr), "cuEventRecord");
        call();
        driver_->check(driver_->api.EventRecord(events_[1], nullptr), "cuEventRecord");
        driver_->check(driver_->api.EventSynchronize(events_[1]), "cuEventSynchronize");
        float milliseconds = 0;
        driver_->check(driver_->api.EventElapsedTime(&milliseconds, events_[0], events_[1]), "cuEventElapsedTime");
        return milliseconds * 1e3;
    }

    bool batch_invariant_;
    std::shared_ptr<const cuda::Driver> driver_;
    cuda::Device device_;
    plan::DeviceSpec spec_;
    plan::PlanTable table_;
    std::vector<DevicePtr> allocated_;
    std::vector<void*> events_;
    void* flush_ = nullptr;
};

}  // namespace

std::vector<double> Gpu::time(int repeats, std::span<const std::function<void()>> calls) {
    std::vector<double> medians;
    for (std::vector<double>& t : times(repeats, calls)) medians.push_back(median_of(std::move(t)));
    return medians;
}

double median_of(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::ranges::nth_element(values, middle);
    return *middle;
}

std::unique_ptr<Gpu> Gpu::open(const Options& options, int index) { return std::make_unique<CudaGpu>(options, index); }

}  // namespace finegemm
