// A machine for kernels, on the host: it runs their text as fibers, a cluster at a time, in an order that a seed
// chooses. What is asynchronous on a GPU happens late here, at any step, so that a wait that is missing shows as wrong
// bits or as an error; so do barriers that nobody completes. Layer tests.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/host_kernel/copies.h"
#include "support/host_kernel/fiber_stacks.h"
#include "support/host_kernel/meetings.h"

namespace finegemm::host_kernel {

struct Index {
    uint32_t x = 0;
};
inline Index thread, block, grid;

inline constexpr uint32_t kSharedBytes = 232448, kMostCtas = 16;  // of a cluster, or of ranks that wait for each other
alignas(1024) inline uint8_t shared[kMostCtas][kSharedBytes + 1024 - kSharedBytes % 1024];

class Machine {
public:
    /// `threads`: of a CTA, a multiple of 32 where there are several CTAs.
    Machine(uint32_t threads, uint32_t seed, uint32_t ctas = 1, bool starves = false)
        : random_(seed),
          starves_(starves),
          threads_(threads),
          ctas_(ctas),
          fibers_(threads * ctas),
          warps_((threads * ctas + 31) / 32) {
        for (Fiber& fiber : fibers_) {
            fiber.memory.reset(new uint8_t[kStack]);
            fiber.stack = {fiber.memory.get(), kStack};
        }
        for (Warp& warp : warps_) warp.lanes.expected = 32;
    }

    /// Runs a cluster, whose first CTA this is. Throws std::runtime_error if its threads wait for what never comes, or
    /// do what is not allowed.
    void run(const std::function<void()>& kernel, uint32_t first_cta) {
        kernel_ = &kernel;
        start();
        for (uint32_t left = static_cast<uint32_t>(fibers_.size()); left > 0;) {
            if (!pending_.empty() && !starves_ && chance(4)) happen(random_() % kLandingTakes > 0);
            Fiber* const next = runnable();
            if (!next) {
                if (pending_.empty()) throw std::runtime_error("nobody goes on: " + waiting());
                happen();
                continue;
            }
            current_ = static_cast<uint32_t>(next - fibers_.data());
            thread.x = current_ % threads_, block.x = first_cta + cta();
            stack_.leave_for(next->stack);
            in_fiber_ = true;
            swapcontext(&scheduler_, &next->context);
            in_fiber_ = false;
            stack_.come_from(next->stack);
            if (failure_) throw std::runtime_error("thread " + std::to_string(current_) + ": " + failure_);
            left -= next->done ? 1 : 0;
        }
        while (!pending_.empty()) happen();
        for (const Mbarrier& barrier : mbarriers_)
            if (barrier.bytes != 0) throw std::runtime_error("bytes that were announced have not come");
    }

    bool chance(uint32_t of) { return random_() % of == 0; }

    /// Lets others run while *watched & mask is `value`.
    void wait_while(const uint32_t& watched, uint32_t mask, uint32_t value, const char* what) {
        Fiber& fiber = fibers_[current_];
        fiber.watched = &watched, fiber.mask = mask, fiber.value = value, fiber.what = what;
        do switch_away();
        while ((watched & mask) == value);
        fiber.watched = nullptr;
    }
    /// Lets others run; now and then.
    void let_others_run() { switch_away(); }
    void pause() {
        if (chance(16)) switch_away();
    }
    /// Ends the run, from a fiber or from what happens later.
    [[noreturn]] void fail(const char* what) {  // no string, whose memory an abandoned fiber would keep
        if (!in_fiber_) throw std::runtime_error(what);
        failure_ = what;
        switch_away();
        std::abort();
    }

