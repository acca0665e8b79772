// ThreadPool: a list of jobs, each of which lives on its caller's stack. Layer engine.
#include "engine/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "os/cpus.h"
#include "os/process.h"

namespace finegemm {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPollInterval{50};

}  // namespace

/// All of it is read and written under the pool's mutex; bodies run outside.
struct ThreadPool::Job {
    const std::function<void(int64_t)>& body;
    int64_t count;
    int64_t next = 0, running = 0;
    std::exception_ptr failure;

    bool has_more() const { return next < count && !failure; }

    /// Runs indices until there are none, and `poll` between them, if there is one. `lock` is held on entry and on
    /// return.
    void run(std::unique_lock<std::mutex>& lock, const Poll& poll = {}) {
        ++running;
        auto next_poll = Clock::now() + kPollInterval;
        while (has_more()) {
            const int64_t index = next++;
            lock.unlock();
            std::exception_ptr thrown;
            try {
                body(index);
                if (poll && Clock::now() >= next_poll) {
                    poll(static_cast<double>(index + 1) / static_cast<double>(count));
                    next_poll = Clock::now() + kPollInterval;
                }
            } catch (...) {
                thrown = std::current_exception();
            }
            lock.lock();
            if (thrown && !failure) failure = thrown;
        }
        --running;
    }
};

class ThreadPool::Crew {
public:
    explicit Crew(int threads) {
        workers_.reserve(static_cast<size_t>(threads - 1));
        try {
            for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
        } catch (const std::system_error&) {
            // The system gives no more threads: those that there are, the caller's at least, do all the work.
        }
    }
    ~Crew() {
        {
            const std::scoped_lock lock(mutex_);
            stop_ = true;
        }
        changed_.notify_all();
        for (std::thread& worker : workers_) worker.join();
    }
    Crew(const Crew&) = delete;
    Crew& operator=(const Crew&) = delete;

    bool is_here() const { return process_.is_this(); }
    int threads() const { return static_cast<int>(workers_.size()) + 1; }
    void run(Job& job, const Poll& poll);

private:
    void work();

    const os::Process process_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Job*> jobs_;  // that still have indices to give out
    bool stop_ = false;
    std::vector<std::thread> workers_;
};

void ThreadPool::Crew::work() {
    std::unique_lock lock(mutex_);
    while (true) {
        const auto job = std::ranges::find_if(jobs_, [](const Job* j) { return j->has_more(); });
        if (job != jobs_.end()) {
            (*job)->run(lock);
            changed_.notify_all();
        } else if (stop_) {
            return;
        } else {
            changed_.wait(lock);
        }
    }
}

void ThreadPool::Crew::run(Job& job, const Poll& poll) {
    std::unique_lock lock(mutex_);
    if (job.count > 1 && !workers_.empty()) {
        jobs_.push_back(&job);
        changed_.notify_all();
    }
    job.run(lock, poll);
    changed_.wait(lock, [&] { return job.running == 0; });
    std::erase(jobs_, &job);
}

ThreadPool::ThreadPool(int threads) : crew_(new Crew(threads > 0 ? threads : os::usable_cpus())) {}

ThreadPool::~ThreadPool() {
    const Crew* crew = crew_.load();
    if (crew->is_here()) delete crew;
}

int ThreadPool::threads() const { return crew_.load()->threads(); }

/// A parent's crew is left as it is: its threads cannot be joined here, and one of them may have had its mutex.
ThreadPool::Crew& ThreadPool::crew() {
    Crew* crew = crew_.load();
    if (crew->is_here()) return *crew;
    auto own = std::make_unique<Crew>(crew->threads());
    return crew_.compare_exchange_strong(crew, own.get()) ? *own.release() : *crew;
}

void ThreadPool::parallel_for(int64_t count, const std::function<void(int64_t)>& body, const Poll& poll) {
    if (count <= 0) return;
    Job job{body, count, 0, 0, {}};
    crew().run(job, poll);
    if (job.failure) std::rethrow_exception(job.failure);
}

}  // namespace finegemm
