// How a device reaches its memory and runs its kernels. A CPU has done what it is asked when the call returns; a GPU
// does it later, in the order it was asked: that order is its *work*. Invariant: whatever a caller may read of the
// result, on the host, is there only after `read`, `drain` or an event, whichever backend it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "codegen/program.h"
#include "runtime/allocator.h"
#include "runtime/event.h"
#include "runtime/flight.h"

namespace sheaf::runtime {

class CudaContext;
class Kernel;
class Memory;
class Queue;

/// A kernel with the buffers it is run on.
struct Launch {
  Kernel* kernel = nullptr;
  std::span<void* const> buffers = {};
};

/// What a backend keeps of the sequences of launches that a program ran, to run them faster.
class Replays {
 public:
  virtual ~Replays() = default;
};

/// What is not overridden is that of a device that has done what it is asked when the call returns.
/// Bit i: phase i of a kernel.
using Phases = std::uint32_t;

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;  // "cpu:0"
  /// What its kernels are compiled for.
  virtual const codegen::Target& target() const = 0;
  virtual Allocator& allocator() = 0;
  /// Its memory is the host's, where every pointer may be followed.
  virtual bool is_host() const = 0;
  /// The GPU as the driver knows it, for what concerns several at once; null where it is none.
  virtual CudaContext* cuda_context() { return nullptr; }

  /// The host's bytes are free again when it returns.
  virtual absl::Status write(std::byte* to, const std::byte* host, std::int64_t bytes) = 0;
  /// Waits for the bytes.
  virtual absl::Status read(std::byte* host, const std::byte* from, std::int64_t bytes) = 0;
  /// Within its memory, or from that of another device of its kind.
  virtual absl::Status copy(std::byte* to, const std::byte* from, std::int64_t bytes) = 0;
  /// Makes the compiled kernel callable, so that the first run does not have to.
  virtual absl::Status load(Kernel& kernel) = 0;
  /// `packed`: of phases that are done already, as Kernel::run takes them.
  virtual absl::Status run(Kernel& kernel, std::span<void* const> buffers, Phases packed) = 0;
  /// Runs these, none of which waits for another, as one piece of work if it can.
  virtual absl::Status run_together(std::span<const Launch> launches);
  /// Has the device's own library do this, as `run`, with the kernel that the call names; false where it has none for
  /// it, and nothing was done.
  virtual absl::StatusOr<bool> call(const codegen::LibraryCall&, Kernel* /*around*/,
                                    std::span<const std::byte* const> /*operands*/,
                                    std::span<std::byte* const> /*results*/) {
    return false;
  }
  /// Until all that was asked for is done; the error of any of it.
  virtual absl::Status drain() = 0;

  // Beside its work:
  /// Like `write`, into memory that nothing in flight touches. When the bytes are there; null: now.
  virtual absl::StatusOr<EventPtr> upload(std::byte* to, const std::byte* host, std::int64_t bytes);
  /// Like `read`, of bytes that are there.
  virtual absl::Status download(std::byte* host, const std::byte* from, std::int64_t bytes);

  // Of its work:
  /// Where it ends now; null where it is over.
  virtual absl::StatusOr<EventPtr> record();
  /// What it is asked from now on comes after the event.
  virtual absl::Status await(const Event& event);
  /// The bytes as they are at this place, in the host's memory, where they are once the work is over.
  virtual absl::StatusOr<std::shared_ptr<const std::byte>> note(const std::byte* from, std::int64_t bytes);
  /// Memory that a program uses between its first and its last step. Programs of one device may have the same, since
  /// its work has an order.
  virtual absl::StatusOr<std::shared_ptr<Memory>> arena(std::int64_t bytes, Loc made_at);
  /// Runs these in order, if it knows a faster way than one by one; `replays`, which it sets, is that program's.
  virtual absl::StatusOr<bool> replay(std::span<const Launch> launches, std::unique_ptr<Replays>& replays);
  /// Makes what `replay` of these, with whatever buffers, will need, and runs nothing; false where that is nothing.
  virtual absl::StatusOr<bool> rehearse(std::span<const Launch> launches, std::unique_ptr<Replays>& replays);

  Flights& flights() { return flights_; }
  /// Where runs wait for their turn, holding memory; null where nobody has said so.
  Queue* queue() const { return queue_; }
  void set_queue(Queue* queue) { queue_ = queue; }

 private:
  Flights flights_;
  Queue* queue_ = nullptr;
};

std::unique_ptr<Backend> cpu_backend(int ordinal);
/// In place of one that cannot be used: everything fails with `why`.
std::unique_ptr<Backend> missing_backend(std::string name, absl::Status why);

template <class T>
absl::StatusOr<T> read_value(Backend& backend, const std::byte* from) {
  T value;
  if (absl::Status status = backend.read(reinterpret_cast<std::byte*>(&value), from, sizeof value); !status.ok())
    return status;
  return value;
}

/// Operands and results of a step that the host does, in the host's memory: where they lie, or in copies.
class HostCopies {
 public:
  explicit HostCopies(Backend& backend) : backend_(&backend) {}
  absl::StatusOr<const std::byte*> operand(const std::byte* at, std::int64_t bytes);
  std::byte* result(std::byte* at, std::int64_t bytes);
  /// Where the step wrote its results to, they go to the device.
  absl::Status finish();

 private:
  struct Result {
    std::byte* at;
    std::vector<std::byte> bytes;
  };
  Backend* backend_;
  std::vector<std::vector<std::byte>> operands_;
  std::vector<Result> results_;
};

}  // namespace sheaf::runtime
