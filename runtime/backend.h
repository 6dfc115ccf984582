// How a device reaches its memory and runs its kernels. A CPU has done what it is asked when the call returns; a GPU
// does it later, in the order it was asked, and `drain` waits for it. Invariant: whatever a caller may read of the
// result, on the host, is there only after `read` or `drain`, whichever backend it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "codegen/target.h"
#include "runtime/allocator.h"

namespace sheaf::runtime {

class Kernel;

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;  // "cpu:0"
  /// What its kernels are compiled for.
  virtual const codegen::Target& target() const = 0;
  virtual Allocator& allocator() = 0;
  /// Its memory is the host's, where every pointer may be followed.
  virtual bool is_host() const = 0;

  virtual absl::Status write(std::byte* to, const std::byte* host, std::int64_t bytes) = 0;
  /// Waits for the bytes.
  virtual absl::Status read(std::byte* host, const std::byte* from, std::int64_t bytes) = 0;
  /// Within its memory, or from that of another device of its kind.
  virtual absl::Status copy(std::byte* to, const std::byte* from, std::int64_t bytes) = 0;
  /// Makes the compiled kernel callable, so that the first run does not have to.
  virtual absl::Status load(Kernel& kernel) = 0;
  virtual absl::Status run(Kernel& kernel, std::span<void* const> buffers) = 0;
  /// Until all that was asked for is done; the error of any of it.
  virtual absl::Status drain() = 0;
};

std::unique_ptr<Backend> cpu_backend(int ordinal);
/// In place of one that cannot be used: everything fails with `why`.
std::unique_ptr<Backend> missing_backend(std::string name, absl::Status why);

/// From memory of one device to memory of another, of whichever kinds. `to` has the bytes for whatever it is asked
/// next.
absl::Status copy_between(Backend& to, std::byte* into, Backend& from, const std::byte* bytes_at, std::int64_t bytes);

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
