// One barrier, which decides under a mutex whether all have come or the meeting is off.
#include "runtime/rendezvous.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "runtime/thread_pool.h"

namespace sheaf::runtime {
namespace {

constexpr std::uint32_t kBroken = 1, kOneMeeting = 2;

std::string described(const Rendezvous::Part& part) {
  return fmt::format("{} at {}", part.what->name, to_string(part.loc));
}

}  // namespace

std::string listed(const std::vector<std::string>& names) {
  if (names.size() < 2) return names.empty() ? "nobody" : names[0];
  return fmt::format("{} and {}", fmt::join(names.begin(), names.end() - 1, ", "), names.back());
}

Rendezvous::Rendezvous(std::vector<std::string> members)
    : members_(std::move(members)),
      spins_(std::ssize(members_) <= ThreadPool::global().threads()),
      parts_(members_.size()),
      states_(members_.size(), State::elsewhere),
      before_(members_.size(), 0) {}

absl::Status Rendezvous::bring(int member, const Part& part, Work work) {
  bool is_last = false;
  {
    std::lock_guard lock(mutex_);
    if (!error_.ok()) return error_;
    before_[member] = met_.load(std::memory_order_relaxed);
    parts_[member] = part;
    states_[member] = State::here;
    ++here_;
    if (std::find(states_.begin(), states_.end(), State::ended) != states_.end()) return break_up_locked(deserted());
    if (here_ == std::ssize(members_)) {
      if (absl::Status error = mismatch(); !error.ok()) return break_up_locked(std::move(error));
      is_working_ = true;
    }
    is_last = is_working_;
  }
  if (!is_last) return absl::OkStatus();
  absl::Status done = work(parts_);
  std::lock_guard lock(mutex_);
  is_working_ = false;
  if (!done.ok()) return break_up_locked(std::move(done));
  here_ = 0;
  std::replace(states_.begin(), states_.end(), State::here, State::elsewhere);
  met_.fetch_add(kOneMeeting, std::memory_order_release);
  wake_all(met_);
  return absl::OkStatus();
}

absl::Status Rendezvous::await(int member, std::chrono::milliseconds at_most) {
  const std::uint32_t before = before_[member];
  const auto is_done = [&](std::uint32_t now) { return (now & ~kBroken) != before; };
  const Deadline deadline = at_most.count() == 0 ? kNever : std::chrono::steady_clock::now() + at_most;
  if (is_done(wait_while_equal(met_, before, deadline, spins_))) return absl::OkStatus();
  {
    std::lock_guard lock(mutex_);
    if (is_done(met_.load(std::memory_order_relaxed))) return absl::OkStatus();
    if (!is_working_) return error_.ok() ? break_up_locked(late(at_most)) : error_;
  }
  if (is_done(wait_while_equal(met_, before, kNever, spins_)))
    return absl::OkStatus();  // the last came at the last moment
  std::lock_guard lock(mutex_);
  return error_;  // of its work
}

void Rendezvous::end(int member) {
  std::lock_guard lock(mutex_);
  states_[member] = State::ended;
  if (here_ > 0 && error_.ok()) (void)break_up_locked(deserted());
}

void Rendezvous::break_up() {
  std::unique_lock lock(mutex_);
  if (error_.ok()) (void)break_up_locked(absl::AbortedError("the run has failed"));
  if (!is_working_) return;
  const std::uint32_t before = met_.load(std::memory_order_relaxed);
  lock.unlock();
  wait_while_equal(met_, before, kNever, spins_);
}

/// Those who wait for work that is being done are left to it.
absl::Status Rendezvous::break_up_locked(absl::Status error) {
  error_ = std::move(error);
  if (is_working_) return error_;
  met_.fetch_or(kBroken, std::memory_order_release);
  wake_all(met_);
  return error_;
}

absl::Status Rendezvous::mismatch() const {
  for (std::size_t k = 1; k < parts_.size(); ++k)
    if (parts_[k].what != parts_[0].what)
      return absl::FailedPreconditionError(
          fmt::format("the devices of a group came to different collectives: {} to {}, {} to {}", members_[0],
                      described(parts_[0]), members_[k], described(parts_[k])));
  return absl::OkStatus();
}

absl::Status Rendezvous::deserted() const {
  return absl::FailedPreconditionError(waiting(listed(members(State::ended)) + " ended without it"));
}

absl::Status Rendezvous::late(std::chrono::milliseconds waited) const {
  return absl::DeadlineExceededError(
      waiting(fmt::format("{} did not come within {:g} s", listed(members(State::elsewhere)),
                          std::chrono::duration<double>(waited).count())));
}

std::string Rendezvous::waiting(std::string_view who_is_missing) const {
  const auto first = std::find(states_.begin(), states_.end(), State::here) - states_.begin();
  const std::vector<std::string> here = members(State::here);
  return fmt::format("{}: {}: {}; {} waited", to_string(parts_[first].loc), parts_[first].what->name, who_is_missing,
                     listed(here));
}

std::vector<std::string> Rendezvous::members(State state) const {
  std::vector<std::string> names;
  for (std::size_t k = 0; k < members_.size(); ++k)
    if (states_[k] == state) names.push_back(members_[k]);
  return names;
}

}  // namespace sheaf::runtime
