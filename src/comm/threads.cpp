// Ranks that are threads of one process. Layer comm.
#include "comm/threads.h"

#include <condition_variable>
#include <cstring>
#include <mutex>

#include <fmt/format.h>

#include <finegemm/error.h>

namespace finegemm::comm {

namespace {

/// Where the threads of a group meet.
class Meeting {
public:
    explicit Meeting(int ranks) : here_(static_cast<size_t>(ranks)), messages_(static_cast<size_t>(ranks)) {}

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
    void end(const std::string& reason) {
        const std::scoped_lock lock(mutex_);
        end_with_lock(reason);
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

    std::mutex mutex_;
    std::condition_variable changed_;
    uint64_t generation_ = 0;  // how often all have come or left: a rank may be back before others have woken up
    size_t count_ = 0;
    std::vector<bool> here_;
    std::vector<std::span<const Message>> messages_;
    bool spoilt_ = false;  // the group had ended when all had come or left
    std::string reason_;   // why the group has ended
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
    void wait(Stream) override {}
    void end(const std::string& reason) noexcept override { meeting_->end(reason); }

private:
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
