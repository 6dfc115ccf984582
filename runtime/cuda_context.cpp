// Work in one stream needs no event to be in order.
#include "runtime/cuda_context.h"

#include <memory>

#include "runtime/fork.h"

namespace sheaf::runtime {
namespace {

class CudaEvent final : public Event {
 public:
  CudaEvent(CudaContext& gpu, cuda::CUevent event, cuda::CUstream stream) : gpu_(gpu), event_(event), stream_(stream) {}
  ~CudaEvent() override { gpu_.give_back(event_); }

  bool is_over() const override {
    return !gpu_.enter().ok() || gpu_.cuda.cuEventQuery(event_) != cuda::CUDA_ERROR_NOT_READY;
  }
  absl::Status wait() const override {
    if (absl::Status status = gpu_.enter(); !status.ok()) return status;
    return gpu_.cuda.status(gpu_.cuda.cuEventSynchronize(event_), "work on " + gpu_.name);
  }
  cuda::CUevent event() const { return event_; }
  cuda::CUstream stream() const { return stream_; }

 private:
  CudaContext& gpu_;
  const cuda::CUevent event_;
  const cuda::CUstream stream_;
};

}  // namespace

absl::Status CudaContext::enter() const {
  if (absl::Status status = check_not_forked(); !status.ok()) return status;
  return cuda.status(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

absl::StatusOr<EventPtr> CudaContext::record(cuda::CUstream stream) {
  const absl::StatusOr<cuda::CUevent> event = take_event();
  if (!event.ok()) return event.status();
  auto recorded = std::make_shared<const CudaEvent>(*this, *event, stream);
  if (absl::Status status = cuda.status(cuda.cuEventRecord(*event, stream), "cuEventRecord"); !status.ok())
    return status;
  return recorded;
}

absl::Status CudaContext::await(cuda::CUstream stream, const Event& event) const {
  const auto* recorded = dynamic_cast<const CudaEvent*>(&event);
  if (!recorded) return event.wait();
  if (recorded->stream() == stream) return absl::OkStatus();
  if (absl::Status status = enter(); !status.ok()) return status;
  return cuda.status(cuda.cuStreamWaitEvent(stream, recorded->event(), 0), "cuStreamWaitEvent");
}

absl::Status CudaContext::wait_for(cuda::CUstream stream) const {
  if (absl::Status status = enter(); !status.ok()) return status;
  return cuda.status(cuda.cuStreamSynchronize(stream), "work on " + name);
}

absl::StatusOr<cuda::CUevent> CudaContext::take_event() {
  if (absl::Status status = enter(); !status.ok()) return status;
  {
    std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      const cuda::CUevent event = free_.back();
      free_.pop_back();
      return event;
    }
  }
  cuda::CUevent event = nullptr;
  absl::Status status = cuda.status(cuda.cuEventCreate(&event, cuda::CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  if (!status.ok()) return status;
  return event;
}

void CudaContext::give_back(cuda::CUevent event) {
  std::lock_guard lock(mutex_);
  free_.push_back(event);
}

}  // namespace sheaf::runtime
