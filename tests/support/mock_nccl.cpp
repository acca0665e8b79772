// A stand-in for NCCL: ranks are threads, whose messages meet in one mailbox of the process. Layer tests.
// FINEGEMM_MOCK_NCCL=CALL: that call fails. Types are declared as nccl.h has them, not taken from the library.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>
#include <tuple>
#include <vector>

namespace {

constexpr int kSuccess = 0, kSystemError = 2, kInvalidUsage = 5, kInt8 = 0;

struct Comm {
    uint64_t id = 0;
    int rank = 0, ranks = 0;
    std::map<std::pair<int, int>, uint64_t> sent;  // messages from a rank to another, up to now
};
struct Part {
    Comm* comm;
    bool sends;
    void* data;
    size_t bytes;
    int peer;
};

std::mutex mutex;
std::condition_variable changed;
std::map<std::tuple<uint64_t, int, int, uint64_t>, std::vector<char>> mailbox;  // by id, sender, receiver, number
std::map<uint64_t, int> members;
uint64_t next_id = 1;
std::atomic<int> aborts = 0;  // by ranks, which are threads
thread_local std::vector<Part> group;
thread_local int depth = 0;

int result_of(std::string_view call) {
    const char* fails = std::getenv("FINEGEMM_MOCK_NCCL");
    return fails && call == fails ? kSystemError : kSuccess;
}

void deliver(const Part& part) {
    Comm& c = *part.comm;
    const int from = part.sends ? c.rank : part.peer, to = part.sends ? part.peer : c.rank;
    // A message to oneself is counted at both ends, under keys of their own.
    uint64_t& number = c.sent[{part.sends ? to : -1 - from, part.sends}];
    const std::tuple key(c.id, from, to, number++);
    std::unique_lock lock(mutex);
    if (part.sends) {
        mailbox[key].assign(static_cast<char*>(part.data), static_cast<char*>(part.data) + part.bytes);
        changed.notify_all();
        return;
    }
    changed.wait(lock, [&] { return mailbox.contains(key); });
    std::memcpy(part.data, mailbox[key].data(), part.bytes);
    mailbox.erase(key);
}

int add(const Part& part, int type, std::string_view call) {
    if (const int result = result_of(call)) return result;
    if (type != kInt8 || depth == 0 || part.peer < 0 || part.peer >= part.comm->ranks) return kInvalidUsage;
    group.push_back(part);
    return kSuccess;
}

}  // namespace

extern "C" {

#define MOCK __attribute__((visibility("default")))

struct UniqueId {
    char internal[128];
};

MOCK int mock_nccl_aborts() { return aborts; }
MOCK int ncclGetVersion(int* version) {
    *version = 22809;
    return result_of("ncclGetVersion");
}
MOCK int ncclGetUniqueId(UniqueId* id) {
    const std::scoped_lock lock(mutex);
    *id = {};
    std::memcpy(id->internal, &next_id, sizeof next_id);
    ++next_id;
    return result_of("ncclGetUniqueId");
}
MOCK int ncclCommInitRank(Comm** comm, int ranks, UniqueId id, int rank) {
    if (const int result = result_of("ncclCommInitRank")) return result;
    auto* const made = new Comm{0, rank, ranks, {}};
    std::memcpy(&made->id, id.internal, sizeof made->id);
    std::unique_lock lock(mutex);
    ++members[made->id];
    changed.notify_all();
    changed.wait(lock, [&] { return members[made->id] >= ranks; });
    *comm = made;
    return kSuccess;
}
MOCK int ncclCommDestroy(Comm* comm) {
    delete comm;
    return kSuccess;
}
MOCK int ncclCommAbort(Comm* comm) {
    ++aborts;
    delete comm;
    return kSuccess;
}
MOCK int ncclCommGetAsyncError(Comm*, int* result) {
    *result = result_of("network");
    return kSuccess;
}
MOCK const char* ncclGetErrorString(int) { return "as the mock says"; }
MOCK const char* ncclGetLastError(Comm*) { return "a cable is loose"; }
MOCK int ncclGroupStart() {
    ++depth;
    return result_of("ncclGroupStart");
}
MOCK int ncclGroupEnd() {
    if (--depth > 0) return kSuccess;
    for (const bool sends : {true, false})
        for (const Part& part : group)
            if (part.sends == sends) deliver(part);
    group.clear();
    return result_of("ncclGroupEnd");
}
MOCK int ncclSend(const void* data, size_t count, int type, int peer, Comm* comm, void*) {
    return add({comm, true, const_cast<void*>(data), count, peer}, type, "ncclSend");
}
MOCK int ncclRecv(void* data, size_t count, int type, int peer, Comm* comm, void*) {
    return add({comm, false, data, count, peer}, type, "ncclRecv");
}
}
