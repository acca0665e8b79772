// A model of the kernel's ring: mbarriers are integers, roles are agents, steps are taken in random order. It uses
// the kernel's own cursor and arrival counts, so an edit of these is checked; it knows no memory order.
// Layer tests.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include <finegemm/core/arrivals.h>
#include <finegemm/core/k_slices.h>
#include <finegemm/core/ring.h>

namespace finegemm::test {

enum class Outcome { Finished, Deadlock, Overwritten, ReadBeforeWrite };

/// PTX ISA, mbarrier: a phase ends when all arrivals are there and no expected byte is missing.
struct Mbarrier {
    int32_t expected = 1, pending = 1, bytes = 0;
    uint32_t phase = 0;

    void init(uint32_t arrivals) { expected = pending = static_cast<int32_t>(arrivals); }
    void arrive(int32_t expected_bytes = 0) {
        bytes += expected_bytes;
        --pending;
        settle();
    }
    void receive(int32_t received) {  // may come before it is expected: multicast by a neighbour
        bytes -= received;
        settle();
    }
    constexpr bool passed(uint32_t parity) const { return phase != parity; }

private:
    void settle() {
        if (pending > 0 || bytes != 0) return;
        pending += expected;
        phase ^= 1;
    }
};

/// All CTAs that share loads, walking over `tiles` tiles of `blocks` k-blocks; with k-slices, over one tile of as many.
template <GemmConfig C>
class RingModel {
public:
    /// What tests break to see that it matters.
    struct Rules {
        uint32_t full = full_arrivals(C), empty = empty_arrivals(C);
        uint32_t vector = scale_vector_blocks(C);  // k-blocks of a vector of scales, which one scale warp owns
        uint32_t producers = kProducerWarps;       // that own k-blocks round-robin, where they do
    };

    RingModel(uint32_t tiles, uint32_t blocks, uint32_t seed, Rules rules = {})
        : total_(tiles * blocks), tile_blocks_(C.k_slices() > 1 ? total_ : blocks), rules_(rules), random_(seed) {
        for (auto& cta : stages_)
            for (Stage& stage : cta) {
                stage.full.init(rules.full);
                stage.empty.init(rules.empty);
            }
        for (uint32_t rank = 0; rank < kRanks; ++rank) {
            add_producers(rank);
            for (uint32_t warp = 0; warp < 4 * C.math_warpgroups; ++warp) {
                Agent agent{
                    .role = Role::Math, .rank = rank, .at = Cursor::consumer(), .block = k_slice_of(C, warp / 4)};
                agent.at += agent.block;
                agents_.push_back(agent);
            }
        }
        // Some are slow, and others for each seed: so that the fast ones run as far ahead as the barriers let them.
        for (Agent& agent : agents_) agent.patience = random_() % 3 == 0 ? 40 : 1;
        delivery_patience_ = random_() % 3 == 0 ? 40 : 1;
    }

    Outcome run() {
        while (outcome_ == Outcome::Finished && step_any()) {}
        if (outcome_ != Outcome::Finished) return outcome_;
        for (const Agent& agent : agents_)
            if (agent.block < total_ + kEnd) return Outcome::Deadlock;
        return deliveries_.empty() ? Outcome::Finished : Outcome::Deadlock;
    }

private:
    using Cursor = RingCursor<C.stages>;
    static constexpr uint32_t kRanks = producers_served(C);
    /// Grouped kernels publish the end as a block without tiles, on which the math warps wait like on any other.
    static constexpr uint32_t kEnd = C.grouped() ? 1 : 0;
    static constexpr uint32_t kAParts = C.a_sharers(), kBParts = C.b_sharers(), kScaleParts = kAParts + kBParts;

    struct Stage {
        Mbarrier full, empty;
        std::array<uint32_t, kScaleParts + 2> written{};  // each part of A, of B, the scales: blocks written so far
    };
    enum class Role { Tma, Scales, Blocks, Math };
    struct Agent {
        Role role;
        uint32_t rank;
        uint32_t warp = 0;  // scales: which
        Cursor at = {};
        uint32_t block = 0;  // the one that it works on
        bool holds = false;  // math: it reads `held`
        uint32_t held = 0;
        uint32_t patience = 1;  // acts in one of so many steps
    };
    /// Something on its way, which others may overtake: part of a tile, scales, or an arrival at a neighbour's barrier.
    struct Delivery {
        enum Kind { Tile, Scales, Arrival };
        uint32_t rank, stage, part, block;
        Kind kind;
    };

    Stage& stage(uint32_t rank, uint32_t index) { return stages_[rank][index]; }

    void add_producers(uint32_t rank) {
        if (round_robin_producers(C)) {
            for (uint32_t warp = 0; warp < rules_.producers; ++warp) {
                Agent agent{.role = Role::Blocks, .rank = rank, .at = Cursor::producer(), .block = warp};
                agent.at += warp;
                agents_.push_back(agent);
            }
            return;
        }
        agents_.push_back({.role = Role::Tma, .rank = rank, .at = Cursor::producer()});
        for (uint32_t warp = 0; warp < kScaleWarps; ++warp)
            agents_.push_back({.role = Role::Scales, .rank = rank, .warp = warp, .at = Cursor::producer()});
    }

