// The scheduler. Among streams that can go on, the order of Options decides; an item that waits for an event can go on
// when the record that it means is done.
#include "tests/emulator/fake_cuda/stream.h"

#include <fmt/format.h>

#include <set>
#include <thread>

#include "tests/emulator/fake_cuda/driver.h"

namespace sheaf::fake_cuda {
namespace {

using namespace cuda;

thread_local bool in_host_function = false;

bool is_ready(const Stream& s) {
  if (s.queue.empty() || s.is_busy) return false;
  const Work& head = s.queue.front();
  if (head.kind != Work::Kind::wait || head.event->done >= head.version) return true;
  return head.event->device && head.event->device->sticky && !head.event->is_gate;
}

// The stream that must go on for `s` to: itself, or that in which the event it waits for is recorded.
StreamPtr needed_for(StreamPtr s) {
  std::set<Stream*> seen;
  while (s && !is_ready(*s)) {
    if (s->is_idle() || s->is_busy || !seen.insert(s.get()).second) return nullptr;
    s = s->queue.front().event->last.lock();
  }
  return s;
}

StreamPtr any_ready(const Stream* but) {
  std::vector<StreamPtr> ready;
  for (const auto& [handle, s] : driver().streams.all())
    if (s.get() != but && is_ready(*s)) ready.push_back(s);
  if (ready.empty()) return nullptr;
  // By id, since the order of handles differs from run to run.
  std::sort(ready.begin(), ready.end(), [](const StreamPtr& a, const StreamPtr& b) { return a->id < b->id; });
  return ready[driver().random() % ready.size()];
}

StreamPtr next(const StreamPtr& wanted) {
  if (wanted && driver().options.order == Options::Order::waited_first)
    if (StreamPtr s = needed_for(wanted)) return s;
  if (wanted && driver().options.order == Options::Order::waited_last)
    if (StreamPtr s = any_ready(wanted.get())) return s;
  return any_ready(nullptr);
}

// What is enqueued later knows what the host knows now.
Clock settled() {
  Clock clock = *driver().host_clock;
  for (const auto& [handle, s] : driver().streams.all())
    if (!s->queue.empty()) meet(clock, *s->queue.front().since);
  return clock;
}

// A host function may wait for another thread, which may call the driver.
void run_host_function(Lock& lock, Stream& s, const Work& work, const Position& position) {
  s.is_busy = true;
  lock.unlock();
  in_host_function = true;
  work.run(position);
  in_host_function = false;
  lock.lock();
  s.is_busy = false;
  ++driver().counters.host_calls;
  host_knows(s.clock);  // for all we know it told the host
}

void step(Lock& lock, const StreamPtr& stream) {
  Stream& s = *stream;
  const Work work = std::move(s.queue.front());
  s.queue.pop_front();
  join(s.clock, *work.since);
  if (work.kind == Work::Kind::wait) join(s.clock, work.event->clock);
  const std::string what = fmt::format("{} on {}", work.what, s.name());
  const Clock before = s.clock, over = settled();
  const Position position{.stream = s.id, .number = ++s.number, .before = before, .settled = over, .what = what};
  if (work.kind == Work::Kind::run) {
    const Memory::Open open;
    work.run(position);
  } else if (work.kind == Work::Kind::host) {
    run_host_function(lock, s, work, position);
  }
  set(s.clock, s.id, s.number);
  if (work.kind == Work::Kind::record) {
    work.event->done = std::max(work.event->done, work.version);
    work.event->clock = s.clock;
    work.event->time = std::chrono::steady_clock::now();
  }
  changed().notify_all();
}

bool is_in_host_functions() {
  for (const auto& [handle, s] : driver().streams.all())
    if (s->is_busy) return true;
  return false;
}

void report_deadlock(const StreamPtr& wanted) {
  std::string text = "nothing can go on:";
  for (const auto& [handle, s] : driver().streams.all())
    if (!s->is_idle()) text += fmt::format("\n  {} waits for {}", s->name(), s->queue.front().what);
  if (wanted) fault(*wanted->device, CUDA_ERROR_UNKNOWN, text);
  else
    for (const auto& d : driver().devices) fault(*d, CUDA_ERROR_UNKNOWN, text);
}

StreamPtr with_host_function() {
  for (const auto& [handle, s] : driver().streams.all())
    for (const Work& w : s->queue)
      if (w.kind == Work::Kind::host) return s;
  return nullptr;
}

// A host function may be what tells the program that work is done, so it cannot wait for the program to ask: after a
// while in which nothing happened its stream goes on by itself.
void serve_host_functions() {
  constexpr std::chrono::milliseconds kPause{20};
  Lock lock(mutex());
  while (true) {
    changed().wait(lock, [] { return with_host_function() != nullptr; });
    if (changed().wait_for(lock, kPause) == std::cv_status::no_timeout) continue;
    if (const StreamPtr s = with_host_function()) advance_once(lock, s);
  }
}

}  // namespace

std::string Stream::name() const { return fmt::format("stream {} of device {}", id, device->ordinal); }

void enqueue(Stream& stream, Work work) {
  if (work.kind == Work::Kind::host) {
    static const bool is_served = (std::thread(serve_host_functions).detach(), true);
    static_cast<void>(is_served);
  }
  work.since = driver().host_clock;
  stream.queue.push_back(std::move(work));
  changed().notify_all();
}

void advance(Lock& lock, const StreamPtr& wanted, const std::function<bool()>& is_done) {
  while (!is_done()) {
    if (const StreamPtr s = next(wanted)) {
      step(lock, s);
      continue;
    }
    // Only a thread that will yet enqueue something could end this wait.
    const std::chrono::milliseconds patience(driver().options.patience_ms);
    const bool is_late = changed().wait_for(lock, patience) == std::cv_status::timeout;
    if (is_late && !is_done() && !next(wanted) && !is_in_host_functions()) return report_deadlock(wanted);
  }
}

void advance_once(Lock& lock, const StreamPtr& wanted) {
  if (const StreamPtr s = next(wanted)) step(lock, s);
}

void finish(Lock& lock, const StreamPtr& s) {
  const std::uint64_t last = s->number + s->queue.size();
  advance(lock, s, [&] { return s->is_idle() || (s->number >= last && !s->is_busy); });
}

void finish(Lock& lock, Device& device) {
  const auto is_idle = [&] {
    for (const auto& [handle, s] : driver().streams.all())
      if (s->device == &device && !s->is_idle()) return false;
    return true;
  };
  advance(lock, nullptr, is_idle);
  for (const auto& [handle, s] : driver().streams.all())
    if (s->device == &device) host_knows(s->clock);
}

void host_knows(const Clock& clock) {
  Clock joined = *driver().host_clock;
  join(joined, clock);
  driver().host_clock = std::make_shared<const Clock>(std::move(joined));
}

bool is_in_host_function() { return in_host_function; }

}  // namespace sheaf::fake_cuda
