// A lock on a file of its own beside the other, which bears the name of one that is unfinished, so that whoever sweeps
// the folder takes what a killed process left. The lock is the system's, and ends with the process.
#include "runtime/turn.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <utility>

#include "runtime/counters.h"
#include "runtime/private_file.h"

namespace sheaf::runtime {
namespace {

bool lock(int fd) { return flock(fd, LOCK_EX | LOCK_NB) == 0; }

/// False once it has taken too long.
bool wait_for(int fd, std::chrono::milliseconds longest) {
  static std::atomic<bool> has_been_in_vain{false};
  const auto end = std::chrono::steady_clock::now() + longest;
  while (!has_been_in_vain) {
    if (lock(fd)) return true;
    if (std::chrono::steady_clock::now() > end) has_been_in_vain = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace

Turn::Turn(const std::string& path, std::chrono::milliseconds longest)
    : path_(path + ".turn" + std::string(kUnfinished)) {
  if (!make_private_folders_for(path).ok()) return;
  fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (fd_ < 0 || lock(fd_)) return;
  has_waited_ = true;
  counters().turns_awaited.fetch_add(1, std::memory_order_relaxed);
  if (wait_for(fd_, longest)) return;
  close(fd_);
  fd_ = -1;
}

Turn::~Turn() {
  if (fd_ < 0) return;
  if (!has_waited_) (void)unlink(path_.c_str());  // who has waited holds one that is gone already
  close(fd_);
}

Turn::Turn(Turn&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), has_waited_(other.has_waited_) {}

}  // namespace sheaf::runtime
