// Words that ranks on the CPU leave in each other's memory. Layer comm.
#include "comm/flags.h"

#include <atomic>
#include <thread>

#include <finegemm/error.h>

namespace finegemm::comm {

namespace {

uint64_t seen(uint64_t& word) { return std::atomic_ref(word).load(std::memory_order_acquire); }

}  // namespace

void tell(uint64_t& word, uint64_t said) { std::atomic_ref(word).store(said, std::memory_order_release); }

void wait_for_words(Group& group, std::span<uint64_t> words, uint32_t generation, int64_t experts) {
    using Clock = std::chrono::steady_clock;
    constexpr auto kSpin = std::chrono::milliseconds(1);  // what takes longer may take 50 us more
    const auto begin = Clock::now();
    std::vector<int> missing(words.size());
    for (size_t r = 0; r < words.size(); ++r) missing[r] = static_cast<int>(r);
    for (;;) {
        std::erase_if(missing, [&](int r) { return has_come(seen(words[static_cast<size_t>(r)]), generation); });
        if (missing.empty()) return;
        group.check();
        const auto waited = Clock::now() - begin;
        if (waited > group.timeout()) break;
        if (waited > kSpin) std::this_thread::sleep_for(std::chrono::microseconds(50));
        else std::this_thread::yield();
    }
    group.end(sentence_of_missing(missing, experts, group.timeout()));
    group.check();
}

}  // namespace finegemm::comm
