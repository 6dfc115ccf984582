// The members' streams tell by their events who has come and who is done. Of collectives that one stream has to do one
// after the other only the first can be late.
#include "runtime/collective_guard.h"

#include <algorithm>
#include <set>
#include <utility>

#include "fmt/format.h"

namespace sheaf::runtime {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

void CollectiveGuard::watch(UnderWay begun) {
  std::lock_guard lock(mutex_);
  if (is_stopped_) return;
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  under_way_.push_back(std::move(begun));
  if (under_way_.size() == 1) changed_.notify_all();
}

void CollectiveGuard::look() {
  std::lock_guard lock(mutex_);
  is_asked_ = true;
  changed_.notify_all();
}

void CollectiveGuard::stop() {
  {
    std::lock_guard lock(mutex_);
    is_stopped_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

milliseconds CollectiveGuard::period() const {
  constexpr milliseconds kShortest{10}, kLongest{500};
  milliseconds least = kLongest;
  for (const UnderWay& u : under_way_)
    if (u.timeout.count() > 0) least = std::min(least, u.timeout / 4);
  return std::max(least, kShortest);
}

void CollectiveGuard::work() {
  std::unique_lock lock(mutex_);
  while (!is_stopped_) {
    changed_.wait(lock, [&] { return is_stopped_ || !under_way_.empty(); });
    changed_.wait_for(lock, period(), [&] { return is_stopped_ || is_asked_; });
    if (is_stopped_) return;
    is_asked_ = false;
    std::list<UnderWay> all = std::move(under_way_);
    under_way_.clear();
    lock.unlock();
    look_at(all);
    lock.lock();
    under_way_.splice(under_way_.begin(), all);
  }
}

/// Takes out what is over.
void CollectiveGuard::look_at(std::list<UnderWay>& all) {
  std::set<const CudaContext*> busy;
  for (auto u = all.begin(); u != all.end();) {
    State now = state_of(*u);
    const std::vector<CudaContext*>& gpus = u->clique->gpus;
    const bool is_first = std::ranges::none_of(gpus, [&](const CudaContext* gpu) { return busy.contains(gpu); });
    if (now.error.ok() && !now.is_over && is_first) now.error = late(*u);
    if (!now.error.ok()) {
      give_up(std::shared_ptr(u->clique), now.error, all);
      return look_at(all);
    }
    if (!now.is_over) busy.insert(gpus.begin(), gpus.end());
    u = now.is_over ? all.erase(u) : std::next(u);
  }
}

/// The runs learn of it before their streams go on.
void CollectiveGuard::give_up(const std::shared_ptr<Clique>& broken, const absl::Status& error,
                              std::list<UnderWay>& all) {
  forget_(broken);
  const auto is_broken = [&](const UnderWay& u) {
    if (u.clique == broken) u.late->set(error);
    return u.clique == broken;
  };
  std::erase_if(all, is_broken);
  {
    std::lock_guard lock(mutex_);
    std::erase_if(under_way_, is_broken);
  }
  for (const nccl::ncclComm_t comm : broken->comms) (void)nccl_.ncclCommAbort(comm);
}

CollectiveGuard::State CollectiveGuard::state_of(const UnderWay& u) const {
  if (!u.error.ok()) return {.is_over = true, .error = u.error};
  const auto failed = [&](const absl::Status& s) {
    return State{.is_over = true,
                 .error = absl::Status(s.code(), fmt::format("{}: {}", u.what, std::string(s.message())))};
  };
  State now;
  for (const EventPtr& done : u.done) {
    now.is_over &= done->is_over();
    if (!done->is_over()) continue;
    if (absl::Status status = done->wait(); !status.ok()) return failed(status);
  }
  if (now.is_over) return now;
  for (const nccl::ncclComm_t comm : u.clique->comms) {
    nccl::ncclResult_t error = nccl::ncclSuccess;
    const nccl::ncclResult_t asked = nccl_.ncclCommGetAsyncError(comm, &error);
    if (asked != nccl::ncclSuccess) error = asked;
    if (error != nccl::ncclSuccess && error != nccl::ncclInProgress) return failed(nccl_.status(error, "NCCL", comm));
  }
  return now;
}

absl::Status CollectiveGuard::late(UnderWay& u) const {
  std::vector<std::string> here, missing;
  for (std::size_t k = 0; k < u.ready.size(); ++k)
    (u.ready[k]->is_over() ? here : missing).push_back(u.clique->gpus[k]->name);
  if (here.empty() || u.timeout.count() == 0) return absl::OkStatus();
  const steady_clock::time_point now = steady_clock::now();
  if (now - u.since.emplace(u.since.value_or(now)) < u.timeout) return absl::OkStatus();
  const double seconds = std::chrono::duration<double>(u.timeout).count();
  return absl::DeadlineExceededError(
      missing.empty() ? fmt::format("{}: {} did not end it within {:g} s", u.what, listed(here), seconds)
                      : fmt::format("{}: {} did not come within {:g} s; {} waited", u.what, listed(missing), seconds,
                                    listed(here)));
}

}  // namespace sheaf::runtime
