// Scratch memory of a thread, kept from kernel to kernel so that steady state asks for none.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sheaf::runtime {

/// At least `bytes` bytes, 64-byte aligned, uninitialised; this thread's until its next call. Throws std::bad_alloc.
std::byte* thread_scratch(std::int64_t bytes);
/// Of the block that a thread takes for so many.
std::int64_t scratch_block_bytes(std::int64_t bytes);

}  // namespace sheaf::runtime
