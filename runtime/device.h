// The devices of this process and the queue of each. Invariant: a queue runs its tasks one at a time in the order they
// came, and the device list only grows, so a Device& is good for the life of the process.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/allocator.h"
#include "runtime/queue.h"

namespace sheaf::runtime {

class Device {
 public:
  Device(int id, Allocator& allocator);
  int id() const { return id_; }
  std::string name() const { return "cpu:" + std::to_string(id_); }
  Allocator& allocator() const { return allocator_; }
  Queue& queue() { return queue_; }

 private:
  int id_;
  Allocator& allocator_;
  Queue queue_;
};

/// SHEAF_CPU_DEVICES virtual CPU devices, one unless it is set.
std::vector<Device*> devices();
/// Makes sure that there are at least `count`, for tests and programs that simulate a mesh.
void ensure_devices(int count);
Device& device(int id);
/// Held while a launch is put on its queue, so that all queues have launches in the same order. Recursive: a launch
/// that has parts on several devices holds it around their runs.
std::recursive_mutex& launch_mutex();

}  // namespace sheaf::runtime
