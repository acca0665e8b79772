// Ranks that are threads of one process. Layer comm.
#include "comm/threads.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>

#include <fmt/format.h>

#include <finegemm/error.h>

namespace finegemm::comm {

namespace {

using Memory = std::shared_ptr<std::byte>;

/// Zeros, from a line of 256 bytes on, as a GPU's memory begins.
Memory memory_of(size_t bytes) {
    struct alignas(256) Line {
        std::byte first{}, others[255]{};
    };
    const auto lines = std::make_shared<Line[]>(bytes / sizeof(Line) + 1);
    return {lines, &lines[0].first};
}

/// Where the threads of a group meet.
class Meeting {
public:
    explicit Meeting(int ranks) : here_(static_cast<size_t>(ranks)), messages_(here_.size()), memory_(here_.size()) {}

    /// Returns when all ranks have come. Their messages can be read until this rank calls leave.
    void enter(int rank, std::span<const Message> messages, int64_t experts, Seconds timeout) {
        std::unique_lock lock(mutex_);
        check();
        const uint64_t generation = generation_;
        messages_[static_cast<size_t>(rank)] = messages;
        arrive(rank);
        const auto opened = [&] { return generation_ != generation || !reason_.empty(); };
        if (!changed_.wait_for(lock, timeout, opened)) end_with_lock(sentence_of_missing(missing(), experts, timeout));
        if (generation_ == generation) check();
    }
    /// Returns when all have left, who are all on their way: nobody reads this rank's messages any more.
    void leave(int rank) {
        std::unique_lock lock(mutex_);
        const uint64_t generation = generation_;
        arrive(rank);
        changed_.wait(lock, [&] { return generation_ != generation; });
        if (spoilt_) check();  // what happens from then on, a rank that leaves the group say, is of no account
    }
    const Message& message(int from, int to) const {
        return messages_[static_cast<size_t>(from)][static_cast<size_t>(to)];
    }
    void show(int rank, Memory memory, size_t bytes) {
        const std::scoped_lock lock(mutex_);
        memory_[static_cast<size_t>(rank)] = {std::move(memory), bytes};
    }
    /// What all have shown.
    std::vector<Memory> shown(size_t bytes) {
        const std::scoped_lock lock(mutex_);
        std::vector<Memory> all;
        for (const auto& [memory, its_bytes] : memory_) {
            if (its_bytes != bytes)
                end_with_lock(
                    fmt::format("memory: rank {} has {} bytes, another rank {}; all ranks pass the same shape",
                                all.size(), its_bytes, bytes));
            all.push_back(memory);
        }
        return all;
    }
    void end(const std::string& reason) {
        const std::scoped_lock lock(mutex_);
        end_with_lock(reason);
    }
    void check_now() const {
        const std::scoped_lock lock(mutex_);
        check();
    }

private:
    void check() const {
        if (!reason_.empty()) throw Error(Errc::Peer, reason_);
    }
    void arrive(int rank) {
        here_[static_cast<size_t>(rank)] = true;
        if (++count_ < here_.size()) return;
        count_ = 0;
        spoilt_ = !reason_.empty();
        here_.assign(here_.size(), false);
        ++generation_;
        changed_.notify_all();
    }
    void end_with_lock(const std::string& reason) {
        if (reason_.empty()) reason_ = reason;
        changed_.notify_all();
    }
    std::vector<int> missing() const {
        std::vector<int> ranks;
        for (size_t r = 0; r < here_.size(); ++r)
            if (!here_[r]) ranks.push_back(static_cast<int>(r));
        return ranks;
    }

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    uint64_t generation_ = 0;  // how often all have come or left: a rank may be back before others have woken up
    size_t count_ = 0;
    std::vector<bool> here_;
    std::vector<std::span<const Message>> messages_;
    std::vector<std::pair<Memory, size_t>> memory_;  // with its bytes
    bool spoilt_ = false;                            // the group had ended when all had come or left
    std::string reason_;                             // why the group has ended
};

/// The memory of all ranks is kept by each: one that waits no longer may leave while others still write.
class ThreadTable final : public PeerTable {
public:
    explicit ThreadTable(std::vector<Memory> all) : PeerTable(static_cast<int>(all.size())), all_(std::move(all)) {
        for (size_t r = 0; r < all_.size(); ++r) of_[r] = all_[r].get();
        whole_ = true;
    }

private:
    const std::vector<Memory> all_;
};

class ThreadGroup final : public Group {
public:
    ThreadGroup(int rank, int ranks, Seconds timeout, std::shared_ptr<Meeting> meeting)
        : Group(rank, ranks, {}, timeout), meeting_(std::move(meeting)) {}
    ~ThreadGroup() override {
        end(fmt::format("{} has left; the group has ended, make another of the ranks that are left",
                        name_of_rank(rank(), 0)));
    }

    void all_to_all(const AllToAll& exchange) override {
        meeting_->enter(rank(), exchange.messages, exchange.experts, timeout());
        for (int r = 0; r < ranks(); ++r) copy(r, exchange.places[static_cast<size_t>(r)]);
        meeting_->leave(rank());
    }
    void mark_missing(void* words, size_t bytes, Stream) override { std::memset(words, 0xff, bytes); }
    void fetch(void* to, const void* from, size_t bytes, Stream) override { std::memcpy(to, from, bytes); }
    void store(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
    std::unique_ptr<PeerTable> share(size_t bytes) override {
        meeting_->show(rank(), memory_of(bytes), bytes);
        meet();  // all have shown theirs
        std::vector<Memory> all = meeting_->shown(bytes);
        meet();  // all have taken what was shown
        meeting_->show(rank(), nullptr, 0);
        return std::make_unique<ThreadTable>(std::move(all));
    }
    uint64_t* missing(int64_t) override { return nullptr; }
    void check() override { meeting_->check_now(); }
    void wait(Stream) override {}
    void end(const std::string& reason) noexcept override { meeting_->end(reason); }

private:
    void meet() {
        meeting_->enter(rank(), {}, 0, timeout());
        meeting_->leave(rank());
    }
    void copy(int from, const Place& place) {
        const Message& message = meeting_->message(from, rank());
        if (message.bytes != place.bytes)
            return end(
                fmt::format("rank {} sends {} bytes, but rank {} has place for {}; all ranks pass the same "
                            "capacity, shapes of weights and number of experts",
                            from, message.bytes, rank(), place.bytes));
        if (place.bytes > 0) std::memcpy(place.data, message.data, place.bytes);
    }

    const std::shared_ptr<Meeting> meeting_;
};

}  // namespace

std::vector<std::unique_ptr<Group>> groups_of_threads(int ranks, Seconds timeout) {
    const auto meeting = std::make_shared<Meeting>(ranks);
    std::vector<std::unique_ptr<Group>> groups;
    for (int r = 0; r < ranks; ++r) groups.push_back(std::make_unique<ThreadGroup>(r, ranks, timeout, meeting));
    return groups;
}

}  // namespace finegemm::comm
