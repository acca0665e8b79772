// NCCL, opened at run time. Layer comm. Own declarations of the few types and entry points that are used; a test holds
// them against nccl.h.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include <finegemm/context.h>

#include "comm/group.h"
#include "cuda/device.h"

namespace finegemm::nccl {

/// ncclUniqueId.
struct UniqueId {
    char internal[128];
};
using Comm = struct CommTag*;

// ncclResult_t, ncclDataType_t.
inline constexpr int kSuccess = 0, kInProgress = 7, kBytes = 0;

/// The entry points, named as in nccl.h without "nccl".
struct Api {
    int (*GetVersion)(int*);
    int (*GetUniqueId)(UniqueId*);
    int (*CommInitRank)(Comm*, int ranks, UniqueId, int rank);
    int (*CommDestroy)(Comm);
    int (*CommAbort)(Comm);
    int (*CommGetAsyncError)(Comm, int*);
    const char* (*GetErrorString)(int);
    const char* (*GetLastError)(Comm);
    int (*GroupStart)();
    int (*GroupEnd)();
    int (*Send)(const void*, size_t count, int type, int peer, Comm, void* stream);
    int (*Recv)(void*, size_t count, int type, int peer, Comm, void* stream);
};

class Library {
public:
    /// `wish`: a file or a folder that goes before all others; empty: none. What the process has loaded comes next,
    /// torch's for example. Throws Error(Unsupported) that says where it was looked for.
    static std::shared_ptr<const Library> open(const Options& options, const std::string& wish);

    Api api{};
    std::string path;
    int version = 0;  // 22809 is 2.28.9

    UniqueId make_id() const;
    /// Throws Error(Peer) with NCCL's reason.
    void check(int result, const char* call, Comm comm = nullptr) const {
        if (result != kSuccess && result != kInProgress) fail(result, call, comm);
    }
    [[noreturn]] void fail(int result, const char* call, Comm comm) const;
};

/// This process' end of a group of GPUs: returns when all ranks have come.
std::unique_ptr<comm::Group> make_group(std::shared_ptr<const Library> library,
                                        std::shared_ptr<const cuda::Driver> driver, const UniqueId& id, int rank,
                                        int ranks, int device, comm::Seconds timeout);

}  // namespace finegemm::nccl
