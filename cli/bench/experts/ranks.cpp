// Layers of experts over ranks, each a thread. Layer cli.
#include "cli/bench/experts/ranks.h"

#include <algorithm>
#include <exception>
#include <thread>

#include <fmt/format.h>

#include <finegemm/error.h>

#include "cli/bench/codes.h"
#include "cli/bench/experts/experts.h"
#include "cli/bench/trial.h"
#include "cli/random.h"
#include "workbench/exchange.h"

namespace finegemm::cli {

namespace {

constexpr int kFewest = 2;

std::vector<Target> targets_of(Context& context, const std::string& device, int count) {
    if (device != "auto" && device != "cpu" && device != "cuda")
        throw Error(Errc::InvalidArgument,
                    fmt::format("--device '{}': must be auto, cpu or cuda, whose GPUs are ranks from 0 on", device));
    std::vector<Target> targets;
    std::string why = "there are no more";
    try {
        while (device != "cpu" && (count == 0 || std::ssize(targets) < count))
            targets.push_back(choose_target(context, fmt::format("cuda:{}", targets.size())));
    } catch (const Error& e) {
        why = e.what();
    }
    const int wanted = count > 0 ? count : kFewest;
    if (std::ssize(targets) >= wanted) return targets;
    if (device == "cuda")
        throw Error(Errc::Unsupported, fmt::format("--ranks: {} GPUs are needed and there are {} to use: {}; --device "
                                                   "cpu has as many ranks as are asked for",
                                                   wanted, targets.size(), why));
    targets.clear();
    for (int r = 0; r < wanted; ++r) targets.push_back({nullptr, "cpu", ""});
    return targets;
}

/// Memory of a rank's device.
class Memory {
public:
    Memory(const Target& target, int64_t bytes) {
        const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
        if (!target.gpu) host_.resize(size);
        data_ = target.gpu ? target.gpu->allocate(size) : host_.data();
        if (target.gpu) target.gpu->fill(data_, 0x11, size);
    }
    uint8_t* data() const { return static_cast<uint8_t*>(data_); }

private:
    std::vector<uint8_t> host_;
    void* data_ = nullptr;
};

/// The most choices of one rank's tokens for another, in whole sixteens: what fits them all.
int64_t capacity_for(Mirrored& ids, const MoeShape& shape, int ranks) {
    std::vector<int64_t> counts(static_cast<size_t>(ranks * ranks));
    const int64_t experts = shape.experts / ranks, of_rank = shape.tokens * shape.choices;
    for (int64_t i = 0; i < ranks * of_rank; ++i)
        ++counts[static_cast<size_t>(i / of_rank * ranks + integers(ids)[i] / experts)];
    return (*std::ranges::max_element(counts) + 15) / 16 * 16;
}

/// One rank's operands, with the tokens of all ranks.
class Rank {
public:
    Rank(const Target& target, Communicator& communicator, const MoeShape& shape, bool zipf, uint64_t seed,
         const HostMatrix& codes, const HostMatrix& values)
        : target_(target),
          communicator_(communicator),
          shape_(shape_of_rank(shape, communicator.ranks())),
          all_(shape.tokens * communicator.ranks()),
          experts_(target, shape_, codes, seed + 1 + 2 * static_cast<uint64_t>(communicator.rank())),
          x_(mirrored(target, DType::BF16, all_, shape.hidden)),
          ids_(mirrored(target, DType::I32, all_, shape.choices)),
          weights_(mirrored(target, DType::F32, all_, shape.choices)),
          out_(mirrored(target, DType::BF16, shape.tokens, shape.hidden)),
          local_(mirrored(target, DType::BF16, all_, shape.hidden)) {
        fill(x_.host, values, 0);
        upload(target, x_.host, x_.there);
        choose(target, ids_, weights_, shape.experts, seed, zipf ? 1 : 0);
        capacity_ = capacity_for(ids_, shape, communicator.ranks());
    }

    RanksTimes time(Context& context, int repeats) {
        const int ranks = communicator_.ranks(), rank = communicator_.rank();
        const int64_t rows = ranks * capacity_, sent = sent_row_bytes(shape_.hidden), back = 2 * shape_.hidden;
        const Memory workspace(target_, ep_moe_workspace_bytes(shape_, ranks, capacity_));
        const Memory from(target_, rows * std::max(sent, back)), to(target_, rows * std::max(sent, back));
        MoeArgs own = args(rank * shape_.tokens, shape_.tokens, out_), all = args(0, all_, local_);
        own.workspace = workspace.data();
        own.workspace_bytes = ep_moe_workspace_bytes(shape_, ranks, capacity_);
        all.first = rank * shape_.experts;
        const int64_t each = all_ * shape_.choices / (ranks * shape_.experts);
        PeerMemory peers(communicator_, shape_);
        const std::function<void()> layer = [&] { ep_moe(context, communicator_, own, {.capacity = capacity_}); },
                                    memory =
                                        [&] {
                                            ep_moe(context, communicator_, own,
                                                   {.capacity = capacity_, .memory = &peers});
                                        },
                                    local = [&] { moe(context, all, {.expected_m = std::max<int64_t>(each, 1)}); },
                                    exchange = [&] {
                                        exchange_evenly(communicator_, from.data(), to.data(), capacity_ * sent);
                                        exchange_evenly(communicator_, to.data(), from.data(), capacity_ * back);
                                    };
        if (!target_.gpu)
            return {median_time(target_, repeats, layer), median_time(target_, repeats, local),
                    median_time(target_, repeats, exchange), median_time(target_, repeats, memory)};
        // Ranks meet before each, so that none waits for another that is late.
        const std::function<void()> meet = [&] { exchange_evenly(communicator_, from.data(), to.data(), 1); };
        std::vector<std::function<void()>> calls = {meet, layer, meet, local, meet, exchange};
        if (peers.is_reached()) calls.insert(calls.end(), {meet, memory});
        std::vector<double> us = target_.gpu->time(repeats, calls);
        us.resize(8);
        communicator_.wait();  // the memory goes when all ranks have used it
        return {us[1], us[3], us[5], us[7]};
    }

