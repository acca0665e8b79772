// Communicators, and the call that uses them. Layer api.
#include <bit>
#include <numeric>

#include <fmt/format.h>

#include <finegemm/ep.h>
#include <finegemm/error.h>

#include "api/argument.h"
#include "api/options.h"
#include "comm/nccl.h"
#include "comm/threads.h"
#include "ops/ep/checks.h"

namespace finegemm {

namespace {

constexpr int32_t kMostRanks = 1024;

void check_options(const CommunicatorOptions& o) {
    if (!(o.timeout_s > 0 && o.timeout_s <= 1e6))
        reject("timeout_s", "is {:g}, must be above 0 and at most 10^6; 30 is usual", o.timeout_s);
}

void check_ranks(int32_t ranks) {
    if (ranks < 1 || ranks > kMostRanks)
        reject("ranks", "is {}, must be from 1 to {}; pass how many there are", ranks, kMostRanks);
}

std::unique_ptr<comm::Group> made_group(const Context& context, const CommunicatorId& id, int32_t rank, int32_t ranks,
                                        int32_t device, const CommunicatorOptions& options) {
    check_options(options);
    check_ranks(ranks);
    if (rank < 0 || rank >= ranks) reject("rank", "is {}, must be from 0 to {}; ranks count from 0", rank, ranks - 1);
    forbid_multicast();
    auto driver = cuda::Driver::open(context.options().driver_path);
    return nccl::make_group(nccl::Library::open(context.options(), options.nccl_path), std::move(driver),
                            std::bit_cast<nccl::UniqueId>(id.bytes), rank, ranks, device,
                            comm::Seconds(options.timeout_s));
}

}  // namespace

CommunicatorId Communicator::make_id(const Context& context, const CommunicatorOptions& options) {
    forbid_multicast();
    const auto library = nccl::Library::open(context.options(), options.nccl_path);
    return {std::bit_cast<std::array<uint8_t, 128>>(library->make_id())};
}

Communicator::Communicator(const Context& context, const CommunicatorId& id, int32_t rank, int32_t ranks,
                           int32_t device, const CommunicatorOptions& options)
    : Communicator(made_group(context, id, rank, ranks, device, options)) {}

std::vector<Communicator> Communicator::of_threads(int32_t ranks, const CommunicatorOptions& options) {
    check_options(options);
    check_ranks(ranks);
    std::vector<Communicator> all;
    for (auto& group : comm::groups_of_threads(ranks, comm::Seconds(options.timeout_s)))
        all.push_back(Communicator(std::move(group)));
    return all;
}

Communicator::Communicator(std::unique_ptr<comm::Group> group) : group_(std::move(group)) {}
Communicator::~Communicator() = default;
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;

int32_t Communicator::rank() const { return group_->rank(); }
int32_t Communicator::ranks() const { return group_->ranks(); }
Device Communicator::device() const { return group_->device(); }
PeerMemory::PeerMemory(Communicator& communicator, const MoeShape& most) : state_(new PeerMemoryState) {
    comm::Group& group = communicator.group();
    check_peer_memory(most, group.ranks());
    const PeerPlaces places = peer_places(most, group.ranks());
    *state_ = {most, places.bytes, &group, group.share(static_cast<size_t>(places.bytes))};
    std::vector<int32_t> order(static_cast<size_t>(most.tokens));
    std::iota(order.begin(), order.end(), 0);
    if (order.empty()) return;
    group.store(static_cast<std::byte*>(state_->table->of(group.rank())) + places.order, order.data(),
                order.size() * sizeof order[0]);
}
PeerMemory::~PeerMemory() = default;
PeerMemory::PeerMemory(PeerMemory&&) noexcept = default;
PeerMemory& PeerMemory::operator=(PeerMemory&&) noexcept = default;

bool PeerMemory::is_reached() const { return state_->table->is_whole(); }
int64_t PeerMemory::bytes() const { return state_->bytes; }

void Communicator::wait(Stream stream) { group_->wait(stream); }
void Communicator::end() noexcept {
    group_->end(comm::name_of_rank(rank(), 0) + " ended the communicator; make another of the ranks that are left");
}

}  // namespace finegemm
