// Whose turn it is among processes that are about to do the same: one goes ahead, and the others wait until it has
// finished, to find done what they wanted. Invariant: it is advice. A process that dies gives its turn back, where
// there can be no turns nobody waits, and nobody waits long: who has waited in vain once does not wait again.
#pragma once

#include <chrono>
#include <string>

namespace sheaf::runtime {

class Turn {
 public:
  /// Without a turn, at once.
  Turn() = default;
  /// That of the file at this path, which is not touched. The longest wait: more than any kernel takes to compile, on a
  /// machine that does much else.
  explicit Turn(const std::string& path, std::chrono::milliseconds longest = std::chrono::seconds(2));
  ~Turn();
  Turn(Turn&& other) noexcept;
  Turn& operator=(Turn&&) = delete;

  /// Another process had it, and may have done the work.
  bool has_waited() const { return has_waited_; }

 private:
  std::string path_;
  int fd_ = -1;  // holds the lock; -1: there is none
  bool has_waited_ = false;
};

}  // namespace sheaf::runtime
