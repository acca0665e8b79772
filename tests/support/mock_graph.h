// The mock driver's streams and graphs: what is launched on a stream that is recorded starts with the graph alone.
// Layer tests; only mock_driver.cpp includes it.
#pragma once

#include "mock_launch.h"

namespace finegemm::mock {

inline int cuStreamCreate(void** stream, unsigned) {
    const Entry entry("cuStreamCreate");
    if (entry.result) return entry.result;
    if (forbidden_in_capture()) return kStreamCaptureUnsupported;
    ++state().streams;
    *stream = new char;
    return kSuccess;
}
inline int cuStreamDestroy_v2(void* stream) {
    const Entry entry("cuStreamDestroy");
    internals().recorded.erase(stream);
    internals().stream_ids.erase(stream);
    delete static_cast<char*>(stream);
    --state().streams;
    return entry.result;
}
/// Any handle has an id: tests pass some that nobody created.
inline int cuStreamGetId(void* stream, unsigned long long* id) {
    const Entry entry("cuStreamGetId");
    if (entry.result) return entry.result;
    const auto [found, is_new] = internals().stream_ids.try_emplace(stream, internals().next_stream_id);
    internals().next_stream_id += is_new;
    *id = found->second;
    return kSuccess;
}
inline int cuStreamIsCapturing(void* stream, int* capturing) {
    const Entry entry("cuStreamIsCapturing");
    *capturing = state().capturing || internals().recorded.contains(stream);
    return entry.result;
}
inline int cuStreamBeginCapture_v2(void* stream, int) {
    const Entry entry("cuStreamBeginCapture");
    if (!entry.result) internals().recorded[stream] = {};
    return entry.result;
}
inline int cuStreamEndCapture(void* stream, void** graph) {
    const Entry entry("cuStreamEndCapture");
    const auto recorded = internals().recorded.extract(stream);
    if (entry.result || recorded.empty()) return entry.result ? entry.result : kInvalidValue;
    ++state().graphs;
    *graph = new std::vector<Launch>(recorded.mapped());
    return kSuccess;
}
inline int cuGraphInstantiateWithFlags(void** exec, void* graph, unsigned long long) {
    const Entry entry("cuGraphInstantiateWithFlags");
    if (entry.result) return entry.result;
    ++state().graphs;
    *exec = new std::vector<Launch>(*static_cast<std::vector<Launch>*>(graph));
    return kSuccess;
}
inline int destroy_graph(const char* call, void* graph) {
    const Entry entry(call);
    delete static_cast<std::vector<Launch>*>(graph);
    --state().graphs;
    return entry.result;
}
inline int cuGraphDestroy(void* graph) { return destroy_graph("cuGraphDestroy", graph); }
inline int cuGraphExecDestroy(void* exec) { return destroy_graph("cuGraphExecDestroy", exec); }
inline int cuGraphLaunch(void* exec, void* stream) {
    const Entry entry("cuGraphLaunch");
    if (entry.result) return entry.result;
    if (stack.empty()) return kInvalidContext;
    for (Launch launch : *static_cast<std::vector<Launch>*>(exec)) {
        launch.stream = stream;
        start(launch);
    }
    return kSuccess;
}

}  // namespace finegemm::mock
