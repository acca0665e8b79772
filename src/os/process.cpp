// Whether this process is the one that something was made in. Layer os.
#include "os/process.h"

#include <sys/mman.h>
#include <unistd.h>

namespace finegemm::os {

namespace {

size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

Process::Process() : id_(getpid()) {
    void* page = mmap(nullptr, page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return;
    if (madvise(page, page_bytes(), MADV_WIPEONFORK) != 0) {  // Linux before 4.14
        munmap(page, page_bytes());
        return;
    }
    *static_cast<char*>(page) = 1;
    page_ = static_cast<const char*>(page);
}

Process::~Process() {
    if (page_) munmap(const_cast<char*>(page_), page_bytes());
}

bool Process::is_same_id() const { return getpid() == id_; }

}  // namespace finegemm::os
