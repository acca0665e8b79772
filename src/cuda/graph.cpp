// Launches that were recorded once and start together. Layer cuda.
#include "cuda/graph.h"

#include <memory>

namespace finegemm::cuda {

namespace {

constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING

}  // namespace

bool is_capturing(const Driver& driver, StreamHandle stream) {
    int capturing = 0;
    return driver.api.StreamIsCapturing(stream, &capturing) != 0 || capturing != 0;
}

Graph::Graph(const Driver& driver, const std::function<void(StreamHandle)>& record) : driver_(driver) {
    const Api& api = driver.api;
    const RelaxedCapture relaxed(driver);
    StreamHandle stream = nullptr;
    driver.check(api.StreamCreate(&stream, kNonBlocking), "cuStreamCreate");
    const std::unique_ptr<void, Result (*)(StreamHandle)> stream_owner(stream, api.StreamDestroy);
    driver.check(api.StreamBeginCapture(stream, kRelaxedCapture), "cuStreamBeginCapture");
    GraphHandle recorded = nullptr;
    try {
        record(stream);
    } catch (...) {
        if (api.StreamEndCapture(stream, &recorded) == 0) api.GraphDestroy(recorded);
        throw;
    }
    driver.check(api.StreamEndCapture(stream, &recorded), "cuStreamEndCapture");
    const Result made = api.GraphInstantiateWithFlags(&graph_, recorded, 0);
    api.GraphDestroy(recorded);
    driver.check(made, "cuGraphInstantiateWithFlags");
}

Graph::~Graph() {
    if (driver_.process.is_this()) driver_.api.GraphExecDestroy(graph_);  // when what runs has ended
}

void Graph::launch(StreamHandle stream) const {
    const std::scoped_lock lock(mutex_);
    driver_.check(driver_.api.GraphLaunch(graph_, stream), "cuGraphLaunch");
}

}  // namespace finegemm::cuda
