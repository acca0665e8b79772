// Launches that were recorded once and start together. Layer cuda.
#pragma once

#include <functional>
#include <mutex>

#include "cuda/device.h"

namespace finegemm::cuda {

/// Is the stream recorded for a graph, or may it not be asked because another one is?
bool is_capturing(const Driver& driver, StreamHandle stream);

/// What was queued on a stream, in its order, for launches while the device's context is current. To launch it takes
/// the host less than one kernel does. CUDA never lets two launches of a graph run at once, whatever their streams, and
/// gives graphs of a stream the same memory.
class Graph {
public:
    /// `record` queues on the stream that it is given, and does nothing else.
    Graph(const Driver& driver, const std::function<void(StreamHandle)>& record);
    ~Graph();
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;

    void launch(StreamHandle stream) const;

private:
    const Driver& driver_;
    GraphExecHandle graph_ = nullptr;
    mutable std::mutex mutex_;  // of launches: the driver's object is not for several threads
};

}  // namespace finegemm::cuda
