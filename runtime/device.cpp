// The list is never destroyed: arrays in static storage outlive main, and a queue may still run when the process exits.
#include "runtime/device.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "fmt/format.h"
#include "ir/check.h"
#include "ir/log.h"
#include "runtime/cuda_backend.h"
#include "runtime/cuda_collectives.h"
#include "runtime/device_span.h"
#include "runtime/fork.h"
#include "sheaf/device.h"
#include "sheaf/error.h"
#include "sheaf/memory.h"

namespace sheaf::runtime {
namespace {

/// How far a caller may run ahead of a device.
constexpr int kQueueDepth = 32;
constexpr int kMaxDevices = 1024;

void finish_gpu_work();

/// Those of the list, for who knows the number: found without its mutex.
constinit std::array<std::atomic<Device*>, kMaxDevices + 64> devices_by_id{};

struct DeviceList {
  std::mutex mutex;
  std::vector<std::unique_ptr<Device>> devices;
  std::string platform = "cpu";
  std::optional<absl::Status> cuda;  // how the search for its devices ended

  void add(std::unique_ptr<Backend> backend) {
    const std::size_t id = devices.size();
    devices.push_back(std::make_unique<Device>(static_cast<int>(id), std::move(backend)));
    if (id < devices_by_id.size()) devices_by_id[id].store(devices.back().get(), std::memory_order_release);
  }

  static bool is_of(const Device& device, std::string_view platform_name) {
    return device.name().starts_with(std::string(platform_name) + ":");
  }

  std::vector<Device*> of(std::string_view platform_name) const {
    std::vector<Device*> out;
    for (const auto& device : devices)
      if (is_of(*device, platform_name)) out.push_back(device.get());
    return out;
  }

  void grow_cpu(int count) {
    for (auto n = static_cast<int>(of("cpu").size()); n < count; ++n) add(cpu_backend(n));
  }

