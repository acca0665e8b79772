// Ranks that exchange messages, whatever carries these. Layer comm.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <finegemm/tensor.h>

namespace finegemm::comm {

using Seconds = std::chrono::duration<double>;

/// What is sent to a rank, and where that of a rank goes.
struct Message {
    const void* data;
    size_t bytes;
};
struct Place {
    void* data;
    size_t bytes;
};

/// A word for each rank whose message is awaited: `missing` until it comes.
struct Arrivals {
    const void* words = nullptr;  // null: not known
    int64_t stride = 0;           // bytes
    uint32_t missing = ~0u;
};

struct AllToAll {
    std::span<const Message> messages;  // one for each rank
    std::span<const Place> places;      // likewise
    Stream stream = nullptr;
    int64_t experts = 0;  // that each rank has, for messages of errors; 0: these name ranks alone
    Arrivals arrivals = {};
};

/// Memory of each rank, as this one reaches it. Its own, zero at first, lasts as long as this.
class PeerTable {
public:
    virtual ~PeerTable() = default;
    PeerTable(const PeerTable&) = delete;
    PeerTable& operator=(const PeerTable&) = delete;

    void* of(int rank) const { return of_[static_cast<size_t>(rank)]; }
    /// Whether all ranks reach that of all.
    bool is_whole() const { return whole_; }

protected:
    explicit PeerTable(int ranks) : of_(static_cast<size_t>(ranks)) {}
    std::vector<void*> of_;  // null: not reached
    bool whole_ = false;
};

/// One rank's end of it. All ranks make the same calls in the same order. A group in which a rank does not come has
/// ended: each call throws Error(Peer) with the first reason, here and on the ranks that are left.
class Group {
public:
    Group(int rank, int ranks, Device device, Seconds timeout)
        : rank_(rank), ranks_(ranks), device_(device), timeout_(timeout) {}
    virtual ~Group() = default;
    Group(const Group&) = delete;
    Group& operator=(const Group&) = delete;

    int rank() const { return rank_; }
    int ranks() const { return ranks_; }
    Device device() const { return device_; }
    Seconds timeout() const { return timeout_; }

    /// Message r goes to rank r, place r takes that of rank r: its bytes are known on both sides. On a GPU it is
    /// queued.
    virtual void all_to_all(const AllToAll& exchange) = 0;
    /// Makes words of the device's memory `missing`, all of whose bits are set.
    virtual void mark_missing(void* words, size_t bytes, Stream stream) = 0;
    /// Copies memory of the device to the host behind what is queued, and waits for it.
    virtual void fetch(void* to, const void* from, size_t bytes, Stream stream) = 0;
    /// Copies to memory of the device, and waits for it.
    virtual void store(void* to, const void* from, size_t bytes) = 0;
    /// Memory that ranks reach of each other: returns when all have called it with as many bytes, at most a number of
    /// ranks at once that a word has bits.
    virtual std::unique_ptr<PeerTable> share(size_t bytes) = 0;
    /// A word in which kernels set a bit for each rank that they miss, with so many experts each: `wait` and `check`
    /// look at it. Null on the CPU.
    virtual uint64_t* missing(int64_t experts) = 0;
    /// Throws Error(Peer) where the group has ended.
    virtual void check() = 0;
    /// Returns when what is queued has been done.
    virtual void wait(Stream stream) = 0;
    /// Ends the group for all ranks that can be told.
    virtual void end(const std::string& reason) noexcept = 0;

private:
    const int rank_, ranks_;
    const Device device_;
    const Seconds timeout_;
};

/// "rank 2 (experts 64 to 95)"
std::string name_of_rank(int rank, int64_t experts);
/// "rank 2 and rank 3 have not come within 5 s"
std::string sentence_of_missing(std::span<const int> ranks, int64_t experts, Seconds timeout);
/// What `rank` of `ranks` says that waits in vain; `seen`: whose messages have not come. Of more than two ranks one
/// that is lost may hold up the messages of all others: where these have all not come, or none can be seen, it is one
/// of them.
std::string sentence_of_lost(std::span<const int> seen, int rank, int ranks, int64_t experts, Seconds timeout);

}  // namespace finegemm::comm
