// Memory of calls, by the order of their streams. Layer cuda.
#include "cuda/memory_pool.h"

#include <algorithm>

#include <finegemm/error.h>

#include "cuda/graph.h"

namespace finegemm::cuda {

namespace {

/// Is a block of so many bytes enough for a call, and not far more than that?
bool fits(size_t bytes, size_t wanted) { return bytes >= wanted && bytes <= 2 * wanted + (1u << 20); }

}  // namespace

MemoryPool::MemoryPool(const Device& device) : device_(device) {
    const Driver& driver = device.driver();
    const CurrentDevice current(device);
    const RelaxedCapture relaxed(driver);
    kept_.reserve(kMaxBlocks + 1);  // so that nothing throws where a block is given back
    const PoolProps props{.device = device.handle()};
    driver.check(driver.api.MemPoolCreate(&pool_, &props), "cuMemPoolCreate");
    // Else each synchronisation hands the memory back to the system, and the next call asks for it anew.
    uint64_t kept_bytes = UINT64_MAX;
    if (const Result result = driver.api.MemPoolSetAttribute(pool_, kReleaseThreshold, &kept_bytes); result != 0) {
        driver.api.MemPoolDestroy(pool_);
        driver.check(result, "cuMemPoolSetAttribute");
    }
}

MemoryPool::~MemoryPool() {
    const Driver& driver = device_.driver();
    if (!driver.process.is_this()) return;
    try {
        if (!kept_.empty()) free_kept();
    } catch (const Error&) {  // they stay until the process ends: kernels may still use them
    }
    driver.api.MemPoolDestroy(pool_);
}

/// Blocks may be those of streams that were destroyed, and cuMemFree does not wait for kernels that use memory of a
/// pool.
void MemoryPool::free_kept() {
    const Driver& driver = device_.driver();
    const CurrentDevice current(device_);
    const RelaxedCapture relaxed(driver);
    driver.check(driver.api.CtxSynchronize(), "cuCtxSynchronize");
    for (const Block& block : kept_) driver.api.MemFree(block.data);
}

MemoryPool::Block MemoryPool::take(size_t bytes, StreamHandle stream) {
    const Driver& driver = device_.driver();
    Block block = wanted(bytes, stream);
    if (!take_kept(block))
        driver.check(driver.api.MemAllocFromPoolAsync(&block.data, bytes, pool_, stream), "cuMemAllocFromPoolAsync");
    return block;
}

/// Streams are told apart by ids: handles come again when a stream was destroyed, and all threads have the same one for
/// their default streams.
MemoryPool::Block MemoryPool::wanted(size_t bytes, StreamHandle stream) const {
    const Driver& driver = device_.driver();
    unsigned long long id = 0;
    if (bytes > kMaxBlockBytes || is_capturing(driver, stream) || driver.api.StreamGetId(stream, &id) != 0)
        return {.stream = {}, .bytes = bytes};
    return {.stream = id, .bytes = bytes};
}

/// Makes the block that is wanted the smallest of those that are kept for its stream and fit, if there is one.
bool MemoryPool::take_kept(Block& block) {
    if (!block.stream) return false;
    const std::scoped_lock lock(mutex_);
    auto best = kept_.end();
    for (auto at = kept_.begin(); at != kept_.end(); ++at)
        if (at->stream == block.stream && fits(at->bytes, block.bytes) &&
            (best == kept_.end() || at->bytes < best->bytes))
            best = at;
    if (best == kept_.end()) return false;
    block = *best;
    kept_.erase(best);
    return true;
}

void MemoryPool::give_back(const Block& block, StreamHandle stream) {
    const DevicePtr surplus = block.stream ? keep(block) : block.data;
    if (surplus) device_.driver().api.MemFreeAsync(surplus, stream);
}

/// Returns what is too much: the oldest block of the same stream, as no other stream can be used here.
DevicePtr MemoryPool::keep(const Block& block) {
    const auto of_stream = [&](const Block& kept) { return kept.stream == block.stream; };
    const std::scoped_lock lock(mutex_);
    kept_.push_back(block);
    if (kept_.size() <= kMaxBlocks && std::ranges::count_if(kept_, of_stream) <= std::ptrdiff_t{kMaxBlocksOfStream})
        return 0;
    const auto oldest = std::ranges::find_if(kept_, of_stream);
    const DevicePtr data = oldest->data;
    kept_.erase(oldest);
    return data;
}

}  // namespace finegemm::cuda
