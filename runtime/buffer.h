// A Buffer is memory on a device plus the completion that says when its bytes may be read. Invariant: it goes through
// the states of docs/async.md and no others; all outputs of one execution share one completion.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "runtime/allocator.h"
#include "runtime/flight.h"
#include "runtime/packed_copies.h"
#include "sheaf/source.h"

namespace sheaf::runtime {

class Device;

/// Becomes ready or failed exactly once: when it is said, or with work that a device was asked for (`issue`). Who waits
/// for the latter asks the device; nobody is told by it.
class Completion {
 public:
  ~Completion();
  void finish(absl::Status status);
  void issue(std::vector<FlightPtr> flights);
  bool is_pending() const;
  /// Blocks while pending; marks an error as told.
  absl::Status wait();
  /// The error without marking it as told; OK while pending.
  absl::Status peek() const;
  /// Whether its work is known: done, or asked for. Then another device can wait for it without the host.
  bool is_issued() const { return state_.load(std::memory_order_acquire) != 0; }
  /// Blocks until then; an error that is known marks as told.
  absl::Status wait_for_issue();
  /// Whether it is ready or failed as far as anybody has looked.
  bool is_known() const;
  /// Whether it is known to be ready, so that no error can come of it.
  bool is_known_ready() const { return is_known() && peek().ok(); }
  /// What is to be waited for; empty when it is known.
  std::vector<EventPtr> events() const;

 private:
  absl::Status outcome() const;  // of what is not pending

  std::atomic<std::uint32_t> state_{0};  // 0 pending, 1 ready, 2 error, 3 in flight
  std::atomic<bool> is_told_{false};
  absl::Status status_;  // written before state_ becomes 2, never after
  std::vector<FlightPtr> flights_;  // the same for 3
};

/// A block of an allocator, given back when the last user is gone.
class Memory {
 public:
  Memory(Allocator& allocator, Block block) : allocator_(allocator), block_(block) {}
  ~Memory() { allocator_.release(block_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  static absl::StatusOr<std::shared_ptr<Memory>> allocate(Allocator& allocator, std::int64_t bytes, Loc made_at);

  std::byte* data() const { return block_.data; }

 private:
  Allocator& allocator_;
  Block block_;
};

/// The contents of one buffer. A donation makes a new Storage over the same memory, so the uses counted here are those
/// of the old contents only. Two kinds of use keep them from being overwritten. A *pin* is an execution that was
/// dispatched and is not done: who takes the memory waits for it. A *view* is a host pointer, which may be held for
/// ever: while there is one, the memory cannot be taken at all.
class Storage {
 public:
  explicit Storage(std::shared_ptr<Memory> memory) : memory_(std::move(memory)) {}
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  std::byte* data() const { return memory_->data(); }
  const std::shared_ptr<Memory>& memory() const { return memory_; }

  void pin() { pins_.fetch_add(1, std::memory_order_relaxed); }
  void unpin();
  int pins() const { return pins_.load(std::memory_order_acquire); }
  /// Blocks until at most `pins` pins are left.
  void wait_for_pins(int pins);
  /// Another device reads the contents until this is over: who takes the memory comes after it.
  void add_reader(EventPtr event);
  std::vector<EventPtr> readers() const;
  /// Copies for the CPU's products.
  PackedCopies& packed();

  /// False while claimed.
  bool begin_view();
  void end_view() { views_.fetch_sub(1, std::memory_order_release); }
  /// Keeps views away while the memory changes hands; false if there is a view.
  bool claim();
  void end_claim() { views_.store(0, std::memory_order_release); }

 private:
  static constexpr int kClaimed = -1;

  const std::shared_ptr<Memory> memory_;
  std::atomic<int> pins_{0};
  std::atomic<int> views_{0};
  mutable std::mutex mutex_;  // guards the rest
  std::vector<EventPtr> readers_;
  std::unique_ptr<PackedCopies> packed_;  // null: nobody has asked
};

/// A dispatched use of a Storage.
class Pin {
 public:
  explicit Pin(std::shared_ptr<Storage> storage) : storage_(std::move(storage)) { storage_->pin(); }
  ~Pin() {
    if (storage_) storage_->unpin();
  }
  Pin(Pin&& other) noexcept : storage_(std::move(other.storage_)) {}
  Pin& operator=(Pin&& other) noexcept {
    std::swap(storage_, other.storage_);
    return *this;
  }

  const std::shared_ptr<Storage>& storage() const { return storage_; }

 private:
  std::shared_ptr<Storage> storage_;
};

class Buffer;
using BufferPtr = std::shared_ptr<Buffer>;
/// The outputs of a run.
using Buffers = absl::InlinedVector<BufferPtr, 4>;
absl::InlinedVector<Buffer*, 8> pointers_to(std::span<const BufferPtr> buffers);

/// The run that took a donated buffer.
struct Taker {
  std::shared_ptr<const std::string> program = nullptr;
  Loc loc = {};
};

class Buffer {
 public:
  /// Uninitialised memory; ready when `completion` is (null: at once).
  static absl::StatusOr<BufferPtr> allocate(Device& device, std::int64_t bytes, Loc made_at,
                                            std::shared_ptr<Completion> completion = nullptr);
  /// A buffer with a copy of `bytes`, which may be on its way to the device.
  static absl::StatusOr<BufferPtr> from_host(Device& device, std::span<const std::byte> bytes, Loc made_at);
  /// A buffer that is in error from the start.
  static absl::StatusOr<BufferPtr> failed(Device& device, std::int64_t bytes, absl::Status status, Loc made_at);

  Buffer(Device& device, std::int64_t bytes, Loc made_at, std::shared_ptr<Storage> storage,
         std::shared_ptr<Completion> completion);

  std::int64_t bytes() const { return bytes_; }
  Device& device() const { return device_; }
  Loc made_at() const { return made_at_; }
  bool is_pending() const { return completion_ && completion_->is_pending(); }
  bool is_donated() const;

  /// Blocks until ready. The error of the computation that failed, or FailedPrecondition when donated.
  absl::Status wait() const;
  /// Waits, then copies `bytes().size()` bytes from `offset` on.
  absl::Status to_host(std::span<std::byte> to, std::int64_t offset = 0) const;
  /// Waits, then gives the bytes themselves, or a copy of what is not in the host's memory. They stay valid and
  /// unchanged while the returned pointer is held, even when the buffer is donated meanwhile: the run that was to take
  /// the memory then works on a copy.
  absl::StatusOr<std::shared_ptr<const std::byte>> view() const;

  // For whoever queues work on buffers.
  /// The memory, pinned, or the error of a donated buffer.
  absl::StatusOr<Pin> pin() const;
  /// Takes the memory away; `taker` is named in every later error.
  absl::StatusOr<std::shared_ptr<Storage>> donate(const Taker& taker);
  const std::shared_ptr<Completion>& completion() const { return completion_; }  // null: ready

 private:
  absl::Status donated_error() const;
  absl::StatusOr<std::shared_ptr<Storage>> storage_to_view() const;
  absl::StatusOr<std::shared_ptr<const std::byte>> view_in_place() const;

  Device& device_;
  const std::int64_t bytes_;
  const Loc made_at_;
  const std::shared_ptr<Completion> completion_;
  mutable std::mutex mutex_;  // guards the two below
  std::shared_ptr<Storage> storage_;  // null: donated
  Taker taker_;
};

}  // namespace sheaf::runtime