    void meet(Meeting& meeting, uint32_t threads, bool waits, const char* what) {
        if (meeting.expected == 0) meeting.expected = threads;
        if (meeting.expected != threads) fail("a barrier is used by different numbers of threads");
        const uint32_t round = meeting.round;
        if (++meeting.come == threads) {
            meeting.come = 0;
            ++meeting.round;
        } else if (waits) {
            wait_while(meeting.round, ~0u, round, what);
        }
    }
    /// Shows the lanes of the warp a value; what all have shown.
    const uint32_t* show(uint32_t value) {
        Warp& warp = warps_[current_ / 32];
        uint32_t* const values = warp.values[warp.lanes.round % 2];
        values[current_ % 32] = value;
        meet(warp.lanes, 32, true, "the lanes of its warp");
        return values;
    }
    void named_barrier(uint32_t id, uint32_t threads, bool waits) {
        meet(named_[cta() * kNamed + id], threads, waits, "a barrier");
    }
    void all_threads() { named_barrier(0, threads_, true); }
    void arrive_at_cluster() { meet(cluster_, static_cast<uint32_t>(fibers_.size()), false, ""); }
    void wait_for_cluster() {
        const uint32_t round = fibers_[current_].cluster_rounds++;
        if (cluster_.round == round) wait_while(cluster_.round, ~0u, round, "its cluster");
    }

    Mbarrier& mbarrier(uint32_t address) { return mbarrier_of(cta(), address); }
    Mbarrier& mbarrier_of(uint32_t cta, uint32_t address) {
        if (address % 8 != 0 || address >= kSharedBytes) fail("no mbarrier can lie there");
        return mbarriers_[(cta * kSharedBytes + address) / 8];
    }
    /// The shared memory of a CTA of the cluster.
    uint8_t* shared_of(uint32_t cta) {
        for (uint32_t i = 0; i < threads_; ++i)
            if (!fibers_[cta * threads_ + i].done) return shared[cta];
        fail("the CTA whose memory it writes to has ended");
    }
    void arrive(Mbarrier& barrier, int64_t times, int64_t bytes) {
        if (barrier.expected == 0) fail("it arrives at an mbarrier that has not been made");
        if (barrier.pending < times) fail("it arrives once too often");
        barrier.pending -= times;
        barrier.bytes += bytes;
        complete(barrier);
    }
    void come(Mbarrier& barrier, int64_t bytes) { barrier.bytes -= bytes, complete(barrier); }

    /// Happens later; or at once, for what may be either.
    void later(std::function<void()> what) { pending_.push_back({current_, std::move(what)}); }
    /// Likewise, and long after, by what happens later itself.
    void land(std::function<void()> what) { pending_.push_back({current_, std::move(what), true}); }
    /// Likewise, in a CTA of the cluster: another one than this may not have ended by then.
    void later_in(uint32_t at, std::function<void()> what) {
        if (at == cta()) return later(std::move(what));
        pending_.push_back({at * threads_ + current_ % threads_, [this, at, what] { shared_of(at), what(); }});
    }
    /// A copy of the current thread, and what it does when all that it has started have ended.
    void start_copy(std::function<void()> copy) { fibers_[current_].copies.start(std::move(copy)); }
    Copies& copies() { return fibers_[current_].copies; }
    void after_copies(std::function<void()> what) {
        later([land = fibers_[current_].copies.take(), what] { land(), what(); });
    }
    /// `landing`: what only has to land counts, too.
    bool has_pending(uint32_t of_thread, bool landing = true) const {
        const auto counts = [=](const Pending& p) { return p.thread == of_thread && (landing || !p.lands); };
        return std::ranges::any_of(pending_, counts);
    }

    void wait_for_earlier() { warps_[current_ / 32].waited = true; }  // each warp for itself
    void check_not_earlier(const void* at) {
        if (warps_[current_ / 32].waited) return;
        for (const auto& [begin, bytes] : earlier)
            if (reinterpret_cast<uintptr_t>(at) - reinterpret_cast<uintptr_t>(begin) < bytes)
                fail("it takes what kernels before it may still use");
    }

