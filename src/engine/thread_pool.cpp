// ThreadPool: a list of jobs, each of which lives on its caller's stack. Layer engine.
#include "engine/thread_pool.h"

#include <algorithm>
#include <exception>
#include <system_error>

#include "os/cpus.h"

namespace finegemm {

/// All of it is read and written under the pool's mutex; bodies run outside.
struct ThreadPool::Job {
    const std::function<void(int64_t)>& body;
    int64_t count;
    int64_t next = 0, running = 0;
    std::exception_ptr failure;

    bool has_more() const { return next < count && !failure; }

    /// Runs indices until there are none. `lock` is held on entry and on return.
    void run(std::unique_lock<std::mutex>& lock) {
        ++running;
        while (has_more()) {
            const int64_t index = next++;
            lock.unlock();
            std::exception_ptr thrown;
            try {
                body(index);
            } catch (...) {
                thrown = std::current_exception();
            }
            lock.lock();
            if (thrown && !failure) failure = thrown;
        }
        --running;
    }
};

ThreadPool::ThreadPool(int threads) {
    const int wanted = threads > 0 ? threads : os::usable_cpus();
    workers_.reserve(static_cast<size_t>(wanted - 1));
    try {
        for (int i = 1; i < wanted; ++i) workers_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
        // The system gives no more threads: those that there are, the caller's at least, do all the work.
    }
}

ThreadPool::~ThreadPool() {
    {
        const std::scoped_lock lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::work() {
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

void ThreadPool::parallel_for(int64_t count, const std::function<void(int64_t)>& body) {
    if (count <= 0) return;
    Job job{body, count, 0, 0, {}};
    std::unique_lock lock(mutex_);
    if (count > 1 && !workers_.empty()) {
        jobs_.push_back(&job);
        changed_.notify_all();
    }
    job.run(lock);
    changed_.wait(lock, [&] { return job.running == 0; });
    std::erase(jobs_, &job);
    if (job.failure) std::rethrow_exception(job.failure);
}

}  // namespace finegemm