    int64_t capacity() const { return capacity_; }
    Experts& experts() { return experts_; }

    /// The largest error of some of its tokens, as a share of its bound. `all`: the ranks, for their experts.
    double error(const std::vector<std::unique_ptr<Rank>>& all) {
        constexpr int64_t kTokens = 3;
        download(target_, out_.host, out_.there);
        Trial::Check result;
        for (int64_t i = 0; i < std::min(kTokens, shape_.tokens); ++i) {
            const int64_t t = i * (shape_.tokens - 1) / std::max<int64_t>(kTokens - 1, 1);
            const int64_t row = communicator_.rank() * shape_.tokens + t;
            LayerTruth truth(rows_of(x_.host.view(), row, 1));
            for (int64_t at = row * shape_.choices; at < (row + 1) * shape_.choices; ++at) {
                const int64_t id = integers(ids_)[at];
                all[static_cast<size_t>(id / shape_.experts)]->experts_.add(truth, id % shape_.experts,
                                                                            static_cast<double>(floats(weights_)[at]));
            }
            result.add(truth.relative_error(rows_of(out_.host.view(), t, 1)), 0, kLayerError);
        }
        return result.of_bound;
    }

private:
    MoeArgs args(int64_t first, int64_t count, const Mirrored& out) {
        return experts_.args(rows_of(x_.there, first, count), rows_of(ids_.there, first, count),
                             rows_of(weights_.there, first, count), out.there, false);
    }

    const Target& target_;
    Communicator& communicator_;
    MoeShape shape_;  // of this rank
    int64_t all_;     // tokens
    Experts experts_;
    Mirrored x_, ids_, weights_, out_, local_;
    int64_t capacity_ = 0;
};

}  // namespace

MoeShape shape_of_rank(const MoeShape& shape, int ranks) {
    if (shape.experts % ranks != 0)
        throw Error(Errc::InvalidArgument,
                    fmt::format("experts: are {} over {} ranks, must be a multiple: each rank has as many",
                                shape.experts, ranks));
    if (shape.biased)
        throw Error(Errc::InvalidArgument,
                    "biased: is given, but experts of several ranks have no biases; leave it out");
    MoeShape of_rank = shape;
    of_rank.experts = shape.experts / ranks;
    return of_rank;
}

Ranks::Ranks(Context& context, const std::string& device, int count, uint64_t seed)
    : context_(context),
      seed_(seed),
      codes_(random_codes(context)),
      values_(random_bf16(seed)),
      targets_(targets_of(context, device, count)),
      communicators_(targets_.size()) {
    if (!on_gpus()) {
        for (auto to = communicators_.begin(); Communicator& made : Communicator::of_threads(this->count()))
            *to++ = std::make_unique<Communicator>(std::move(made));
        return;
    }
    const CommunicatorId id = Communicator::make_id(context);
    on_ranks([&](int rank) {
        communicators_[static_cast<size_t>(rank)] =
            std::make_unique<Communicator>(context_, id, rank, this->count(), rank);
    });
}

void Ranks::on_ranks(const std::function<void(int rank)>& body) {
    std::vector<std::exception_ptr> errors(targets_.size());
    std::vector<std::thread> threads;
    threads.reserve(targets_.size());
    for (size_t r = 0; r < targets_.size(); ++r)
        threads.emplace_back([&, r] {
            try {
                body(static_cast<int>(r));
            } catch (...) {
                errors[r] = std::current_exception();
                if (communicators_[r]) communicators_[r]->end();
            }
        });
    for (std::thread& thread : threads) thread.join();
    std::exception_ptr first;
    for (const std::exception_ptr& error : errors) {
        if (!error) continue;
        try {
            std::rethrow_exception(error);
        } catch (const Error& e) {
            if (!first || e.code() != Errc::Peer) first = error;  // others tell of it
        } catch (...) {
            first = error;
        }
    }
    if (first) std::rethrow_exception(first);
}

RanksMeasured Ranks::measure(const MoeShape& shape, bool zipf, int repeats) {
    static_cast<void>(shape_of_rank(shape, count()));
    std::vector<std::unique_ptr<Rank>> ranks(targets_.size());
    std::vector<RanksTimes> times(targets_.size());
    on_ranks([&](int r) {
        const auto at = static_cast<size_t>(r);
        ranks[at] = std::make_unique<Rank>(targets_[at], *communicators_[at], shape, zipf, seed_, codes_, values_);
        times[at] = ranks[at]->time(context_, repeats);
    });
    RanksMeasured result{.capacity = ranks[0]->capacity()};
    for (size_t r = 0; r < ranks.size(); ++r) {
        result.us.layer = std::max(result.us.layer, times[r].layer);
        result.us.local = std::max(result.us.local, times[r].local);
        result.us.exchange = std::max(result.us.exchange, times[r].exchange);
        result.us.memory = std::max(result.us.memory, times[r].memory);
        result.of_bound = std::max(result.of_bound, ranks[r]->error(ranks));
    }
    for (const Target& target : targets_)
        if (target.gpu) target.gpu->release();
    return result;
}

}  // namespace finegemm::cli
