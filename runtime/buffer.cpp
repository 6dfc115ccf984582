// The transitions of docs/async.md. A buffer's memory is looked at only under its mutex; its bytes only by who holds a
// pin or has waited.
#include "runtime/buffer.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "fmt/format.h"
#include "ir/check.h"
#include "ir/log.h"
#include "ir/recycled.h"
#include "runtime/device.h"
#include "runtime/device_span.h"
#include "runtime/fork.h"
#include "runtime/host_call.h"
#include "runtime/spin.h"

namespace sheaf::runtime {
namespace {

constexpr std::uint32_t kPending = 0, kReady = 1, kError = 2, kInFlight = 3;

SpanOf copy_span(std::string_view name, std::int64_t bytes, Loc loc) {
  return {.activity = ir::Activity::copy, .name = name, .loc = loc, .work = {.bytes = static_cast<double>(bytes)}};
}

/// What this waits for, and what comes before that, is done here where it can be: to wake the queue's thread, and be
/// woken by it, takes longer than small work does.
absl::Status wait_for(Device& device, Completion& completion) {
  const bool may_help = check_not_in_host_call().ok();
  while (may_help && !completion.is_issued() && device.queue().help()) {}
  return completion.wait();
}

}  // namespace

Completion::~Completion() {
  // In a forked child it is a copy: the parent has the work, and tells.
  if (is_told_.load(std::memory_order_relaxed) || !check_not_forked().ok()) return;
  if (absl::Status status = peek(); !status.ok())
    ir::warn(fmt::format("an error that no one read: {}", std::string(status.message())));
}

void Completion::finish(absl::Status status) {
  SHEAF_CHECK(!is_issued());
  const std::uint32_t state = status.ok() ? kReady : kError;
  status_ = std::move(status);
  state_.store(state, std::memory_order_release);
  state_.notify_all();
}

void Completion::issue(std::vector<FlightPtr> flights) {
  SHEAF_CHECK(!is_issued());
  flights_ = std::move(flights);
  state_.store(kInFlight, std::memory_order_release);
  state_.notify_all();
}

bool Completion::is_pending() const {
  const std::uint32_t state = state_.load(std::memory_order_acquire);
  return state == kPending ||
         (state == kInFlight && !std::ranges::all_of(flights_, &Flight::is_over, &FlightPtr::operator*));
}

absl::Status Completion::outcome() const {
  switch (state_.load(std::memory_order_acquire)) {
    case kReady: return absl::OkStatus();
    case kError: return status_;
  }
  for (const FlightPtr& flight : flights_)
    if (absl::Status status = flight->wait(); !status.ok()) return status;  // others may never end
  return absl::OkStatus();
}

absl::Status Completion::wait_for_issue() {
  if (const std::uint32_t state = state_.load(std::memory_order_acquire); state == kPending || state == kInFlight) {
    if (absl::Status status = check_not_forked(); !status.ok()) return status;
    if (state == kPending)
      if (absl::Status status = check_not_in_host_call(); !status.ok()) return status;
    wait_while_equal(state_, kPending);
  }
  if (!is_known()) return absl::OkStatus();
  absl::Status status = outcome();
  if (!status.ok()) is_told_.store(true, std::memory_order_relaxed);
  return status;
}

absl::Status Completion::wait() {
  std::optional<ir::Span> span;
  if (ir::is_profiled() && !is_known()) span.emplace(ir::Activity::wait, "wait for results");
  if (absl::Status status = wait_for_issue(); !status.ok()) return status;
  absl::Status status = outcome();
  if (!status.ok()) is_told_.store(true, std::memory_order_relaxed);
  return status;
}

absl::Status Completion::peek() const { return is_pending() ? absl::OkStatus() : outcome(); }

bool Completion::is_known() const {
  const std::uint32_t state = state_.load(std::memory_order_acquire);
  return state != kPending &&
         (state != kInFlight || std::ranges::all_of(flights_, &Flight::is_known, &FlightPtr::operator*));
}

std::vector<EventPtr> Completion::events() const {
  std::vector<EventPtr> events;
  if (state_.load(std::memory_order_acquire) != kInFlight) return events;
  for (const FlightPtr& flight : flights_)
    if (!flight->is_known()) events.push_back(flight->end());
  return events;
}

absl::StatusOr<std::shared_ptr<Memory>> Memory::allocate(Allocator& allocator, std::int64_t bytes, Loc made_at) {
  absl::StatusOr<Block> block = allocator.allocate(bytes, made_at);
  if (!block.ok()) return block.status();
  return ir::make_recycled<Memory>(allocator, *block);
}

void Storage::unpin() {
  pins_.fetch_sub(1, std::memory_order_release);
  pins_.notify_all();
}

void Storage::wait_for_pins(int pins) {
  for (int now = this->pins(); now > pins; now = this->pins()) pins_.wait(now, std::memory_order_acquire);
}

void Storage::add_reader(EventPtr event) {
  std::lock_guard lock(mutex_);
  std::erase_if(readers_, [](const EventPtr& reader) { return reader->is_over(); });
  readers_.push_back(std::move(event));
}

std::vector<EventPtr> Storage::readers() const {
  std::lock_guard lock(mutex_);
  return readers_;
}

PackedCopies& Storage::packed() {
  std::lock_guard lock(mutex_);
  if (!packed_) packed_ = std::make_unique<PackedCopies>();
  return *packed_;
}

bool Storage::begin_view() {
  int views = views_.load(std::memory_order_relaxed);
  while (views != kClaimed) {
    if (views_.compare_exchange_weak(views, views + 1, std::memory_order_acquire)) return true;
  }
  return false;
}

bool Storage::claim() {
  int none = 0;
  return views_.compare_exchange_strong(none, kClaimed, std::memory_order_acquire);
}

Buffer::Buffer(Device& device, std::int64_t bytes, Loc made_at, std::shared_ptr<Storage> storage,
               std::shared_ptr<Completion> completion)
    : device_(device),
      bytes_(bytes),
      made_at_(made_at),
      completion_(std::move(completion)),
      storage_(std::move(storage)) {}

absl::StatusOr<BufferPtr> Buffer::allocate(Device& device, std::int64_t bytes, Loc made_at,
                                           std::shared_ptr<Completion> completion) {
  absl::StatusOr<std::shared_ptr<Memory>> memory = Memory::allocate(device.allocator(), bytes, made_at);
  if (!memory.ok()) return memory.status();
  auto storage = ir::make_recycled<Storage>(*std::move(memory));
  return ir::make_recycled<Buffer>(device, bytes, made_at, std::move(storage), std::move(completion));
}

absl::StatusOr<BufferPtr> Buffer::from_host(Device& device, std::span<const std::byte> bytes, Loc made_at) {
  Backend& backend = device.backend();
  const auto completion = backend.is_host() ? nullptr : std::make_shared<Completion>();
  absl::StatusOr<BufferPtr> buffer = allocate(device, std::ssize(bytes), made_at, completion);
  if (!buffer.ok()) return buffer;
  const std::shared_ptr<Storage>& storage = (*buffer)->storage_;
  const DeviceSpan span(
      backend, [&] { return copy_span("from the host", std::ssize(bytes), made_at); }, DeviceSpan::Stream::copies);
  absl::StatusOr<EventPtr> there = backend.upload(storage->data(), bytes.data(), std::ssize(bytes));
  if (!there.ok()) return there.status();
  if (completion)
    end_in_flight(backend, completion,
                  {.end = *std::move(there), .what = "a copy to " + device.name(), .keeps = {storage}});
  return buffer;
}

absl::StatusOr<BufferPtr> Buffer::failed(Device& device, std::int64_t bytes, absl::Status status, Loc made_at) {
  SHEAF_CHECK(!status.ok());
  auto completion = std::make_shared<Completion>();
  completion->finish(std::move(status));
  return allocate(device, bytes, made_at, std::move(completion));
}

absl::InlinedVector<Buffer*, 8> pointers_to(std::span<const BufferPtr> buffers) {
  absl::InlinedVector<Buffer*, 8> all;
  for (const BufferPtr& buffer : buffers) all.push_back(buffer.get());
  return all;
}

bool Buffer::is_donated() const {
  std::lock_guard lock(mutex_);
  return storage_ == nullptr;
}

absl::Status Buffer::donated_error() const {
  return absl::FailedPreconditionError(
      fmt::format("this array{} was donated to {} at {} and its memory is no longer its own: use what {} returned",
                  made_at_ ? ", made at " + to_string(made_at_) + "," : "", *taker_.program, to_string(taker_.loc),
                  *taker_.program));
}

absl::Status Buffer::wait() const {
  {
    std::lock_guard lock(mutex_);
    if (!storage_) return donated_error();
  }
  return completion_ ? wait_for(device_, *completion_) : absl::OkStatus();
}

absl::StatusOr<Pin> Buffer::pin() const {
  std::lock_guard lock(mutex_);
  if (!storage_) return donated_error();
  return Pin(storage_);
}

absl::StatusOr<std::shared_ptr<Storage>> Buffer::donate(const Taker& taker) {
  std::lock_guard lock(mutex_);
  if (!storage_) return donated_error();
  taker_ = taker;
  return std::exchange(storage_, nullptr);
}

/// The memory with a view on it. A claim lasts only until the memory has, or has not, been donated.
absl::StatusOr<std::shared_ptr<Storage>> Buffer::storage_to_view() const {
  for (;; std::this_thread::yield()) {
    std::lock_guard lock(mutex_);
    if (!storage_) return donated_error();
    if (storage_->begin_view()) return storage_;
  }
}

/// The bytes where they are, on the device or on the host, once they are ready.
absl::StatusOr<std::shared_ptr<const std::byte>> Buffer::view_in_place() const {
  absl::StatusOr<std::shared_ptr<Storage>> storage = storage_to_view();
  if (!storage.ok()) return storage.status();
  const std::byte* data = (*storage)->data();
  std::shared_ptr<const std::byte> viewed(data, [kept = *std::move(storage)](const std::byte*) { kept->end_view(); });
  if (completion_) {
    if (absl::Status status = wait_for(device_, *completion_); !status.ok()) return status;
  }
  return viewed;
}

absl::StatusOr<std::shared_ptr<const std::byte>> Buffer::view() const {
  if (device_.backend().is_host()) return view_in_place();
  const std::shared_ptr<std::byte[]> copy(new std::byte[static_cast<std::size_t>(bytes_)]);
  if (absl::Status status = to_host({copy.get(), static_cast<std::size_t>(bytes_)}); !status.ok()) return status;
  return std::shared_ptr<const std::byte>(copy, copy.get());
}

absl::Status Buffer::to_host(std::span<std::byte> to, std::int64_t offset) const {
  SHEAF_CHECK(offset >= 0 && offset + std::ssize(to) <= bytes_);
  absl::StatusOr<std::shared_ptr<const std::byte>> bytes = view_in_place();
  if (!bytes.ok()) return bytes.status();
  const DeviceSpan span(
      device_.backend(), [&] { return copy_span("to the host", std::ssize(to), made_at_); },
      DeviceSpan::Stream::copies);
  return device_.backend().download(to.data(), bytes->get() + offset, std::ssize(to));
}

}  // namespace sheaf::runtime
