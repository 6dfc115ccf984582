// The list is never destroyed: arrays in static storage outlive main, and a queue may still run when the process exits.
#include "runtime/device.h"

#include <cstdlib>
#include <memory>

#include "fmt/format.h"
#include "ir/check.h"
#include "ir/log.h"
#include "sheaf/device.h"
#include "sheaf/error.h"

namespace sheaf::runtime {
namespace {

/// How far a caller may run ahead of a device.
constexpr int kQueueDepth = 32;
constexpr int kMaxDevices = 1024;

struct DeviceList {
  std::mutex mutex;
  std::vector<std::unique_ptr<Device>> devices;

  void grow(int count) {
    while (std::ssize(devices) < count)
      devices.push_back(std::make_unique<Device>(static_cast<int>(devices.size()), Allocator::host()));
  }
};

int configured_count() {
  const char* text = std::getenv("SHEAF_CPU_DEVICES");
  if (!text || !*text) return 1;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (*end == '\0' && value >= 1 && value <= kMaxDevices) return static_cast<int>(value);
  ir::warn(fmt::format("SHEAF_CPU_DEVICES={} is not a number from 1 to {}; using 1", text, kMaxDevices));
  return 1;
}

DeviceList& device_list() {
  static DeviceList* const list = [] {
    auto* made = new DeviceList;
    made->grow(configured_count());
    return made;
  }();
  return *list;
}

}  // namespace

Device::Device(int id, Allocator& allocator)
    : id_(id), allocator_(allocator), queue_("sheaf-cpu:" + std::to_string(id), kQueueDepth) {}

std::vector<Device*> devices() {
  DeviceList& list = device_list();
  std::lock_guard lock(list.mutex);
  std::vector<Device*> out;
  for (const auto& device : list.devices) out.push_back(device.get());
  return out;
}

void ensure_devices(int count) {
  SHEAF_CHECK(count <= kMaxDevices);
  DeviceList& list = device_list();
  std::lock_guard lock(list.mutex);
  list.grow(count);
}

Device& device(int id) {
  DeviceList& list = device_list();
  std::lock_guard lock(list.mutex);
  SHEAF_CHECK(id >= 0 && id < std::ssize(list.devices));
  return *list.devices[id];
}

std::recursive_mutex& launch_mutex() {
  static auto* const mutex = new std::recursive_mutex;
  return *mutex;
}

}  // namespace sheaf::runtime

namespace sheaf {

std::string to_string(Device device) { return "cpu:" + std::to_string(device.id); }

std::vector<Device> devices() {
  std::vector<Device> out;
  for (const runtime::Device* device : runtime::devices()) out.push_back({device->id()});
  return out;
}

void ensure_devices(int count) {
  if (count > runtime::kMaxDevices)
    throw RuntimeError(
        fmt::format("ensure_devices: {} devices; at most {} can be simulated", count, runtime::kMaxDevices));
  runtime::ensure_devices(count);
}

namespace {

runtime::Device& known_device(Device device) {
  const std::vector<runtime::Device*> all = runtime::devices();
  if (device.id >= 0 && device.id < std::ssize(all)) return *all[device.id];
  throw RuntimeError(fmt::format("there is no device {}, only cpu:0 to cpu:{}", to_string(device), all.size() - 1));
}

}  // namespace

MemoryStats memory_stats(Device device) {
  const runtime::AllocatorStats stats = known_device(device).allocator().stats();
  return {.bytes_in_use = stats.bytes_in_use,
          .peak_bytes = stats.peak_bytes,
          .bytes_reserved = stats.bytes_reserved,
          .bytes_limit = stats.bytes_limit};
}

void synchronize() {
  for (const Device device : devices()) synchronize(device);
}

void synchronize(Device device) {
  if (absl::Status status = known_device(device).queue().drain(); !status.ok())
    throw RuntimeError(std::string(status.message()));
}

}  // namespace sheaf
