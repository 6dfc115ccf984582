// One GPU as its parts share it, and its events. An event is one of the driver's, lent from a pool for as long as
// somebody may wait for it.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/cuda_timeline.h"
#include "runtime/driver/cuda.h"
#include "runtime/event.h"

namespace sheaf::runtime {

class CudaContext {
 public:
  CudaContext(const Cuda& driver, int gpu) : cuda(driver), ordinal(gpu), name("cuda:" + std::to_string(gpu)) {}

  /// The driver's context belongs to threads: whatever calls it begins with this. An error in a forked child.
  absl::Status enter() const;
  /// Where the work of this stream ends now.
  absl::StatusOr<EventPtr> record(cuda::CUstream stream);
  /// What `stream` is asked from now on comes after the event, also where that is of another GPU, or of no GPU.
  absl::Status await(cuda::CUstream stream, const Event& event) const;
  absl::Status wait_for(cuda::CUstream stream) const;
  absl::StatusOr<cuda::CUevent> take_event();
  void give_back(cuda::CUevent event);

  const Cuda& cuda;
  const int ordinal;
  const std::string name;  // "cuda:0"
  cuda::CUcontext context = nullptr;
  cuda::CUstream work = nullptr, copies = nullptr;  // in their order; those that need not wait for it
  CudaTimeline timeline{*this};

 private:
  std::mutex mutex_;
  std::vector<cuda::CUevent> free_;
};

}  // namespace sheaf::runtime