  absl::Status find_cuda() {
    if (cuda) return *cuda;
    absl::StatusOr<std::vector<std::unique_ptr<Backend>>> found = cuda_backends();
    cuda = found.status();
    if (!found.ok()) return *cuda;
    for (std::unique_ptr<Backend>& backend : *found) add(std::move(backend));
    // The driver's own handlers were registered when it was opened, and run after this one.
    std::atexit(finish_gpu_work);
    return *cuda;
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
    if (const char* text = std::getenv("SHEAF_PLATFORM"); text && *text) {
      if (std::string_view(text) == "cpu" || std::string_view(text) == "cuda") made->platform = text;
      else ir::warn(fmt::format("SHEAF_PLATFORM={} is neither cpu nor cuda; using cpu", text));
    }
    if (made->platform == "cuda") {
      if (const absl::Status status = made->find_cuda(); !status.ok()) {
        made->cuda = absl::Status(status.code(), "SHEAF_PLATFORM=cuda: " + std::string(status.message()));
        made->add(missing_backend("cuda:0", *made->cuda));
      }
    }
    made->grow_cpu(configured_count());
    return made;
  }();
  return *list;
}

/// Work that is under way when the process exits would use a driver that has ended.
void finish_gpu_work() {
  if (!check_not_forked().ok()) return;  // it is the parent's
  for (Device* device : devices()) {
    if (device->backend().is_host()) continue;
    (void)device->queue().drain();
    device->backend().flights().drain();
  }
  if (ir::is_profiled()) settle_device_spans();
  CudaCollectives::finish();
}

}  // namespace

Device::Device(int id, std::unique_ptr<Backend> backend)
    : id_(id), backend_(std::move(backend)), queue_("sheaf-" + backend_->name(), kQueueDepth) {
  backend_->set_queue(&queue_);
}

std::vector<Device*> devices() {
  DeviceList& list = device_list();
  std::lock_guard lock(list.mutex);
  std::vector<Device*> out;
  for (const auto& device : list.devices) out.push_back(device.get());
  return out;
}

absl::StatusOr<std::vector<Device*>> devices_of(std::string_view platform) {
  DeviceList& list = device_list();
  std::lock_guard lock(list.mutex);
  if (platform == "cuda") {
    if (absl::Status status = list.find_cuda(); !status.ok()) return status;
  } else if (platform != "cpu") {
    return absl::InvalidArgumentError(fmt::format("there is no platform '{}', only cpu and cuda", platform));
  }
  return list.of(platform);
}

std::string_view platform() { return device_list().platform; }

void ensure_devices(int count) {
  SHEAF_CHECK(count <= kMaxDevices);
  DeviceList& list = device_list();
  std::lock_guard lock(list.mutex);
  list.grow_cpu(count);
}

Device& device(int id) {
  if (id >= 0 && id < std::ssize(devices_by_id))
    if (Device* known = devices_by_id[id].load(std::memory_order_acquire)) return *known;
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

std::string to_string(Device device) {
  const std::vector<runtime::Device*> all = runtime::devices();
  const bool is_known = device.id >= 0 && device.id < std::ssize(all);
  return is_known ? all[device.id]->name() : "cpu:" + std::to_string(device.id);
}

std::vector<Device> devices(Loc loc) { return devices(runtime::platform(), loc); }

std::vector<Device> devices(std::string_view platform, Loc loc) {
  const absl::StatusOr<std::vector<runtime::Device*>> found = runtime::devices_of(platform);
  if (!found.ok()) throw RuntimeError(loc, fmt::format("devices: {}", std::string(found.status().message())));
  std::vector<Device> out;
  for (const runtime::Device* device : *found) out.push_back({device->id()});
  return out;
}

void ensure_devices(int count, Loc loc) {
  if (count > runtime::kMaxDevices)
    throw RuntimeError(
        loc, fmt::format("ensure_devices: {} devices; at most {} can be simulated", count, runtime::kMaxDevices));
  runtime::ensure_devices(count);
}

namespace {

runtime::Device& known_device(Device device, Loc loc) {
  if (const absl::Status status = runtime::check_not_forked(); !status.ok())
    throw RuntimeError(loc, std::string(status.message()));
  const std::vector<runtime::Device*> all = runtime::devices();
  if (device.id >= 0 && device.id < std::ssize(all)) return *all[device.id];
  throw RuntimeError(loc, fmt::format("there is no device {}, only {} to {}", to_string(device), all.front()->name(),
                                      all.back()->name()));
}

}  // namespace

MemoryStats memory_stats(Device device, Loc loc) {
  runtime::Device& known = known_device(device, loc);
  known.backend().flights().clear_up();
  const runtime::AllocatorStats stats = known.allocator().stats();
  return {.bytes_in_use = stats.bytes_in_use,
          .peak_bytes = stats.peak_bytes,
          .bytes_reserved = stats.bytes_reserved,
          .bytes_limit = stats.bytes_limit};
}

namespace {

std::vector<MemoryUse> public_uses(std::vector<runtime::LineUse> uses) {
  std::vector<MemoryUse> all;
  for (const runtime::LineUse& use : uses) all.push_back({use.made_at, use.bytes, use.blocks});
  return all;
}

}  // namespace

std::vector<MemoryUse> live_memory(Device device, Loc loc) {
  runtime::Device& known = known_device(device, loc);
  known.backend().flights().clear_up();
  return public_uses(known.allocator().live());
}

std::vector<MemoryUse> peak_memory(Device device, Loc loc) {
  return public_uses(known_device(device, loc).allocator().at_peak());
}

std::string to_string(const std::vector<MemoryUse>& uses) {
  std::string text;
  for (const MemoryUse& use : uses)
    text += fmt::format("{} in {} block{}{}\n", runtime::human_bytes(use.bytes), use.blocks, use.blocks == 1 ? "" : "s",
                        use.made_at ? " made at " + to_string(use.made_at) : "");
  return text;
}

void synchronize(Loc loc) {
  for (const runtime::Device* device : runtime::devices()) synchronize(Device{device->id()}, loc);
}

void synchronize(Device device, Loc loc) {
  runtime::Device& known = known_device(device, loc);
  if (absl::Status status = known.queue().drain(); !status.ok()) throw RuntimeError(loc, std::string(status.message()));
  known.backend().flights().drain();
}

}  // namespace sheaf
