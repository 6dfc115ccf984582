// Work that a device was asked for and nobody waits for: what must stay meanwhile, and what it will have come to.
// Invariant: memory that work in flight touches is given back only once the work is over, so what an allocator hands
// out is touched by nobody, on whatever stream.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/event.h"
#include "runtime/late_error.h"

namespace sheaf::runtime {

class Backend;
class Completion;

class Flight {
 public:
  /// A bool that the work writes, to be true.
  struct Check {
    std::shared_ptr<const std::byte> holds;  // in the host's memory
    absl::Status otherwise;
  };
  struct Load {
    EventPtr end = {};
    std::string what = {};  // "train.cpp:31: step", to say where an error of the device showed
    std::vector<std::shared_ptr<Completion>> inputs = {};  // whose error is the work's
    std::shared_ptr<const LateError> late = nullptr;  // of the work of several devices that this is part of
    std::vector<Check> checks = {};
    std::vector<std::shared_ptr<const void>> keeps = {};
  };

  explicit Flight(Load load) : end_(load.end), load_(std::move(load)) {}

  /// Whether anybody has found it over.
  bool is_known() const { return is_known_.load(std::memory_order_acquire); }
  /// Asks the device, and does not wait.
  bool is_over();
  /// Blocks until it is over: an input's error, else the device's, else that of the first check that does not hold.
  /// What it keeps is gone before.
  absl::Status wait();
  const EventPtr& end() const { return end_; }

 private:
  absl::Status outcome() const;

  const EventPtr end_;
  std::atomic<bool> is_known_{false};
  std::mutex mutex_;  // guards what follows
  Load load_;
  absl::Status status_;
};
using FlightPtr = std::shared_ptr<Flight>;

/// Those of one device, oldest first.
class Flights {
 public:
  /// Keeps the completion too, so that an error that nobody reads is told.
  void add(FlightPtr flight, std::shared_ptr<Completion> completion);
  /// Waits until not too many are under way, so that a caller who runs ahead is held back instead of filling memory.
  void hold_back();
  /// Lets go of those that are over.
  void clear_up();
  /// Waits for the oldest; false if there is none.
  bool wait_for_oldest();
  void drain();

 private:
  struct Entry {
    FlightPtr flight;
    std::shared_ptr<Completion> completion;
  };
  std::mutex mutex_;
  std::deque<Entry> entries_;
};

/// `completion` is that of work whose last piece the device has been asked for; `load.end` need not be set.
void end_in_flight(Backend& backend, const std::shared_ptr<Completion>& completion, Flight::Load load);

}  // namespace sheaf::runtime
