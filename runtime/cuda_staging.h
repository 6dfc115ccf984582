// Pinned memory of the host that copies pass through, so that neither the driver nor the caller waits for the other:
// a ring of slots, each free again when the event behind its last copy is over.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/cuda_context.h"

namespace sheaf::runtime {

class CudaStaging {
 public:
  /// The memory is had when it is first needed.
  explicit CudaStaging(CudaContext& gpu) : gpu_(gpu) {}

  /// The host's bytes are free when it returns.
  absl::Status write(cuda::CUstream stream, std::byte* to, const std::byte* host, std::int64_t bytes);
  /// The host's bytes are there when it returns.
  absl::Status read(cuda::CUstream stream, std::byte* host, const std::byte* from, std::int64_t bytes);

 private:
  static constexpr std::int64_t kSlotBytes = 512 << 10;
  static constexpr int kSlots = 8;
  struct Slot {
    std::byte* data = nullptr;
    cuda::CUevent end = nullptr;
  };
  absl::Status start();
  /// The next one, when it is free.
  absl::StatusOr<Slot*> take();

  CudaContext& gpu_;
  std::mutex mutex_;
  std::array<Slot, kSlots> slots_;
  int next_ = 0;
};

/// Pinned memory for a few bytes each, which work that nobody waits for leaves there.
class CudaNotes {
 public:
  static constexpr std::int64_t kBytes = 64;
  explicit CudaNotes(CudaContext& gpu) : gpu_(gpu) {}
  absl::StatusOr<std::shared_ptr<std::byte>> take();

 private:
  CudaContext& gpu_;
  std::mutex mutex_;
  std::vector<std::byte*> free_;
};

}  // namespace sheaf::runtime
