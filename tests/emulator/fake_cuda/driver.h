// The state of the fake driver: devices, and what was made on them. One lock guards it all; it is let go only while a
// host function runs.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/emulator/fake_cuda/fake_cuda.h"
#include "tests/emulator/fake_cuda/memory.h"
#include "tests/emulator/fake_cuda/options.h"
#include "tests/emulator/fake_cuda/stream.h"

namespace sheaf::fake_cuda {

struct Function;
struct Module;
struct Node;
struct Graph;
struct GraphExec;

struct Device {
  int ordinal = 0;
  Memory memory;
  CUresult sticky = cuda::CUDA_SUCCESS;  // what every call says since a fault
  int retained = 0;  // of the primary context
  std::set<int> peers = {};  // whose memory its kernels may touch
};

/// Pinned or registered memory of the host.
struct HostBlock {
  std::int64_t bytes = 0;
  bool is_registered = false;
};

/// Things by the handle that the caller has. A handle is checked, never trusted.
template <class T>
class Handles {
 public:
  template <class Handle>
  Handle add(std::shared_ptr<T> thing) {
    T* at = thing.get();
    things_.emplace(at, std::move(thing));
    return reinterpret_cast<Handle>(at);
  }
  std::shared_ptr<T> find(const void* handle) const {
    const auto i = things_.find(handle);
    return i == things_.end() ? nullptr : i->second;
  }
  bool remove(const void* handle) { return things_.erase(handle) > 0; }
  const auto& all() const { return things_; }

 private:
  std::unordered_map<const void*, std::shared_ptr<T>> things_;
};

struct Driver {
  Options options = read_options();
  bool is_initialised = false;
  std::vector<std::unique_ptr<Device>> devices;
  std::map<std::uintptr_t, HostBlock> host;
  Handles<Stream> streams;
  Handles<Event> events;
  Handles<Module> modules;
  Handles<Function> functions;  // that were asked for, of these
  Handles<Graph> graphs;
  Handles<Node> nodes;  // of these
  Handles<GraphExec> executables;
  std::vector<int> free_stream_ids;  // an id's clock goes on with the next stream of that id
  std::vector<std::uint64_t> stream_numbers;
  std::shared_ptr<const Clock> host_clock = std::make_shared<Clock>();
  std::mt19937_64 random{options.seed};
  Counters counters = {};
  std::string last_fault, leaks;
  int captures = 0;  // under way in the global mode
  std::uint64_t generation = 0;  // of resets
  ~Driver();
};

Driver& driver();
std::mutex& mutex();
/// Told whenever something was enqueued or done.
std::condition_variable& changed();

/// Keeps, counts and writes a misuse.
void report(const std::string& text);
/// The same, and every later call for this device says `result`.
CUresult fault(Device& device, CUresult result, const std::string& text);
/// For calls whose arguments are wrong: reports, and returns `result`.
CUresult misuse(CUresult result, const std::string& text);

Device* device_of(cuda::CUcontext context);
/// That of the thread's current context, or null.
Device* current_device();
void set_current_device(Device* device);
/// The device whose memory this is, or null.
Device* owner_of(CUdeviceptr pointer);

/// Lists what was not given back, one line each.
std::string leaks();
void reset();

}  // namespace sheaf::fake_cuda
