// Whether this process is the one that something was made in. Layer os.
#pragma once

#include <sys/types.h>

namespace finegemm::os {

/// The process that makes it. In a child of fork threads of the parent are gone, and what they held is held for ever.
class Process {
public:
    Process();
    ~Process();
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;

    /// False in a child that was forked later. Takes about as long as a load from memory.
    bool is_this() const { return page_ ? *page_ != 0 : is_same_id(); }

private:
    bool is_same_id() const;

    const volatile char* page_ = nullptr;  // which the kernel wipes in a child; null where it cannot
    pid_t id_;
};

}  // namespace finegemm::os
