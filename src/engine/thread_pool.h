// ThreadPool: the CPU backend's workers. Layer engine.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace finegemm {

class ThreadPool {
public:
    /// `threads` counts the calling one; 0: as many as this process may run at once (os/cpus.h). Fewer where the system
    /// refuses them.
    explicit ThreadPool(int threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int threads() const { return static_cast<int>(workers_.size()) + 1; }

    /// Calls body(0) to body(count - 1), in any order, on this thread and the workers, and returns when all are done.
    /// The first exception is thrown here; indices not begun by then are left out. Several threads may call it at once,
    /// and a body may call it again.
    void parallel_for(int64_t count, const std::function<void(int64_t)>& body);

private:
    struct Job;
    void work();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Job*> jobs_;  // that still have indices to give out
    bool stop_ = false;
    std::vector<std::thread> workers_;
};

}  // namespace finegemm
