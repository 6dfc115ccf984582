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
#include "runtime/event.h"
#include "runtime/futex.h"

namespace sheaf::runtime {

class CudaContext;

/// "a", "a and b", "a, b and c"; "nobody".
std::string listed(const std::vector<std::string>& names);

class Rendezvous {
 public:
  /// What a member brings.
  struct Part {
    const codegen::Collective* what = nullptr;
    Loc loc = {};
    std::uint64_t call = 0;  // that a profile knows it by
    const std::byte* operand = nullptr;
    std::byte* result = nullptr;
    // Of GPUs that do without the host: after which point the two may be touched, and from where on they are done with.
    CudaContext* gpu = nullptr;
    EventPtr ready = nullptr;
    EventPtr* done = nullptr;
  };

  /// The members' names, in the order of the group.
  explicit Rendezvous(std::vector<std::string> members);
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  /// Does what is to be done with the parts of all members.
  using Work = absl::FunctionRef<absl::Status(std::span<const Part>)>;
  /// Brings what this member has; the last to come does `work`. Blocks for nobody. Errors: FailedPrecondition where the
  /// members came to different collectives, or one has ended its run; what the work failed with; Aborted after
  /// `break_up`. After an error nobody meets here any more.
  absl::Status bring(int member, const Part& part, Work work);
  /// Blocks until all have come to what this member brought its part to, `at_most` so long (0: for ever), and the work
  /// is done. Errors as above, and DeadlineExceeded, which names who is missing.
  absl::Status await(int member, std::chrono::milliseconds at_most);
  /// This member comes no more, and has waited for all that it brought its parts to.
  void end(int member);
  /// Sends home all who wait, and all who still come. What anybody brought is not read any more once this returns.
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
  std::vector<std::uint32_t> before_;  // per member, its own: met_ when it last brought a part
  int here_ = 0;
  bool is_working_ = false;  // all have come, and wait for the last
  absl::Status error_;  // not OK: broken
  std::atomic<std::uint32_t> met_{0};  // meetings whose work is done, in the upper bits; bit 0: broken
};

}  // namespace sheaf::runtime
