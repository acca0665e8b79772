// A layer of experts over several ranks: communicators, and the call in which tokens travel. Layer: public.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include <finegemm/moe.h>

namespace finegemm {

/// Names a communicator that is about to be made: one rank makes it, and the program hands it to the others.
struct CommunicatorId {
    std::array<uint8_t, 128> bytes{};
};

struct CommunicatorOptions {
    double timeout_s = 30;    ///< after which a rank that has not come ends the communicator; above 0
    std::string nccl_path{};  ///< a libnccl.so.2, or its folder; empty: that of the process, of pip or of the system
};

namespace comm {
class Group;
}

/// One of several ranks that exchange rows. All ranks make the same calls with it in the same order; where one does not
/// come in time, or leaves, calls of the others throw Error(Peer) that names it, and the communicator has ended: ranks
/// that are left can make another. Threads may use it one after the other.
class FINEGEMM_API Communicator {
public:
    /// NCCL makes it, which is opened at run time. Throws Error(Unsupported) where it is missing.
    static CommunicatorId make_id(const Context& context, const CommunicatorOptions& options = {});
    /// A rank with a GPU of its own, on this host or another: returns when all ranks have called it. NCCL's NVLink
    /// multicast is turned off for the process: NCCL_NVLS_ENABLE is set to 0, and must not be set otherwise.
    /// Throws Error: InvalidArgument, Unsupported, Driver, Peer.
    Communicator(const Context& context, const CommunicatorId& id, int32_t rank, int32_t ranks, int32_t device,
                 const CommunicatorOptions& options = {});
    /// Ranks on the CPU, each for a thread of its own.
    static std::vector<Communicator> of_threads(int32_t ranks, const CommunicatorOptions& options = {});

    ~Communicator();
    Communicator(Communicator&&) noexcept;
    Communicator& operator=(Communicator&&) noexcept;

    int32_t rank() const;
    int32_t ranks() const;
    Device device() const;

    /// Returns when all that is queued on a stream has been done; to be used instead of the driver's own call, which
    /// waits for a lost rank without end. Throws Error: Driver, Peer.
    void wait(Stream stream = nullptr);
    /// Ends it, here and, of threads, for all; kernels that wait for other ranks end.
    void end() noexcept;

    comm::Group& group() const { return *group_; }

private:
    explicit Communicator(std::unique_ptr<comm::Group> group);
    std::unique_ptr<comm::Group> group_;
};

struct PeerMemoryState;

/// Memory of all ranks of a communicator that each of them reaches: with it rows of a layer travel without messages.
/// Layers whose calls are in flight together have one each. It goes when calls of all ranks with it have ended.
class FINEGEMM_API PeerMemory {
public:
    /// Returns when all ranks have called it. `most`: tokens are the most that any rank passes in a call, the same
    /// number on all; k, H, I and E are those of calls. There are at most 64 ranks. Ranks of threads reach each other;
    /// GPUs do on one host, by peer access or, of other processes, by CUDA's names of memory. Throws Error:
    /// InvalidArgument, Driver, Peer.
    PeerMemory(Communicator& communicator, const MoeShape& most);
    ~PeerMemory();
    PeerMemory(PeerMemory&&) noexcept;
    PeerMemory& operator=(PeerMemory&&) noexcept;

    /// Whether all ranks reach that of all. Where they do not, calls exchange messages.
    bool is_reached() const;
    /// That each rank has taken.
    int64_t bytes() const;

    const PeerMemoryState& state() const { return *state_; }

private:
    std::unique_ptr<PeerMemoryState> state_;
};

struct EpOptions {
    int64_t capacity = 0;  ///< rows from each rank to each other, the same on all ranks. 0: as many as are chosen, of
                           ///< which ranks tell each other first: the call waits for the GPU, and no graph captures it
    Matrix counts{};       ///< [1, ranks] i32, contiguous: written, how many rows this rank has for each; above
                           ///< `capacity` they did not fit. May be left out
    PeerMemory* memory = nullptr;  ///< of this communicator, for calls with a capacity: takes the place of messages
};

/// The layer of `moe`, whose experts are those of all ranks: E of `layer` have the ids from rank * E on, so that first
/// is 0, and ranks * E is at most 1024. Each rank passes tokens of its own, any number of them, also none; k, H, I and
/// E, the types of ids may differ, are the same on all. Rows travel in e4m3 with their scales, quantised once, and come
/// back in bf16; sums are those of `moe`, in the order of a token's choices, so that bits are those of one rank that
/// has all experts. A choice that does not fit `capacity` makes its token NaN, and `check_values`, which then waits for
/// the result, an error that names the rank. `options.rows` is 0, `options.weights_first` is not set. The workspace, of
/// ep_moe_workspace_bytes, is used where there is a capacity. On CUDA the work is queued. Throws Error as `moe`, and
/// Peer.
FINEGEMM_API void ep_moe(Context& context, Communicator& communicator, const MoeArgs& layer, const EpOptions& how = {},
                         const MoeOptions& options = {});

/// Memory that a call takes whose experts are the shape's on each of `ranks`. Throws Error(InvalidArgument).
FINEGEMM_API int64_t ep_moe_workspace_bytes(const MoeShape& shape, int32_t ranks, int64_t capacity);

}  // namespace finegemm
