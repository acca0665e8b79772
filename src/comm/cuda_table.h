// Memory of GPUs of one host that they reach of each other. Layer comm.
#pragma once

#include "comm/group.h"
#include "cuda/device.h"

namespace finegemm::comm {

/// How a rank is told where another's memory is.
struct Address {
    char host[40];           // that is running, as it names this boot
    char process[64];        // of it
    int32_t device;          // as the process counts
    uint32_t named;          // whether `name` is one
    uint64_t bytes;          // 0: there was no memory
    cuda::DevicePtr memory;  // in its process
    cuda::MemoryName name;   // for others of the host
};

/// Ranks of a process reach each other by peer access, those of others by CUDA's names of memory.
class CudaTable final : public PeerTable {
public:
    /// `device`: its index, which is current. `stream`: for zeros.
    CudaTable(std::shared_ptr<const cuda::Driver> driver, int device, int rank, int ranks, size_t bytes, void* stream);
    ~CudaTable() override;

    const Address& address() const { return address_; }
    /// The addresses of all ranks. Throws Error(Driver) where this rank had no memory, Error(Peer) where others had
    /// none, or as much as another.
    void reach(const std::vector<Address>& all);
    bool reaches_all() const;
    /// What each rank says of itself: all do the same.
    void agree(const std::vector<uint8_t>& reach_all);

private:
    void* reached(const Address& other);

    const std::shared_ptr<const cuda::Driver> driver_;
    const cuda::Device device_;  // of its own: it may outlive the group
    const int rank_;
    Address address_{};
    cuda::Result no_memory_ = 0;
    std::vector<cuda::DevicePtr> opened_;                // of other processes
    std::vector<std::unique_ptr<cuda::Device>> others_;  // of this one, whose contexts must stay
};

}  // namespace finegemm::comm
