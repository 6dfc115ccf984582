// A flight is looked at by whoever waits for its outputs, and by its device when more work comes; the first who finds
// it over settles it.
#include "runtime/flight.h"

#include <utility>

#include "fmt/format.h"
#include "runtime/backend.h"
#include "runtime/buffer.h"

namespace sheaf::runtime {

bool Flight::is_over() {
  if (is_known()) return true;
  if (!end_->is_over()) return false;
  (void)wait();
  return true;
}

absl::Status Flight::wait() {
  std::lock_guard lock(mutex_);
  if (is_known_.load(std::memory_order_relaxed)) return status_;
  status_ = outcome();
  load_ = {};
  is_known_.store(true, std::memory_order_release);
  return status_;
}

absl::Status Flight::outcome() const {
  const absl::Status end = end_->wait();
  for (const std::shared_ptr<Completion>& input : load_.inputs)
    if (absl::Status status = input->wait(); !status.ok()) return status;
  if (load_.late)
    if (absl::Status late = load_.late->get(); !late.ok()) return late;
  // A device that has failed says so whatever it is asked, so this may not be the work that did it.
  if (!end.ok())
    return absl::Status(end.code(), fmt::format("{}: {}; SHEAF_WAIT_FOR_KERNELS=1 finds the kernel", load_.what,
                                                std::string(end.message())));
  for (const Check& check : load_.checks)
    if (*check.holds == std::byte{0}) return check.otherwise;
  return absl::OkStatus();
}

void Flights::add(FlightPtr flight, std::shared_ptr<Completion> completion) {
  clear_up();
  std::lock_guard lock(mutex_);
  entries_.push_back({std::move(flight), std::move(completion)});
}

void Flights::hold_back() {
  constexpr std::size_t kMost = 64;
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (entries_.size() <= kMost) return;
    }
    wait_for_oldest();
  }
}

void Flights::clear_up() {
  for (;;) {
    Entry oldest;  // dies outside the lock
    std::lock_guard lock(mutex_);
    if (entries_.empty() || !entries_.front().flight->is_over()) return;
    oldest = std::move(entries_.front());
    entries_.pop_front();
  }
}

bool Flights::wait_for_oldest() {
  Entry oldest;
  {
    std::lock_guard lock(mutex_);
    if (entries_.empty()) return false;
    oldest = entries_.front();
  }
  (void)oldest.flight->wait();
  std::lock_guard lock(mutex_);  // in the list until it is over, for others who drain it
  if (!entries_.empty() && entries_.front().flight == oldest.flight) entries_.pop_front();
  return true;
}

void Flights::drain() {
  while (wait_for_oldest()) {}
}

void end_in_flight(Backend& backend, const std::shared_ptr<Completion>& completion, Flight::Load load) {
  if (!load.end) {
    absl::StatusOr<EventPtr> end = backend.record();
    if (!end.ok()) return completion->finish(end.status());
    if (!*end) return completion->finish(absl::OkStatus());
    load.end = *std::move(end);
  }
  const auto flight = std::make_shared<Flight>(std::move(load));
  completion->issue({flight});
  backend.flights().add(flight, completion);
}

}  // namespace sheaf::runtime