    bool step_any() {
        const auto count = static_cast<uint32_t>(agents_.size() + deliveries_.size());
        const auto start = static_cast<uint32_t>(random_() % count);
        for (const bool patient : {true, false})
            for (uint32_t i = 0; i < count; ++i) {
                const uint32_t chosen = (start + i) % count;
                if (patient && random_() % patience(chosen) != 0) continue;
                if (step(chosen)) return true;
            }
        return false;
    }
    uint32_t patience(uint32_t index) const {
        return index < agents_.size() ? agents_[index].patience : delivery_patience_;
    }

    bool step(uint32_t index) {
        if (index >= agents_.size()) {
            deliver(index - static_cast<uint32_t>(agents_.size()));
            return true;
        }
        Agent& agent = agents_[index];
        if (agent.block >= total_ + kEnd) return false;
        switch (agent.role) {
            case Role::Tma: return load_tiles(agent);
            case Role::Scales: return load_scales(agent);
            case Role::Blocks: return load_block(agent);
            case Role::Math: return multiply(agent);
        }
        return false;
    }

    bool load_tiles(Agent& agent) {
        Stage& own = stage(agent.rank, agent.at.stage);
        if (!own.empty.passed(agent.at.parity)) return false;
        if (agent.block == total_) {
            own.full.arrive();
            ++agent.block;
            return true;
        }
        load_tile(agent);
        ++agent.at;
        ++agent.block;
        return true;
    }

    void load_tile(const Agent& agent) {
        stage(agent.rank, agent.at.stage).full.arrive(kAParts + kBParts);
        const auto send = [&](uint32_t part, bool to_all) {
            for (uint32_t rank = 0; rank < kRanks; ++rank)
                if (to_all || rank == agent.rank)
                    deliveries_.push_back({rank, agent.at.stage, part, agent.block, Delivery::Tile});
        };
        send(kAParts > 1 ? agent.rank : 0, kAParts > 1);
        send(kAParts + (kBParts > 1 ? agent.rank : 0), kBParts > 1);
    }

    /// Tiles and scales, by a round-robin producer.
    bool load_block(Agent& agent) {
        if (!stage(agent.rank, agent.at.stage).empty.passed(agent.at.parity)) return false;
        load_tile(agent);
        send_scales(agent);
        agent.at += rules_.producers;
        agent.block += rules_.producers;
        return true;
    }

    /// Copies land later: those of a warp's last lane are a delivery here, those of its other lanes another one.
    void send_scales(const Agent& agent) {
        for (const uint32_t part : {kScaleParts, kScaleParts + 1})
            deliveries_.push_back({agent.rank, agent.at.stage, part, agent.block, Delivery::Scales});
    }

    bool load_scales(Agent& agent) {
        const bool mine = C.scales == ScaleLayout::Rows
                              ? agent.block / rules_.vector % vector_scale_warps(C) == agent.warp
                              : agent.at.stage % kScaleWarps == agent.warp;
        if (mine) {
            if (!stage(agent.rank, agent.at.stage).empty.passed(agent.at.parity)) return false;
            send_scales(agent);
        }
        ++agent.at;
        ++agent.block;
        return true;
    }

    /// A stage is released when the next one of the same tile is there: that one's multiplication runs by then.
    bool multiply(Agent& agent) {
        const uint32_t next = agent.block + C.k_slices();
        const bool starts = !agent.holds || C.grouped() || next / tile_blocks_ == agent.block / tile_blocks_;
        if (starts && !stage(agent.rank, agent.at.stage).full.passed(agent.at.parity)) return false;
        if (agent.holds) {
            check(agent);  // still what it was
            release(agent);
            agent.holds = false;
            agent.block = next;
        }
        if (starts && agent.block == total_) {
            ++agent.block;
        } else if (starts) {
            agent.held = agent.at.stage;
            agent.holds = true;
            agent.at += C.k_slices();
            check(agent);
        }
        return true;
    }

    void check(const Agent& agent) {
        for (const uint32_t written : stage(agent.rank, agent.held).written) {
            if (written < agent.block + 1) outcome_ = Outcome::ReadBeforeWrite;
            if (written > agent.block + 1) outcome_ = Outcome::Overwritten;
        }
    }

    void release(const Agent& agent) {
        for (uint32_t rank = 0; rank < kRanks; ++rank) {
            if (rank == agent.rank) stage(rank, agent.held).empty.arrive();
            else deliveries_.push_back({rank, agent.held, 0, 0, Delivery::Arrival});
        }
    }

    void deliver(uint32_t index) {
        const Delivery d = deliveries_[index];
        deliveries_[index] = deliveries_.back();
        deliveries_.pop_back();
        Stage& to = stage(d.rank, d.stage);
        if (d.kind == Delivery::Arrival) return to.empty.arrive();
        to.written[d.part] = d.block + 1;
        if (d.kind == Delivery::Tile) return to.full.receive(1);
        for (uint32_t lane = d.part == kScaleParts ? 1 : kWarpSize - 1; lane < kWarpSize; ++lane) to.full.arrive();
    }

    uint32_t total_, tile_blocks_;
    Rules rules_;
    std::mt19937 random_;
    std::array<std::array<Stage, C.stages>, kRanks> stages_;
    std::vector<Agent> agents_;
    std::vector<Delivery> deliveries_;
    uint32_t delivery_patience_ = 1;
    Outcome outcome_ = Outcome::Finished;
};

}  // namespace finegemm::test
