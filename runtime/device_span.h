// What a device does for a profile, from one place in its work to another: on a CPU the time that passes here, on a GPU
// that between two events in its stream.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string_view>

#include "ir/profile.h"
#include "runtime/cuda_timeline.h"

namespace sheaf::runtime {

class Backend;
class CudaContext;

/// What is told of a span.
struct SpanOf {
  ir::Activity activity = ir::Activity::launch;
  std::string_view name = {};
  Loc loc = {};
  ir::Work work = {};
  std::uint64_t call = ir::current_call();
};

/// Costs one relaxed load where nobody wants it.
class DeviceSpan {
 public:
  enum class Stream : std::uint8_t { work, copies };  // of a GPU; a CPU has but one of its own

  /// `of` says what it is, and is called only if somebody wants to know.
  template <std::invocable Of>
  DeviceSpan(Backend& backend, Of of, Stream stream = Stream::work) {
    if (ir::is_profiled()) begin(backend, of(), stream);
  }
  /// Of another stream of a GPU's.
  template <std::invocable Of>
  DeviceSpan(CudaContext& gpu, cuda::CUstream stream, Of of) {
    if (ir::is_profiled()) begin(gpu, stream, of());
  }
  ~DeviceSpan() {
    if (open_) end();
  }
  DeviceSpan(const DeviceSpan&) = delete;
  DeviceSpan& operator=(const DeviceSpan&) = delete;
  /// There was nothing to do.
  void drop();

 private:
  struct Open {
    ir::ProfileSpan span;
    CudaContext* gpu = nullptr;  // null: by the host's clock
    cuda::CUstream stream = nullptr;
    CudaTimeline::Mark begun;
  };

  void begin(Backend& backend, const SpanOf& of, Stream stream);
  void begin(CudaContext& gpu, cuda::CUstream stream, const SpanOf& of);
  void end();

  std::optional<Open> open_;
};

/// Until the spans of all devices are in the log.
void settle_device_spans();

}  // namespace sheaf::runtime