    uint32_t current() const { return current_; }
    /// The rank in the cluster of the current thread, or of that of what happens now.
    uint32_t cta() const { return current_ / threads_; }
    uint32_t ctas() const { return ctas_; }
    /// What ordinary stores have written to shared memory and no fence has shown to the tensor cores and to TMA.
    void stored(uint32_t address, uint32_t bytes) {
        if (address >= kSharedBytes) return;
        std::fill_n(unfenced_.begin() + cta() * kSharedBytes + address, bytes, current_ + 1);
        fibers_[current_].stored.push_back({cta() * kSharedBytes + address, bytes});
    }
    void fence() {
        for (const auto& [first, bytes] : fibers_[current_].stored)
            for (uint32_t i = first; i < first + bytes; ++i)
                if (unfenced_[i] == current_ + 1) unfenced_[i] = 0;
        fibers_[current_].stored.clear();
    }
    void check_fenced(uint32_t address, uint32_t bytes) {
        for (uint32_t i = 0; i < bytes; ++i)
            if (unfenced_[cta() * kSharedBytes + address + i] != 0)
                fail("what a thread has stored is read asynchronously without a fence");
    }
    /// What an asynchronous write has replaced is nobody's any more.
    void overwritten(uint32_t address, uint32_t bytes) {
        std::fill_n(unfenced_.begin() + cta() * kSharedBytes + address, bytes, 0);
    }

    /// A warpgroup's products, each a group of its own, which happen one after the other: how many each thread has
    /// started, and has taken the sums of. A product adds to what threads have in registers, if they have taken the
    /// sums of all before it, else to the sums of the one before.
    struct Products {
        struct Next {
            uint32_t come = 0;  // threads
            bool adds = false, onto_registers = false;
            std::vector<float> registers;
            std::shared_ptr<std::vector<uint8_t>> left;  // A, where it is in registers
            std::function<std::vector<float>(std::vector<float>)> multiply;
        };
        uint32_t started[128] = {}, taken[128] = {}, finished = 0;
        std::deque<Next> next;           // those that have not happened
        std::vector<float> sums, of[2];  // of: of every second product, as two may be in flight

        void happen() {
            const Next now = std::move(next.front());
            next.pop_front();
            if (!now.adds) sums.assign(now.registers.size(), 0);
            else if (now.onto_registers) sums = now.registers;
            sums = now.multiply(std::move(sums));
            of[finished++ % 2] = sums;
        }
    };
    Products& products() { return products_[cta() * kMostWarpgroups + current_ % threads_ / 128]; }
    struct Registers {
        float* sums;  // where a thread wants them
        uint32_t count;
    };
    /// Where a thread wants its sums; of every second product, as two may be in flight.
    Registers& registers(uint32_t product) { return registers_[current_ * 2 + product % 2]; }

private:
    static constexpr size_t kStack = 128 << 10;
    static constexpr uint32_t kNamed = 16, kMostWarpgroups = 8;
    struct Fiber {
        ucontext_t context;
        std::unique_ptr<uint8_t[]> memory;
        Stack stack;
        const uint32_t* watched = nullptr;
        uint32_t mask = 0, value = 0;
        const char* what = "";
        bool done = false;
        uint32_t cluster_rounds = 0;
        std::vector<std::pair<uint32_t, uint32_t>> stored;  // since its last fence: first byte, and how many
        Copies copies;                                      // that nothing waits for yet

        bool waits() const { return watched && (*watched & mask) == value; }
    };

