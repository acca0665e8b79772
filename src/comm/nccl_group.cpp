// Ranks that have a GPU each and exchange messages by NCCL. Layer comm.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include <finegemm/error.h>
#include <finegemm/routing/peers.h>

#include "comm/cuda_table.h"
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
        try {
            make(id);
        } catch (...) {
            release();
            throw;
        }
    }
    ~NcclGroup() override {
        if (!driver_->process.is_this()) return;
        const cuda::CurrentDevice current(device_);
        release();
    }

    void all_to_all(const comm::AllToAll& exchange) override {
        driver_->check_process();
        const cuda::CurrentDevice current(device_);
        try {
            send_and_receive(exchange);
        } catch (const Error& e) {
            end(e.what());  // some may have been queued
            throw;
        }
        int capturing = 0;
        driver_->check(driver_->api.StreamIsCapturing(exchange.stream, &capturing), "cuStreamIsCapturing");
        if (capturing == 0) driver_->check(driver_->api.EventRecord(last_, exchange.stream), "cuEventRecord");
    }

    void mark_missing(void* words, size_t bytes, Stream stream) override {
        const cuda::CurrentDevice current(device_);
        driver_->check(driver_->api.MemsetD8Async(reinterpret_cast<cuda::DevicePtr>(words), 0xff, bytes, stream),
                       "cuMemsetD8Async");
    }

    void fetch(void* to, const void* from, size_t bytes, Stream stream) override {
        wait(stream);
        const cuda::CurrentDevice current(device_);
        copy(to, from, bytes, stream);
    }

    void store(void* to, const void* from, size_t bytes) override {
        const cuda::CurrentDevice current(device_);
        copy_to_device(reinterpret_cast<cuda::DevicePtr>(to), from, bytes);
    }

    std::unique_ptr<comm::PeerTable> share(size_t bytes) override {
        const cuda::CurrentDevice current(device_);
        auto table = std::make_unique<comm::CudaTable>(driver_, Group::device().index, rank(), ranks(), bytes, aside_);
        table->reach(gather(table->address()));
        table->agree(gather(uint8_t{table->reaches_all()}));
        return table;
    }

    uint64_t* missing(int64_t experts) override {
        const std::scoped_lock lock(mutex_);
        experts_ = experts, kernels_wait_ = true;
        return reinterpret_cast<uint64_t*>(missing_);
    }

    void check() override {
        const std::scoped_lock lock(mutex_);
        check_with_lock();
    }

    void wait(Stream stream) override {
        driver_->check_process();
        const cuda::CurrentDevice current(device_);
        // Kernels that wait for other ranks end by themselves: of a call one there and one back.
        const Seconds limit = kernels_wait_ ? 2 * timeout() + Seconds(1) : timeout();
        const cuda::Result result = poll(limit, [&] {
            const cuda::Result now = driver_->api.StreamQuery(stream);
            if (now == kNotReady) look_for_errors();
            return now;
        });
        if (result == kNotReady) end_and_throw(sentence());
        driver_->check(result, "cuStreamQuery");
        if (kernels_wait_) look_for_missing();
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
    void make(const UniqueId& id) {
        constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING: it waits for no other stream
        driver_->check(driver_->api.StreamCreate(&aside_, kNonBlocking), "cuStreamCreate");
        constexpr unsigned kNoTiming = 2;  // CU_EVENT_DISABLE_TIMING
        driver_->check(driver_->api.EventCreate(&last_, kNoTiming), "cuEventCreate");
        constexpr uint64_t kNobody = 0;
        driver_->check(driver_->api.MemAlloc(&missing_, sizeof kNobody), "cuMemAlloc");
        copy_to_device(missing_, &kNobody, sizeof kNobody);
        library_->check(library_->api.CommInitRank(&comm_, ranks(), id, rank()), "ncclCommInitRank");
        connect();
    }
    /// What still waits for a rank that is lost would never end.
    void release() noexcept {
        if (comm_)
            static_cast<void>(is_idle_in_time() ? library_->api.CommDestroy(comm_) : library_->api.CommAbort(comm_));
        if (missing_) static_cast<void>(driver_->api.MemFree(missing_));
        if (last_) static_cast<void>(driver_->api.EventDestroy(last_));
        if (aside_) static_cast<void>(driver_->api.StreamDestroy(aside_));
    }
    void check_with_lock() const {
        if (!reason_.empty()) throw Error(Errc::Peer, reason_);
    }
    /// What a query says when it is ready, or when the time is over.
    template <typename Query>
    cuda::Result poll(Seconds limit, const Query& query) const {
        constexpr auto kSpin = std::chrono::milliseconds(2);  // what takes longer may take 50 us more
        for (const auto begin = Clock::now();;) {
            const cuda::Result result = query();
            const auto waited = Clock::now() - begin;
            if (result != kNotReady || waited > limit) return result;
            if (waited > kSpin) std::this_thread::sleep_for(std::chrono::microseconds(50));
            else std::this_thread::yield();
        }
    }
    bool is_idle_in_time() const {
        return poll(timeout(), [&] { return driver_->api.EventQuery(last_); }) != kNotReady;
    }
    [[noreturn]] void end_and_throw(const std::string& reason) {
        end(reason);
        throw Error(Errc::Peer, reason_);
    }
    void send_and_receive(const comm::AllToAll& exchange) {
        const std::scoped_lock lock(mutex_);
        check_with_lock();
        arrivals_ = exchange.arrivals, experts_ = exchange.experts;
        library_->check(library_->api.GroupStart(), "ncclGroupStart", comm_);
        int result = kSuccess;  // a group that has begun must end, whatever is said in between
        for (size_t r = 0; r < exchange.messages.size(); ++r) {
            const auto& [data, bytes] = exchange.messages[r];
            const auto& [place, place_bytes] = exchange.places[r];
            const auto peer = static_cast<int>(r);
            if (bytes > 0 && result == kSuccess)
                result = library_->api.Send(data, bytes, kBytes, peer, comm_, exchange.stream);
            if (place_bytes > 0 && result == kSuccess)
                result = library_->api.Recv(place, place_bytes, kBytes, peer, comm_, exchange.stream);
        }
        const int ended = library_->api.GroupEnd();
        library_->check(result, "ncclSend or ncclRecv", comm_);
        library_->check(ended, "ncclGroupEnd", comm_);
    }
    /// NCCL connects ranks at their first message, and waits on the host meanwhile: no later call does, nor a graph.
    void connect() { static_cast<void>(gather(uint8_t{0})); }
    /// What each rank has said.
    template <typename T>
    std::vector<T> gather(const T& mine) {
        std::vector<T> all(static_cast<size_t>(ranks()));
        const Staging staging(*driver_, (all.size() + 1) * sizeof mine);
        const auto at = [&](size_t i) { return reinterpret_cast<void*>(staging.memory + i * sizeof mine); };
        copy_to_device(staging.memory, &mine, sizeof mine);
        const std::vector<comm::Message> messages(all.size(), {at(0), sizeof mine});
        std::vector<comm::Place> places;
        for (size_t r = 0; r < all.size(); ++r) places.push_back({at(1 + r), sizeof mine});
        all_to_all({messages, places, aside_});
        wait(aside_);
        copy(all.data(), at(1), all.size() * sizeof mine, aside_);
        return all;
    }
    /// Memory of the device for what ranks tell each other.
    struct Staging {
        Staging(const cuda::Driver& of, size_t bytes) : driver(of) {
            driver.check(driver.api.MemAlloc(&memory, bytes), "cuMemAlloc");
        }
        ~Staging() { static_cast<void>(driver.api.MemFree(memory)); }
        Staging(const Staging&) = delete;
        Staging& operator=(const Staging&) = delete;
        const cuda::Driver& driver;
        cuda::DevicePtr memory = 0;
    };
    void copy_to_device(cuda::DevicePtr to, const void* from, size_t bytes) {
        driver_->check(driver_->api.MemcpyHtoDAsync(to, from, bytes, aside_), "cuMemcpyHtoDAsync");
        driver_->check(driver_->api.StreamSynchronize(aside_), "cuStreamSynchronize");
    }
    void look_for_errors() {
        int state = kSuccess;
        {
            const std::scoped_lock lock(mutex_);
            check_with_lock();
            library_->check(library_->api.CommGetAsyncError(comm_, &state), "ncclCommGetAsyncError", comm_);
        }
        if (state != kSuccess && state != kInProgress)
            end_and_throw(fmt::format("NCCL: {}; the group has ended, make another of the ranks that are left",
                                      library_->api.GetErrorString(state)));
    }
    void look_for_missing() {
        uint64_t word = 0;
        copy(&word, reinterpret_cast<const void*>(missing_), sizeof word, aside_);
        std::vector<int> missing;
        for (int r = 0; r < std::min(ranks(), static_cast<int>(kMostPeers)); ++r)
            if (word >> r & 1) missing.push_back(r);
        if (!missing.empty()) end_and_throw(comm::sentence_of_missing(missing, experts_, timeout()));
    }
    void copy(void* to, const void* from, size_t bytes, void* stream) {
        driver_->check(driver_->api.MemcpyDtoHAsync(to, reinterpret_cast<cuda::DevicePtr>(from), bytes, stream),
                       "cuMemcpyDtoHAsync");
        driver_->check(driver_->api.StreamSynchronize(stream), "cuStreamSynchronize");
    }
    /// Other ranks whose word says that their message has not come. None where memory that the library took cannot be
    /// read any more, as it has been given back behind the call.
    std::vector<int> seen_missing() {
        std::vector<int> missing;
        for (int r = 0; arrivals_.words && r < ranks(); ++r) {
            uint32_t word = 0;
            const auto from =
                reinterpret_cast<cuda::DevicePtr>(arrivals_.words) + static_cast<cuda::DevicePtr>(r * arrivals_.stride);
            if (driver_->api.MemcpyDtoHAsync(&word, from, sizeof word, aside_) != 0) return {};
            driver_->check(driver_->api.StreamSynchronize(aside_), "cuStreamSynchronize");
            if (word == arrivals_.missing && r != rank()) missing.push_back(r);
        }
        return missing;
    }
    std::string sentence() { return comm::sentence_of_lost(seen_missing(), rank(), ranks(), experts_, timeout()); }

    const std::shared_ptr<const Library> library_;
    const std::shared_ptr<const cuda::Driver> driver_;
    const cuda::Device device_;
    std::mutex mutex_;  // NCCL takes one call of a communicator at once
    Comm comm_ = nullptr;
    void* last_ = nullptr;         // event behind the last messages
    void* aside_ = nullptr;        // for what cannot wait for a stream of the caller's
    cuda::DevicePtr missing_ = 0;  // the word of `missing`
    std::atomic<bool> kernels_wait_ = false;
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
