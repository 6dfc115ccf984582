// Streams and events of the fake driver. Nothing runs until a call waits or asks for it; then streams go on one item at
// a time, in whatever order a real driver may choose and this one is told to (Options::Order).
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/driver/cuda_abi.h"
#include "tests/emulator/fake_cuda/clock.h"

namespace sheaf::fake_cuda {

struct Device;
struct Capture;
struct Stream;
using StreamPtr = std::shared_ptr<Stream>;
using Lock = std::unique_lock<std::mutex>;  // of Driver::mutex

struct Event {
  Device* device = nullptr;  // null for one that no stream has been asked to record yet
  bool has_timing = true;
  std::uint64_t recorded = 0, done = 0;  // how often a record was asked for, and done
  bool is_gate = false;  // of a collective: nobody opens it in place of a device that has failed
  std::weak_ptr<Stream> last = {};  // where it was last asked for
  Clock clock = {};  // of what was over then
  std::chrono::steady_clock::time_point time = {};
  std::shared_ptr<Capture> capture = {};  // it was last recorded in a capture, after these nodes
  std::vector<int> captured_after = {};
};
using EventPtr = std::shared_ptr<Event>;

struct Work {
  enum class Kind { run, host, record, wait };
  Kind kind = Kind::run;
  std::string what = {};  // "sheaf_k0"
  std::function<cuda::CUresult(const Position&)> run = {};  // of run and host
  EventPtr event = {};  // of record and wait
  std::uint64_t version = 0;
  std::shared_ptr<const Clock> since = {};  // what the host knew to be over when it asked
};

struct Stream {
  int id = 0;
  Device* device = nullptr;
  unsigned flags = 0;
  std::deque<Work> queue = {};
  std::uint64_t number = 0;  // items begun
  Clock clock = {};
  bool is_busy = false;  // in a host function
  std::shared_ptr<Capture> capture = {};  // what is enqueued becomes a node of it, after these
  std::vector<int> captured_after = {};
  std::string name() const;  // "stream 2 of device 0"
  bool is_idle() const { return queue.empty() && !is_busy; }
};

/// Adds to a stream that is not being captured.
void enqueue(Stream& stream, Work work);
/// Lets streams go on until `is_done`, `wanted` being the one that is waited for (or null: all).
void advance(Lock& lock, const StreamPtr& wanted, const std::function<bool()>& is_done);
/// Until all that `stream` was asked for so far is over.
void finish(Lock& lock, const StreamPtr& stream);
/// Lets `wanted` go on by one item, or what it waits for.
void advance_once(Lock& lock, const StreamPtr& wanted);
/// Until everything on this device, or all, is over; the host knows it then.
void finish(Lock& lock, Device& device);
/// The host has waited for all that `clock` says.
void host_knows(const Clock& clock);
/// True in a host function, which may call nothing.
bool is_in_host_function();

}  // namespace sheaf::fake_cuda
