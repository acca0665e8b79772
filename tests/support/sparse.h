// Memory of zeros, of which only what is written takes any. Layer tests.
#pragma once

#include <sys/mman.h>

#include <cstddef>

namespace finegemm::test {

class Sparse {
public:
    explicit Sparse(size_t bytes)
        : bytes_(bytes),
          data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
    ~Sparse() {
        if (ok()) munmap(data_, bytes_);
    }
    Sparse(const Sparse&) = delete;
    Sparse& operator=(const Sparse&) = delete;

    bool ok() const { return data_ != MAP_FAILED; }
    template <typename T>
    T* as() const {
        return static_cast<T*>(data_);
    }

private:
    size_t bytes_;
    void* data_;
};

}  // namespace finegemm::test
