// Copies of a thread that may land later. Layer tests.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace finegemm::host_kernel {

class Copies {
public:
    using Copy = std::function<void()>;

    void start(Copy copy) { copies_.push_back(std::move(copy)); }
    /// What has been started since the last call is a group.
    void end_group() { groups_.push_back(copies_.size()); }
    /// All groups land but the `last` ones.
    void land_groups_but(size_t last) {
        if (groups_.size() <= last) return;
        const size_t landed = groups_[groups_.size() - 1 - last];
        for (size_t i = 0; i < landed; ++i) copies_[i]();
        copies_.erase(copies_.begin(), copies_.begin() + static_cast<ptrdiff_t>(landed));
        groups_.erase(groups_.begin(), groups_.end() - static_cast<ptrdiff_t>(last));
        for (size_t& end : groups_) end -= landed;
    }
    /// What lands all that have not; none is left.
    Copy take() {
        groups_.clear();
        return [copies = std::exchange(copies_, {})] {
            for (const Copy& copy : copies) copy();
        };
    }

private:
    std::vector<Copy> copies_;
    std::vector<size_t> groups_;  // how many copies are in each group and those before it
};

}  // namespace finegemm::host_kernel
