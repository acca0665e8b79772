// Memory of GPUs of one host that they reach of each other. Layer comm.
#include "comm/cuda_table.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include <finegemm/error.h>

namespace finegemm::comm {

namespace {

template <size_t Size>
void copy_text(char (&to)[Size], std::string_view text) {
    std::memset(to, 0, Size);
    text.copy(to, Size - 1);
}

/// This boot of the host, which containers share.
std::string host() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string id;
    std::getline(file, id);
    return id;
}

/// Numbers of processes are of their namespace.
std::string process() {
    char space[32] = {};
    static_cast<void>(readlink("/proc/self/ns/pid", space, sizeof space - 1));
    return fmt::format("{} {}", space, getpid());
}

}  // namespace

CudaTable::CudaTable(std::shared_ptr<const cuda::Driver> driver, int device, int rank, int ranks, size_t bytes,
                     void* stream)
    : PeerTable(ranks), driver_(std::move(driver)), device_(driver_, device), rank_(rank) {
    const cuda::Api& api = driver_->api;
    copy_text(address_.host, host());
    copy_text(address_.process, process());
    address_.device = device;
    constexpr size_t kBlock = 2 << 20;  // a name is that of a whole block: what else lies there would be shown, too
    no_memory_ = api.MemAlloc(&address_.memory, (bytes + kBlock - 1) / kBlock * kBlock);
    if (no_memory_ != 0) return;  // told to the others, who wait
    address_.bytes = bytes;
    of_[static_cast<size_t>(rank)] = reinterpret_cast<void*>(address_.memory);
    address_.named = api.IpcGetMemHandle(&address_.name, address_.memory) == 0;
    driver_->check(api.MemsetD8Async(address_.memory, 0, bytes, stream), "cuMemsetD8Async");
    driver_->check(api.StreamSynchronize(stream), "cuStreamSynchronize");
}

CudaTable::~CudaTable() {
    if (!driver_->process.is_this()) return;
    const cuda::CurrentDevice current(device_);
    for (const cuda::DevicePtr memory : opened_) static_cast<void>(driver_->api.IpcCloseMemHandle(memory));
    if (address_.bytes > 0) static_cast<void>(driver_->api.MemFree(address_.memory));
}

void CudaTable::reach(const std::vector<Address>& all) {
    driver_->check(no_memory_, "cuMemAlloc");
    for (size_t r = 0; r < all.size(); ++r)
        if (all[r].bytes != address_.bytes)
            throw Error(Errc::Peer,
                        all[r].bytes == 0
                            ? fmt::format("memory: {} had none to give", name_of_rank(static_cast<int>(r), 0))
                            : fmt::format("memory: {} has {} bytes, {} has {}; all ranks pass the same shape",
                                          name_of_rank(static_cast<int>(r), 0), all[r].bytes, name_of_rank(rank_, 0),
                                          address_.bytes));
    for (size_t r = 0; r < all.size(); ++r)
        if (!of_[r]) of_[r] = reached(all[r]);
}

bool CudaTable::reaches_all() const {
    return std::ranges::all_of(of_, [](const void* memory) { return memory != nullptr; });
}

void CudaTable::agree(const std::vector<uint8_t>& reach_all) {
    whole_ = std::ranges::all_of(reach_all, [](uint8_t reaches) { return reaches != 0; });
}

/// Null where there is no way, which is no error: messages have one.
void* CudaTable::reached(const Address& other) {
    const cuda::Api& api = driver_->api;
    constexpr cuda::Result kAlreadyEnabled = 704;  // CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
    if (std::strcmp(other.host, address_.host) != 0 || address_.host[0] == '\0') return nullptr;
    if (std::strcmp(other.process, address_.process) != 0) {
        cuda::DevicePtr memory = 0;
        if (other.named == 0 || api.IpcOpenMemHandle(&memory, other.name, cuda::kLazyPeerAccess) != 0) return nullptr;
        opened_.push_back(memory);
        return reinterpret_cast<void*>(memory);
    }
    if (other.device != address_.device) {
        auto device = std::make_unique<cuda::Device>(driver_, other.device);
        int can = 0;
        if (api.DeviceCanAccessPeer(&can, device_.handle(), device->handle()) != 0 || can == 0) return nullptr;
        const cuda::Result enabled = api.CtxEnablePeerAccess(device->context(), 0);
        if (enabled != 0 && enabled != kAlreadyEnabled) return nullptr;
        others_.push_back(std::move(device));
    }
    return reinterpret_cast<void*>(other.memory);
}

}  // namespace finegemm::comm
