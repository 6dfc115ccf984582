// One state for the process, made anew by a reset; the lock and what waits for it outlive both.
#include "tests/emulator/fake_cuda/driver.h"

#include <fmt/format.h>

#include <cstdio>

#include "tests/emulator/fake_cuda/graph.h"
#include "tests/emulator/fake_cuda/kernel.h"

namespace sheaf::fake_cuda {
namespace {

// Never destroyed, since the program may call while it ends; what is left then is listed below.
std::unique_ptr<Driver>& state() {
  static auto& driver = *new std::unique_ptr<Driver>(new Driver);
  return driver;
}

struct CurrentContext {
  std::uint64_t generation = 0;
  Device* device = nullptr;
};
thread_local CurrentContext current;

struct LeaksAtExit {
  ~LeaksAtExit() {
    const std::unique_lock lock(mutex());
    if (driver().options.lists_leaks) std::fprintf(stderr, "fake CUDA: not given back:\n%s", leaks().c_str());
  }
} leaks_at_exit;

void write_out(const std::string& text) {
  const std::string& path = driver().options.report;
  std::FILE* file = path.empty() ? stderr : std::fopen(path.c_str(), "a");
  if (!file) file = stderr;
  std::fprintf(file, "fake CUDA: %s\n", text.c_str());
  if (file != stderr) std::fclose(file);
}

}  // namespace

Driver::~Driver() = default;

Driver& driver() { return *state(); }

std::mutex& mutex() {
  static auto& m = *new std::mutex;
  return m;
}

std::condition_variable& changed() {
  static auto& c = *new std::condition_variable;
  return c;
}

void reset() {
  const std::uint64_t generation = driver().generation;
  state().reset();
  state() = std::make_unique<Driver>();
  driver().generation = generation + 1;
}

void report(const std::string& text) {
  driver().last_fault = text;
  ++driver().counters.faults;
  write_out(text);
}

CUresult misuse(CUresult result, const std::string& text) {
  report(text);
  return result;
}

// A real device forgets its work; those who wait for its events on other devices go on, and those who wait for its part
// of a collective wait.
CUresult fault(Device& device, CUresult result, const std::string& text) {
  report(text);
  device.sticky = result;
  for (const auto& [handle, s] : driver().streams.all()) {
    if (s->device != &device) continue;
    for (const Work& w : s->queue)
      if (w.kind == Work::Kind::record && !w.event->is_gate) w.event->done = std::max(w.event->done, w.version);
    s->queue.clear();
  }
  return result;
}

Device* device_of(cuda::CUcontext context) {
  for (const auto& d : driver().devices)
    if (reinterpret_cast<cuda::CUcontext>(d.get()) == context) return d.get();
  return nullptr;
}

Device* current_device() { return current.generation == driver().generation ? current.device : nullptr; }
void set_current_device(Device* device) { current = {driver().generation, device}; }

Device* owner_of(CUdeviceptr pointer) {
  for (const auto& d : driver().devices)
    if (d->memory.owns(pointer)) return d.get();
  return nullptr;
}

std::string leaks() {
  std::string text;
  for (const auto& d : driver().devices)
    for (const std::string& line : d->memory.leaks()) text += line + "\n";
  for (const auto& [at, block] : driver().host)
    text += fmt::format("{} bytes of {} host memory\n", block.bytes, block.is_registered ? "registered" : "pinned");
  const auto count = [&](const auto& things, const char* what) {
    if (!things.empty()) text += fmt::format("{} {}{}\n", things.size(), what, things.size() == 1 ? "" : "s");
  };
  count(driver().streams.all(), "stream");
  count(driver().events.all(), "event");
  count(driver().modules.all(), "module");
  count(driver().graphs.all(), "graph");
  count(driver().executables.all(), "executable graph");
  return text;
}

}  // namespace sheaf::fake_cuda

using namespace sheaf::fake_cuda;

#define SHEAF_EXPORT extern "C" __attribute__((visibility("default")))

SHEAF_EXPORT const char* sheafFakeCudaLastFault() {
  const std::unique_lock lock(mutex());
  return driver().last_fault.c_str();
}

SHEAF_EXPORT const char* sheafFakeCudaLeaks() {
  const std::unique_lock lock(mutex());
  driver().leaks = leaks();
  return driver().leaks.c_str();
}

SHEAF_EXPORT void sheafFakeCudaCounters(Counters* counters) {
  const std::unique_lock lock(mutex());
  *counters = driver().counters;
}

SHEAF_EXPORT void sheafFakeCudaReset() {
  const std::unique_lock lock(mutex());
  reset();
}
