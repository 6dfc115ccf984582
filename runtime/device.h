// The devices of this process and the queue of each. Invariant: a queue runs its tasks one at a time in the order they
// came, and the device list only grows, so a Device& is good for the life of the process.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/backend.h"
#include "runtime/queue.h"

namespace sheaf::runtime {

class Device {
 public:
  Device(int id, std::unique_ptr<Backend> backend);
  int id() const { return id_; }
  std::string name() const { return backend_->name(); }
  Backend& backend() const { return *backend_; }
  Allocator& allocator() const { return backend_->allocator(); }
  Queue& queue() { return queue_; }

 private:
  int id_;
  std::unique_ptr<Backend> backend_;
  Queue queue_;  // last: its thread uses the backend
};

/// All there are so far. First those of the process's platform, which SHEAF_PLATFORM names: "cpu" unless it is set, of
/// which there are SHEAF_CPU_DEVICES, one unless it is set; or "cuda", with the CPU's behind them.
std::vector<Device*> devices();
/// Those of one platform, in order. InvalidArgument for a platform that there is not; for "cuda" the driver's errors.
absl::StatusOr<std::vector<Device*>> devices_of(std::string_view platform);
/// The process's platform. Where it cannot be used, its one device fails whatever it is asked.
std::string_view platform();
/// Makes sure that there are at least `count` of the CPU, for tests and programs that simulate a mesh.
void ensure_devices(int count);
Device& device(int id);
/// Held while a launch is put on its queue, so that all queues have launches in the same order. Recursive: a launch
/// that has parts on several devices holds it around their runs.
std::recursive_mutex& launch_mutex();

}  // namespace sheaf::runtime
