// Dispatch to all devices under one lock, and the end of the run: who failed, and what is told.
#include "runtime/spmd.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "fmt/format.h"
#include "ir/log.h"
#include "ir/profile.h"
#include "runtime/collectives.h"
#include "runtime/counters.h"
#include "runtime/cuda_collectives.h"
#include "runtime/device.h"
#include "runtime/execution.h"

namespace sheaf::runtime {

SpmdRun::SpmdRun(const codegen::Program& program, std::span<Device* const> devices, std::chrono::milliseconds timeout,
                 std::shared_ptr<Completion> completion)
    : devices_(devices.begin(), devices.end()),
      gpus_(program.groups.empty() ? nullptr : CudaCollectives::between(devices)),
      late_(std::make_shared<LateError>()),
      timeout_(timeout),
      completion_(std::move(completion)),
      begun_(devices.size(), 0),
      own_(devices.size()),
      running_(static_cast<int>(devices.size())) {
  for (const codegen::Groups& groups : program.groups) {
    std::vector<Place>& places = places_.emplace_back(devices.size());
    for (const std::vector<int>& group : groups) {
      std::vector<std::string> members;
      for (const int position : group) members.push_back(devices[position]->name());
      rendezvous_.push_back(std::make_unique<Rendezvous>(std::move(members)));
      for (int k = 0; k < std::ssize(group); ++k) places[group[k]] = {rendezvous_.back().get(), k};
    }
  }
}

absl::Status SpmdRun::collective(int position, Rendezvous::Part part) {
  const codegen::Collective& what = *part.what;
  if (absl::Status before = await(position, what.groups); !before.ok()) return before;
  Place& place = places_[what.groups][position];
  if (gpus_) {
    part.gpu = devices_[position]->backend().cuda_context();
    absl::StatusOr<EventPtr> ready = devices_[position]->backend().record();
    if (!ready.ok()) return ready.status();
    part.ready = *std::move(ready);
    part.done = &place.done;
  }
  absl::Status brought = place.rendezvous->bring(
      place.member, part, [this](std::span<const Rendezvous::Part> parts) { return work(parts); });
  if (!brought.ok()) return fail_together(std::move(brought));
  place.has_begun = true;
  ++begun_[position];
  return what.waits ? await(position, what.groups) : absl::OkStatus();
}

absl::Status SpmdRun::work(std::span<const Rendezvous::Part> parts) const {
  const codegen::Collective& what = *parts[0].what;
  if (!gpus_) do_collective(parts);
  else if (absl::Status begun = gpus_->begin(parts, timeout_, late_); !begun.ok()) return begun;
  CollectiveCounters& counts = counters().collectives[static_cast<int>(what.kind)];
  counts.meetings.fetch_add(1, std::memory_order_relaxed);
  counts.bytes.fetch_add(bytes_moved(what, std::ssize(parts)), std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status SpmdRun::await(int position, int groups) {
  Place& place = places_[groups][position];
  if (!std::exchange(place.has_begun, false)) return absl::OkStatus();
  --begun_[position];
  if (absl::Status met = place.rendezvous->await(place.member, timeout_); !met.ok())
    return fail_together(std::move(met));
  if (!gpus_) return absl::OkStatus();
  return devices_[position]->backend().await(*std::exchange(place.done, nullptr));
}

absl::Status SpmdRun::fail_together(absl::Status error) {
  if (absl::IsAborted(error)) return error;
  {
    std::lock_guard lock(mutex_);
    if (together_.ok()) together_ = error;
  }
  send_home();
  return absl::AbortedError("the run has failed");
}

void SpmdRun::send_home() {
  for (const std::unique_ptr<Rendezvous>& rendezvous : rendezvous_) rendezvous->break_up();
}

void SpmdRun::leave(int position) {
  send_home();
  for (std::vector<Place>& of_groups : places_)
    if (const EventPtr done = std::exchange(of_groups[position].done, nullptr))
      (void)devices_[position]->backend().await(*done);
}

void SpmdRun::find_late_error(absl::Status& own) {
  absl::Status late = late_->get();
  if (late.ok()) return;
  std::lock_guard lock(mutex_);
  if (together_.ok()) together_ = std::move(late);
  if (own.ok()) own = absl::AbortedError("the run has failed");
}

void SpmdRun::end(int position, End end) {
  find_late_error(end.status);
  const bool has_failed = !end.status.ok();
  if (has_failed) {
    send_home();
    if (gpus_) gpus_->look();
  } else {
    for (const std::vector<Place>& places : places_) places[position].rendezvous->end(places[position].member);
  }
  std::unique_lock lock(mutex_);
  own_[position] = std::move(end);
  if (--running_ == 0) return finish(std::move(lock));
  if (!has_failed || rendezvous_.empty() || timeout_.count() == 0) return;
  ended_.wait_for(lock, timeout_, [this] { return is_finished_ || absl::IsDeadlineExceeded(together_); });
  finish(std::move(lock));
}

void SpmdRun::refuse(int position, absl::Status status) {
  send_home();
  std::unique_lock lock(mutex_);
  own_[position] = {.status = std::move(status), .inherited = false};
  if (--running_ == 0) finish(std::move(lock));
}

void SpmdRun::finish(std::unique_lock<std::mutex> lock) {
  if (is_finished_) return;
  is_finished_ = true;
  ended_.notify_all();
  absl::Status status = outcome();
  std::vector<FlightPtr> flights;
  for (const End& end : own_)
    if (end.flight) flights.push_back(end.flight);
  lock.unlock();
  if (status.ok() && !flights.empty()) completion_->issue(std::move(flights));
  else completion_->finish(std::move(status));
}

/// An input's error as it is; else of the devices' own failures the first, by name, unless all failed alike; else what
/// became of a meeting.
absl::Status SpmdRun::outcome() const {
  const auto is_own = [](const End& e) { return !e.status.ok() && !absl::IsAborted(e.status); };
  const auto inherited = std::find_if(own_.begin(), own_.end(), [](const End& e) { return e.inherited; });
  if (inherited != own_.end()) return inherited->status;
  const auto first = std::find_if(own_.begin(), own_.end(), is_own);
  if (first == own_.end()) return together_;
  if (std::ranges::all_of(own_, [&](const End& e) { return e.status == first->status; })) return first->status;
  return absl::Status(first->status.code(), fmt::format("{} failed: {}", devices_[first - own_.begin()]->name(),
                                                        std::string(first->status.message())));
}

std::chrono::milliseconds collective_timeout() {
  static const std::chrono::milliseconds timeout = [] {
    constexpr double kDefault = 60, kLongest = 1e6;
    double seconds = kDefault;
    if (const char* text = std::getenv("SHEAF_COLLECTIVE_TIMEOUT"); text && *text) {
      char* end = nullptr;
      const double value = std::strtod(text, &end);
      if (*end == '\0' && value >= 0 && value <= kLongest) seconds = value;
      else
        ir::warn(fmt::format("SHEAF_COLLECTIVE_TIMEOUT={} is not a number of seconds from 0 to {:g}; using {:g}", text,
                             kLongest, kDefault));
    }
    return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
  }();
  return timeout;
}

absl::StatusOr<std::vector<Buffers>> Executable::run_spmd(std::span<Device* const> devices,
                                                          std::span<const Buffers> inputs,
                                                          const RunOptions& options) const {
  if (std::ssize(devices) != program_.num_devices || inputs.size() != devices.size())
    return absl::InvalidArgumentError(fmt::format("{} runs on {} devices; {} and inputs for {} were given",
                                                  program_.name, program_.num_devices, devices.size(), inputs.size()));
  for (std::size_t d = 0; d < devices.size(); ++d) {
    if (std::find(devices.begin(), devices.begin() + d, devices[d]) != devices.begin() + d)
      return absl::InvalidArgumentError(fmt::format("{} is given {} twice", program_.name, devices[d]->name()));
    if (absl::Status status = check_inputs(*devices[d], pointers_to(inputs[d]), options); !status.ok()) return status;
  }
  const auto completion = std::make_shared<Completion>();
  const auto run = std::make_shared<SpmdRun>(program_, devices,
                                             options.collective_timeout.value_or(collective_timeout()), completion);
  std::vector<std::unique_ptr<Execution>> executions;
  std::vector<Buffers> outputs;
  std::unique_lock launch(launch_mutex());
  {
    Claims claims;
    for (std::size_t d = 0; d < devices.size(); ++d) {
      executions.push_back(std::make_unique<Execution>(*devices[d], options.loc, shared_from_this(), completion));
      executions[d]->spmd = run;
      executions[d]->position = static_cast<int>(d);
      if (ir::is_profiled()) executions[d]->call = ir::current_call();
      if (absl::Status status = prepare(*executions[d], pointers_to(inputs[d]), options, claims); !status.ok())
        return status;
      outputs.push_back(outputs_of(*executions[d]));
    }
    for (const Buffers& of_device : inputs) donate(pointers_to(of_device), options);
  }
  const bool meets = !program_.groups.empty();
  if (!meets && std::ranges::all_of(executions, [this](const auto& e) { return runs_inline(*e); })) {
    if (!program_.target.is_gpu()) launch.unlock();
    counters().executions_inline.fetch_add(std::ssize(executions), std::memory_order_relaxed);
    for (const std::unique_ptr<Execution>& execution : executions) execute(*execution);
    if (launch.owns_lock()) launch.unlock();
    for (Device* device : devices) device->backend().flights().hold_back();
    return outputs;
  }
  for (std::size_t d = 0; d < devices.size(); ++d) {
    absl::Status pushed = devices[d]->queue().push([execution = std::move(executions[d])] {
      execution->executable->execute(*execution);
      execution->device.backend().flights().hold_back();
    });
    if (!pushed.ok()) run->refuse(static_cast<int>(d), std::move(pushed));
  }
  return outputs;
}

}  // namespace sheaf::runtime