    static void enter(uint32_t low, uint32_t high) {
        auto* machine = reinterpret_cast<Machine*>(static_cast<uintptr_t>(high) << 32 | low);
        machine->fibers_[machine->current_].stack.come_from(machine->stack_);
        (*machine->kernel_)();
        machine->fibers_[machine->current_].done = true;
        machine->switch_away();
    }
    void start() {
        for (uint32_t c = 0; c < ctas_; ++c)
            for (uint8_t& byte : shared[c]) byte = static_cast<uint8_t>(random_() | 0x7f);  // NaN for many a type
        mbarriers_.assign(ctas_ * kSharedBytes / 8, {});
        named_.assign(ctas_ * kNamed, {});
        products_.assign(ctas_ * kMostWarpgroups, {});
        registers_.assign(fibers_.size() * 2, {});
        unfenced_.assign(ctas_ * kSharedBytes, 0);
        for (Warp& warp : warps_) warp.waited = false;
        cluster_ = {};
        for (Fiber& fiber : fibers_) {
            getcontext(&fiber.context);
            fiber.stack = {fiber.memory.get(), kStack};
            fiber.stack.clear();
            fiber.context.uc_stack.ss_sp = fiber.memory.get();
            fiber.context.uc_stack.ss_size = kStack;
            fiber.context.uc_link = nullptr;
            fiber.done = false, fiber.watched = nullptr, fiber.cluster_rounds = 0;
            fiber.stored.clear(), fiber.copies.take();
            const auto self = reinterpret_cast<uintptr_t>(this);
            makecontext(&fiber.context, reinterpret_cast<void (*)()>(&Machine::enter), 2, static_cast<uint32_t>(self),
                        static_cast<uint32_t>(self >> 32));
        }
    }
    /// One that can go on; of those that sleep only where there is no other. A warp or a CTA sleeps for a while, then
    /// another one: what relies on others being as fast as itself shows.
    Fiber* runnable() {
        if (asleep_.left-- == 0) {
            const uint32_t size = chance(2) ? threads_ : 32;
            asleep_ = {random_() % (fibers_.size() / size) * size, size,
                       static_cast<uint32_t>(random_() % (16u << random_() % 14))};
        }
        const size_t n = fibers_.size(), first = random_() % n;
        Fiber* sleeper = nullptr;
        for (size_t i = 0; i < n; ++i) {
            const size_t at = (first + i) % n;
            Fiber& fiber = fibers_[at];
            if (fiber.done || fiber.waits()) continue;
            if (at - asleep_.first >= asleep_.size) return &fiber;
            sleeper = &fiber;
        }
        return sleeper;
    }
    /// `early`: too early for what lands.
    void happen(bool early = false) {
        const size_t which = random_() % pending_.size();
        if (early && pending_[which].lands) return;
        const Pending now = std::move(pending_[which]);
        pending_[which] = std::move(pending_.back());
        pending_.pop_back();
        current_ = now.thread;
        now.happen();
    }
    /// What each warp waits for.
    std::string waiting() const {
        std::string all;
        for (size_t i = 0; i < fibers_.size(); i += 32) {
            const Fiber& fiber = fibers_[i];
            if (fiber.done) continue;
            all += "thread " + std::to_string(i) + " waits for " + fiber.what;
            for (size_t b = 0; b < mbarriers_.size(); ++b)
                if (&mbarriers_[b].phase == fiber.watched)
                    all += " at " + std::to_string(b * 8) + ", which lacks " + std::to_string(mbarriers_[b].pending) +
                           " arrivals and " + std::to_string(mbarriers_[b].bytes) + " bytes";
            all += "; ";
        }
        return all;
    }
    void switch_away() {
        Fiber& fiber = fibers_[current_];
        fiber.stack.leave_for(stack_, fiber.done);
        swapcontext(&fiber.context, &scheduler_);
        fiber.stack.come_from(stack_);
    }
    void complete(Mbarrier& barrier) {
        if (barrier.pending != 0 || barrier.bytes != 0) return;
        barrier.pending = barrier.expected;
        ++barrier.phase;
    }

    std::mt19937 random_;
    bool starves_;  // what is asynchronous happens only when nobody can go on
    uint32_t threads_, ctas_;
    std::vector<Fiber> fibers_;
    std::vector<Warp> warps_;
    std::vector<Meeting> named_;
    std::vector<Mbarrier> mbarriers_;
    std::vector<Products> products_;
    std::vector<Registers> registers_;
    Meeting cluster_;
    std::vector<uint32_t> unfenced_;  // of each byte of the CTAs' shared memory: a thread and one, or 0
    std::vector<Pending> pending_;
    ucontext_t scheduler_;
    struct {
        size_t first, size;
        uint32_t left;
    } asleep_ = {0, 0, 0};
    Stack stack_;  // the scheduler's
    bool in_fiber_ = false;
    const std::function<void()>* kernel_ = nullptr;
    const char* failure_ = nullptr;
    uint32_t current_ = 0;
};

inline Machine* machine = nullptr;

/// Runs `kernel` for all threads of a cluster, for one cluster after the other. `starves`: memory is slower than all
/// else, for kernels in which nobody polls.
template <typename Kernel>
void launch(uint32_t ctas, uint32_t threads, const Kernel& kernel, uint32_t seed = 1, uint32_t cluster = 1,
            bool starves = false) {
    Machine running(threads, seed, cluster, starves);
    machine = &running;
    grid.x = ctas;
    const std::function<void()> run = kernel;
    for (uint32_t first = 0; first < ctas; first += cluster) running.run(run, first);
}

}  // namespace finegemm::host_kernel
