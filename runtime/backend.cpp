// The CPU's backend, and copies that need two.
#include "runtime/backend.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "runtime/buffer.h"
#include "runtime/counters.h"
#include "runtime/kernel.h"
#include "runtime/thread_pool.h"

namespace sheaf::runtime {
namespace {

/// What one core copies in 4 us, at 8 GB/s.
constexpr std::int64_t kCopyChunk = 32 << 10;
constexpr std::int64_t kCopyPsPerByte = 125;

void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (to == from || bytes == 0) return;
  if (bytes <= kCopyChunk) {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
    return;
  }
  ThreadPool& pool = ThreadPool::global();
  const std::int64_t chunks = (bytes + kCopyChunk - 1) / kCopyChunk;
  pool.parallel_for(chunks, pool.grain(chunks, kCopyChunk * kCopyPsPerByte), [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t first = begin * kCopyChunk;
    const std::int64_t last = std::min(end * kCopyChunk, bytes);
    std::memcpy(to + first, from + first, static_cast<std::size_t>(last - first));
  });
}

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(int ordinal) : name_("cpu:" + std::to_string(ordinal)) {}

  std::string name() const override { return name_; }
  const codegen::Target& target() const override { return target_; }
  Allocator& allocator() override { return Allocator::host(); }
  bool is_host() const override { return true; }

  absl::Status write(std::byte* to, const std::byte* host, std::int64_t bytes) override {
    return copy(to, host, bytes);
  }
  absl::Status read(std::byte* host, const std::byte* from, std::int64_t bytes) override {
    return copy(host, from, bytes);
  }
  absl::Status copy(std::byte* to, const std::byte* from, std::int64_t bytes) override {
    copy_bytes(to, from, bytes);
    return absl::OkStatus();
  }
  absl::Status load(Kernel&) override { return absl::OkStatus(); }
  absl::Status run(Kernel& kernel, std::span<void* const> buffers, Phases packed) override {
    try {
      kernel.run(buffers.data(), packed);
    } catch (const std::exception& error) { return absl::InternalError(error.what()); }
    return absl::OkStatus();
  }
  absl::Status run_together(std::span<const Launch> launches) override {
    try {
      runtime::run_together(launches);
    } catch (const std::exception& error) { return absl::InternalError(error.what()); }
    return absl::OkStatus();
  }
  absl::Status drain() override { return absl::OkStatus(); }

 private:
  const std::string name_;
  const codegen::Target target_ = {};
};

class MissingBackend final : public Backend {
 public:
  MissingBackend(std::string name, absl::Status why) : name_(std::move(name)), why_(std::move(why)) {}

  std::string name() const override { return name_; }
  const codegen::Target& target() const override { return target_; }
  Allocator& allocator() override { return Allocator::host(); }
  bool is_host() const override { return false; }
  absl::Status write(std::byte*, const std::byte*, std::int64_t) override { return why_; }
  absl::Status read(std::byte*, const std::byte*, std::int64_t) override { return why_; }
  absl::Status copy(std::byte*, const std::byte*, std::int64_t) override { return why_; }
  absl::Status load(Kernel&) override { return why_; }
  absl::Status run(Kernel&, std::span<void* const>, Phases) override { return why_; }
  absl::Status drain() override { return why_; }

 private:
  const std::string name_;
  const absl::Status why_;
  const codegen::Target target_ = {};
};

}  // namespace

absl::StatusOr<EventPtr> Backend::upload(std::byte* to, const std::byte* host, std::int64_t bytes) {
  if (absl::Status status = write(to, host, bytes); !status.ok()) return status;
  return nullptr;
}

absl::Status Backend::download(std::byte* host, const std::byte* from, std::int64_t bytes) {
  return read(host, from, bytes);
}

absl::StatusOr<EventPtr> Backend::record() { return nullptr; }

absl::Status Backend::run_together(std::span<const Launch> launches) {
  for (const Launch& l : launches)
    if (absl::Status status = run(*l.kernel, l.buffers, 0); !status.ok()) return status;
  return absl::OkStatus();
}
absl::Status Backend::await(const Event& event) { return event.wait(); }

absl::StatusOr<std::shared_ptr<const std::byte>> Backend::note(const std::byte* from, std::int64_t bytes) {
  const std::shared_ptr<std::byte[]> copy(new std::byte[static_cast<std::size_t>(bytes)]);
  if (absl::Status status = read(copy.get(), from, bytes); !status.ok()) return status;
  return std::shared_ptr<const std::byte>(copy, copy.get());
}

absl::StatusOr<std::shared_ptr<Memory>> Backend::arena(std::int64_t bytes, Loc made_at) {
  return Memory::allocate(allocator(), bytes, made_at);
}

absl::StatusOr<bool> Backend::replay(std::span<const Launch>, std::unique_ptr<Replays>&) { return false; }
absl::StatusOr<bool> Backend::rehearse(std::span<const Launch>, std::unique_ptr<Replays>&) { return false; }

std::unique_ptr<Backend> missing_backend(std::string name, absl::Status why) {
  return std::make_unique<MissingBackend>(std::move(name), std::move(why));
}

std::unique_ptr<Backend> cpu_backend(int ordinal) { return std::make_unique<CpuBackend>(ordinal); }

absl::StatusOr<const std::byte*> HostCopies::operand(const std::byte* at, std::int64_t bytes) {
  if (backend_->is_host()) return at;
  counters().bytes_through_host.fetch_add(bytes, std::memory_order_relaxed);
  std::vector<std::byte>& copy = operands_.emplace_back(static_cast<std::size_t>(bytes));
  if (absl::Status status = backend_->read(copy.data(), at, bytes); !status.ok()) return status;
  return copy.data();
}

std::byte* HostCopies::result(std::byte* at, std::int64_t bytes) {
  if (backend_->is_host()) return at;
  counters().bytes_through_host.fetch_add(bytes, std::memory_order_relaxed);
  results_.push_back({at, std::vector<std::byte>(static_cast<std::size_t>(bytes))});
  return results_.back().bytes.data();
}

absl::Status HostCopies::finish() {
  for (const Result& r : results_)
    if (absl::Status status = backend_->write(r.at, r.bytes.data(), std::ssize(r.bytes)); !status.ok()) return status;
  return absl::OkStatus();
}

}  // namespace sheaf::runtime
