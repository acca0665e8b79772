// ThreadPool: the CPU backend's workers. Layer engine.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include <finegemm/context.h>

namespace finegemm {

class ThreadPool {
public:
    /// `threads` counts the calling one; 0: as many as this process may run at once (os/cpus.h). Fewer where the system
    /// refuses them.
    explicit ThreadPool(int threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int threads() const;

    /// Calls body(0) to body(count - 1), in any order, on this thread and the workers, and returns when all are done.
    /// The first exception is thrown here; indices not begun by then are left out. Several threads may call it at once,
    /// and a body may call it again. A child of fork may, too: the pool has new workers there.
    /// `poll`: called on this thread between indices, about every 50 ms, with the share of them that has been begun;
    /// what it throws counts as the body's.
    void parallel_for(int64_t count, const std::function<void(int64_t)>& body, const Poll& poll = {});

private:
    struct Job;
    class Crew;  // the workers of one process, and what they share
    Crew& crew();

    std::atomic<Crew*> crew_;
};

}  // namespace finegemm
