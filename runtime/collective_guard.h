// Who looks after collectives that GPUs do among themselves. A GPU whose peer has failed, or never comes, waits in its
// stream for ever, and so does the host that waits for it; only giving up the communicator ends that. A thread asks now
// and then what became of each, the first time after a while, so that what goes well is hardly asked about at all.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "runtime/cuda_collectives.h"
#include "runtime/cuda_context.h"
#include "runtime/driver/nccl.h"

namespace sheaf::runtime {

/// The communicators of the members of a group; none where it is of one.
struct Clique {
  std::vector<CudaContext*> gpus;
  std::vector<nccl::ncclComm_t> comms;
};

class CollectiveGuard {
 public:
  struct UnderWay {
    std::shared_ptr<Clique> clique;
    std::string what;  // "model.cpp:8: all_reduce over y"
    std::vector<EventPtr> ready, done;  // by member: its turn has come; it is done
    std::chrono::milliseconds timeout;
    std::shared_ptr<LateError> late;
    absl::Status error = {};  // it was begun in part only
    std::optional<std::chrono::steady_clock::time_point> since = {};  // seen that the first member's turn has come
  };

  /// Once `forget` returns, nobody begins anything more in the clique, and all that was begun is watched.
  CollectiveGuard(const Nccl& nccl, std::function<void(const std::shared_ptr<Clique>&)> forget)
      : nccl_(nccl), forget_(std::move(forget)) {}

  void watch(UnderWay begun);
  void look();
  /// It looks no more.
  void stop();

 private:
  void work();
  std::chrono::milliseconds period() const;
  void look_at(std::list<UnderWay>& all);
  void give_up(const std::shared_ptr<Clique>& broken, const absl::Status& error, std::list<UnderWay>& all);
  struct State {
    bool is_over = true;
    absl::Status error = {};
  };
  State state_of(const UnderWay& u) const;
  absl::Status late(UnderWay& u) const;

  const Nccl& nccl_;
  const std::function<void(const std::shared_ptr<Clique>&)> forget_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::list<UnderWay> under_way_;  // as they were begun
  bool is_asked_ = false, is_stopped_ = false;
  std::thread thread_;
};

}  // namespace sheaf::runtime
