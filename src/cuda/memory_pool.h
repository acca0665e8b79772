// Memory of calls, by the order of their streams. Layer cuda.
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include "cuda/device.h"

namespace finegemm::cuda {

/// Memory that calls take for as long as their kernels run; a captured call's is its graph's. What another call gives
/// back is kept for the next one on its stream, without the driver: on a GPU it takes up to a microsecond of a stream
/// to allocate and to free.
class MemoryPool {
public:
    // Blocks of streams that were destroyed stay until the pool is, so all have a bound. A call that takes a larger
    // block is long beside what it takes to allocate that.
    static constexpr size_t kMaxBlocksOfStream = 4, kMaxBlocks = 32, kMaxBlockBytes = 32u << 20;

    explicit MemoryPool(const Device& device);
    ~MemoryPool();
    MemoryPool(const MemoryPool&) = delete;
    MemoryPool& operator=(const MemoryPool&) = delete;

private:
    friend class StreamMemory;
    struct Block {
        std::optional<unsigned long long> stream;  // its id; none: the block is not kept
        size_t bytes = 0;
        DevicePtr data = 0;
    };

    Block take(size_t bytes, StreamHandle stream);
    void give_back(const Block& block, StreamHandle stream);
    Block wanted(size_t bytes, StreamHandle stream) const;
    bool take_kept(Block& block);
    DevicePtr keep(const Block& block);
    void free_kept();

    const Device& device_;
    PoolHandle pool_ = nullptr;
    std::mutex mutex_;
    std::vector<Block> kept_;  // that no call has, in the order in which they came
};

/// Memory of a pool, for work that is queued on a stream while this lives. The device is current.
class StreamMemory {
public:
    StreamMemory(MemoryPool& pool, size_t bytes, StreamHandle stream)
        : pool_(pool), stream_(stream), block_(pool.take(bytes, stream)) {}
    ~StreamMemory() { pool_.give_back(block_, stream_); }
    StreamMemory(const StreamMemory&) = delete;
    StreamMemory& operator=(const StreamMemory&) = delete;

    void* data() const { return reinterpret_cast<void*>(block_.data); }

private:
    MemoryPool& pool_;
    StreamHandle stream_;
    MemoryPool::Block block_;
};

}  // namespace finegemm::cuda
