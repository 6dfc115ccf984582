// Bytes from GPU to GPU, or within one, without the host: the target's copy stream fetches them once they are made, and
// nobody waits for it who does not need them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "runtime/assemble.h"
#include "runtime/backend.h"
#include "runtime/buffer.h"

namespace sheaf::runtime {

/// A block of an array on a GPU, as copy_block of assemble.h takes it.
struct BlockOnGpu {
  CudaContext* gpu = nullptr;
  std::shared_ptr<Storage> from;
  std::shared_ptr<Completion> made_by;  // null: it is there
  Region in, out;
  Shape extent;
};

/// Copies the blocks to `into`, memory of `target` that nothing in flight touches. Waits until all of them are made or
/// asked for; `completion` is finished, or in flight.
void copy_across(Backend& target, const std::shared_ptr<Storage>& into, std::span<const BlockOnGpu> blocks,
                 std::int64_t element_bytes, const std::shared_ptr<Completion>& completion);

}  // namespace sheaf::runtime
