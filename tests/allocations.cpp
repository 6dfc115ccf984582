// The global operator new of the test program, which counts.
#include "tests/allocations.h"

#include <cstdlib>
#include <new>

namespace {

constinit thread_local sheaf::tests::Allocations counted;

}  // namespace

namespace sheaf::tests {

Allocations allocations() { return counted; }

}  // namespace sheaf::tests

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SHEAF_TESTS_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SHEAF_TESTS_SANITIZED
#endif
#endif

#ifndef SHEAF_TESTS_SANITIZED
void* operator new(std::size_t bytes) {
  ++counted.count;
  counted.bytes += static_cast<std::int64_t>(bytes);
  if (void* p = std::malloc(bytes > 0 ? bytes : 1)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
#endif
