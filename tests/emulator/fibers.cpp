// The switch itself, for x86-64, and memory for stacks, each over a page that faults when a kernel's locals overflow
// it.
#include "tests/emulator/fibers.h"

#include <sys/mman.h>

#include <new>

namespace sheaf::emulator {
namespace {

using sf_host::kDescriptorBytes;
using sf_host::kStackBytes;

constexpr std::size_t kPage = 4096;

/// `kStackBytes` at a multiple of themselves.
std::byte* map_stack() {
  void* raw =
      mmap(nullptr, 2 * kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) throw std::bad_alloc();
  auto* begin = static_cast<std::byte*>(raw);
  const std::size_t skipped = (kStackBytes - reinterpret_cast<std::size_t>(begin) % kStackBytes) % kStackBytes;
  if (skipped > 0) munmap(begin, skipped);
  munmap(begin + skipped + kStackBytes, kStackBytes - skipped);
  mprotect(begin + skipped, kPage, PROT_NONE);
  return begin + skipped;
}

}  // namespace

// Everything a call preserves: six registers and the stack pointer. Control words are nobody's business here.
__attribute__((naked, noinline)) void switch_context(void** /*save*/, void* /*to*/) {
  asm("pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
      "movq %rsp, (%rdi)\n"
      "movq %rsi, %rsp\n"
      "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n"
      "ret");
}

StackPool::~StackPool() {
  for (std::byte* stack : stacks_) munmap(stack, kStackBytes);
}

sf_host::Thread* StackPool::take() {
  if (free_.empty()) {
    stacks_.push_back(map_stack());
    return new (stacks_.back() + kStackBytes - kDescriptorBytes) sf_host::Thread{};
  }
  sf_host::Thread* stack = free_.back();
  free_.pop_back();
  return stack;
}

void* StackPool::context(sf_host::Thread* stack, void (*main)()) {
  // Stacks that all began at the same offset of a page would meet in the same cache lines.
  const std::size_t stagger = reinterpret_cast<std::size_t>(stack) / kStackBytes % 32 * 448 / 64 * 64;
  auto** top = reinterpret_cast<void**>(reinterpret_cast<std::byte*>(stack) - 64 - stagger);
  *--top = nullptr;  // where `main` would return to: keeps the alignment a call gives
  *--top = reinterpret_cast<void*>(main);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  return top;
}

}  // namespace sheaf::emulator
