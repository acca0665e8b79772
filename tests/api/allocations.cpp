// The test program's operator new; apart from what uses it, as compilers warn where they see malloc behind a new.
// Layer tests.
#include "api/allocations.h"

#include <cstdlib>
#include <new>

namespace {
thread_local int64_t count = 0;
}  // namespace

void* operator new(size_t bytes) {
    ++count;
    if (void* p = std::malloc(bytes)) return p;
    throw std::bad_alloc();
}
// std::stable_sort takes this one, and gives back with the plain delete.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
    ++count;
    return std::malloc(bytes);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }

int64_t finegemm::test::allocations() { return count; }
