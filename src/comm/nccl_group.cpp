// Ranks that have a GPU each and exchange messages by NCCL. Layer comm.
#include <algorithm>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include <finegemm/error.h>

#include "comm/nccl.h"

namespace finegemm::nccl {

namespace {

using comm::Seconds;
using Clock = std::chrono::steady_clock;

constexpr cuda::Result kNotReady = 600;  // CUDA_ERROR_NOT_READY

class NcclGroup final : public comm::Group {
public:
    NcclGroup(std::shared_ptr<const Library> library, std::shared_ptr<const cuda::Driver> driver, const UniqueId& id,
              int rank, int ranks, int device, Seconds timeout)
        : Group(rank, ranks, {DeviceType::Cuda, device}, timeout),
          library_(std::move(library)),
          driver_(std::move(driver)),
          device_(driver_, device) {
        const cuda::CurrentDevice current(device_);
        constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING: it waits for no other stream
        driver_->check(driver_->api.StreamCreate(&aside_, kNonBlocking), "cuStreamCreate");
        library_->check(library_->api.CommInitRank(&comm_, ranks, id, rank), "ncclCommInitRank");
        connect();
    }
    ~NcclGroup() override {
        if (!driver_->process.is_this()) return;
        const cuda::CurrentDevice current(device_);
        if (comm_) static_cast<void>(library_->api.CommDestroy(comm_));
        static_cast<void>(driver_->api.StreamDestroy(aside_));
    }

    void all_to_all(const comm::AllToAll& exchange) override {
        driver_->check_process();
        const cuda::CurrentDevice current(device_);
        const std::scoped_lock lock(mutex_);
        check();
        arrivals_ = exchange.arrivals, experts_ = exchange.experts;
        library_->check(library_->api.GroupStart(), "ncclGroupStart", comm_);
        for (int r = 0; r < ranks(); ++r) {
            const auto& [data, bytes] = exchange.messages[static_cast<size_t>(r)];
            const auto& [place, place_bytes] = exchange.places[static_cast<size_t>(r)];
            if (bytes > 0)
                library_->check(library_->api.Send(data, bytes, kBytes, r, comm_, exchange.stream), "ncclSend", comm_);
            if (place_bytes > 0)
                library_->check(library_->api.Recv(place, place_bytes, kBytes, r, comm_, exchange.stream), "ncclRecv",
                                comm_);
        }
        library_->check(library_->api.GroupEnd(), "ncclGroupEnd", comm_);
    }

    void fetch(void* to, const void* from, size_t bytes, Stream stream) override {
        wait(stream);
        const cuda::CurrentDevice current(device_);
        copy(to, from, bytes, stream);
    }

    void wait(Stream stream) override {
        driver_->check_process();
        const cuda::CurrentDevice current(device_);
        const auto begin = Clock::now();
        constexpr auto kSpin = std::chrono::milliseconds(2);  // what takes longer may take 50 us more
        for (;;) {
            const cuda::Result result = driver_->api.StreamQuery(stream);
            if (result != kNotReady) return driver_->check(result, "cuStreamQuery");
            look_for_errors();
            const auto waited = Clock::now() - begin;
            if (waited > timeout()) end_and_throw(sentence());
            if (waited > kSpin) std::this_thread::sleep_for(std::chrono::microseconds(50));
            else std::this_thread::yield();
        }
    }

    void end(const std::string& reason) noexcept override {
        const std::scoped_lock lock(mutex_);
        if (!reason_.empty()) return;
        reason_ = reason;
        // Its kernels end, and what waits for them goes on.
        static_cast<void>(library_->api.CommAbort(comm_));
        comm_ = nullptr;
    }

private:
    void check() const {
        if (!reason_.empty()) throw Error(Errc::Peer, reason_);
    }
    [[noreturn]] void end_and_throw(const std::string& reason) {
        end(reason);
        throw Error(Errc::Peer, reason_);
    }
    /// NCCL connects ranks at their first message, and waits on the host meanwhile: no later call does, nor a graph.
    void connect() {
        const auto all = static_cast<size_t>(ranks());
        cuda::DevicePtr memory = 0;
        driver_->check(driver_->api.MemAlloc(&memory, 2 * all), "cuMemAlloc");
        std::vector<comm::Message> messages;
        std::vector<comm::Place> places;
        for (size_t r = 0; r < all; ++r) {
            messages.push_back({reinterpret_cast<const void*>(memory + r), 1});
            places.push_back({reinterpret_cast<void*>(memory + all + r), 1});
        }
        all_to_all({messages, places, aside_});
        wait(aside_);
        driver_->check(driver_->api.MemFree(memory), "cuMemFree");
    }
    void look_for_errors() {
        int state = kSuccess;
        {
            const std::scoped_lock lock(mutex_);
            check();
            library_->check(library_->api.CommGetAsyncError(comm_, &state), "ncclCommGetAsyncError", comm_);
        }
        if (state != kSuccess && state != kInProgress)
            end_and_throw(fmt::format("NCCL: {}; the group has ended, make another of the ranks that are left",
                                      library_->api.GetErrorString(state)));
    }
    void copy(void* to, const void* from, size_t bytes, void* stream) {
        driver_->check(driver_->api.MemcpyDtoHAsync(to, reinterpret_cast<cuda::DevicePtr>(from), bytes, stream),
                       "cuMemcpyDtoHAsync");
        driver_->check(driver_->api.StreamSynchronize(stream), "cuStreamSynchronize");
    }
    /// Whose message has not come, as far as that can be seen.
    std::string sentence() {
        std::vector<int> missing;
        for (int r = 0; arrivals_.words && r < ranks(); ++r) {
            uint32_t word = 0;
            copy(&word, static_cast<const uint8_t*>(arrivals_.words) + r * arrivals_.stride, sizeof word, aside_);
            if (word == arrivals_.missing && r != rank()) missing.push_back(r);
        }
        if (missing.empty())
            for (int r = 0; r < ranks(); ++r)
                if (r != rank()) missing.push_back(r);
        const bool known = arrivals_.words && missing.size() + 1 < static_cast<size_t>(ranks());
        return (known || ranks() == 2 ? "" : "one of ") + comm::sentence_of_missing(missing, experts_, timeout());
    }

    const std::shared_ptr<const Library> library_;
    const std::shared_ptr<const cuda::Driver> driver_;
    const cuda::Device device_;
    std::mutex mutex_;  // NCCL takes one call of a communicator at once
    Comm comm_ = nullptr;
    void* aside_ = nullptr;  // for what cannot wait for a stream of the caller's
    comm::Arrivals arrivals_;
    int64_t experts_ = 0;
    std::string reason_;  // why the group has ended
};

}  // namespace

std::unique_ptr<comm::Group> make_group(std::shared_ptr<const Library> library,
                                        std::shared_ptr<const cuda::Driver> driver, const UniqueId& id, int rank,
                                        int ranks, int device, Seconds timeout) {
    return std::make_unique<NcclGroup>(std::move(library), std::move(driver), id, rank, ranks, device, timeout);
}

}  // namespace finegemm::nccl
