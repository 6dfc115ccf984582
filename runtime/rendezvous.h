// Where the devices of one group meet, time after time, in one run of a program: each brings an operand and a result,
// and the last to come does the work for all, while the others wait. Invariant: what a device brought stays as it is
// until the work is done, whatever fails meanwhile; so nobody who has come leaves while it is.
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

#include "absl/functional/function_ref.h"
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

  /// Does what is to be done with the parts of all members.
  using Work = absl::FunctionRef<void(std::span<const Part>)>;
  /// Blocks until all have come, `at_most` so long (0: for ever), and `work` is done, by the last. Errors:
  /// DeadlineExceeded, which names who is missing; FailedPrecondition where the members came to different collectives,
  /// or one has ended its run; Aborted after `break_up`. After an error nobody meets here any more.
  absl::Status arrive(int member, const Part& part, std::chrono::milliseconds at_most, Work work);
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
  std::mutex mutex_;  // guards what follows
  std::vector<Part> parts_;  // as all have come, the last one's to read
  std::vector<State> states_;
  int here_ = 0;
  bool is_working_ = false;  // all have come, and wait for the last
  absl::Status error_;  // not OK: broken
  std::atomic<std::uint32_t> met_{0};  // meetings whose work is done, in the upper bits; bit 0: broken
};

}  // namespace sheaf::runtime
