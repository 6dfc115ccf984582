// Where the devices of one group meet, time after time, in one run of a program: each brings what the others may read
// and write, all wait for all, each does its share, and all wait again. Invariant: what a device brought stays as it is
// until every member has done its share, whatever fails meanwhile; so between `arrive` and `leave` nothing can fail.
#pragma once

#include <absl/status/status.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/program.h"
#include "runtime/futex.h"

namespace sheaf::runtime {

class Rendezvous {
 public:
  /// What a member brings.
  struct Part {
    const codegen::Collective* what = nullptr;
    Loc loc = {};
    const std::byte* operand = nullptr;
    std::byte* result = nullptr;
  };

  /// The members' names, in the order of the group.
  explicit Rendezvous(std::vector<std::string> members);
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  /// Blocks until all have come, `at_most` so long (0: for ever). Errors: DeadlineExceeded, which names who is missing;
  /// FailedPrecondition where the members came to different collectives, or one has ended its run; Aborted after
  /// `break_up`. After an error nobody meets here any more.
  absl::Status arrive(int member, const Part& part, std::chrono::milliseconds at_most);
  /// What all brought, between `arrive` and `leave`.
  std::span<const Part> parts() const { return parts_; }
  /// Blocks until all have done their share.
  void leave();
  /// This member comes no more.
  void end(int member);
  /// Sends home all who wait, and all who still come.
  void break_up();

 private:
  enum class State : std::uint8_t { elsewhere, here, ended };

  absl::Status mismatch() const;
  absl::Status deserted() const;
  absl::Status late(std::chrono::milliseconds waited) const;
  std::string waiting(std::string_view who_is_missing) const;
  std::vector<std::string> members(State state) const;
  absl::Status break_up_locked(absl::Status error);

  const std::vector<std::string> members_;
  const bool spins_;
  std::mutex mutex_;  // guards what follows, but for the atomics; parts_ until all have come
  std::vector<Part> parts_;
  std::vector<State> states_;
  int here_ = 0;
  absl::Status error_;  // not OK: broken
  std::atomic<std::uint32_t> met_{0};  // meetings that were complete, in the upper bits; bit 0: broken
  std::atomic<int> done_{0};  // members of this meeting that did their share
  std::atomic<std::uint32_t> parted_{0};  // meetings that everyone has left
};

}  // namespace sheaf::runtime
