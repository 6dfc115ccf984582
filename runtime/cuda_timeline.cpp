// Events tell milliseconds as floats, so the moment they are counted from is never long ago.
#include "runtime/cuda_timeline.h"

#include <utility>

#include "runtime/cuda_context.h"

namespace sheaf::runtime {
namespace {

constexpr std::int64_t kOldOriginNs = 1'000'000'000;
/// The most that wait to be read: a driver's events are not for nothing.
constexpr std::size_t kMostPending = 4096;

}  // namespace

cuda::CUevent CudaTimeline::take_event_locked() {
  if (!free_.empty()) {
    const cuda::CUevent event = free_.back();
    free_.pop_back();
    return event;
  }
  cuda::CUevent event = nullptr;
  return gpu_.cuda.cuEventCreate(&event, cuda::CU_EVENT_DEFAULT) == cuda::CUDA_SUCCESS ? event : nullptr;
}

void CudaTimeline::give_back_locked(const Mark& mark) {
  free_.push_back(mark.event);
  --origin_locked(mark.origin).marks;
  while (origins_.size() > 1 && origins_.front().marks == 0) {
    free_.push_back(origins_.front().event);
    origins_.pop_front();
    ++first_origin_;
  }
}

/// False where there is none. Recorded where nothing else is, it is over at once.
bool CudaTimeline::renew_origin_locked() {
  const std::int64_t before = ir::profile_clock_ns();
  if (!origins_.empty() && before - origins_.back().ns < kOldOriginNs) return true;
  const Cuda& cuda = gpu_.cuda;
  if (!clock_ && cuda.cuStreamCreate(&clock_, cuda::CU_STREAM_NON_BLOCKING) != cuda::CUDA_SUCCESS) return false;
  const cuda::CUevent event = take_event_locked();
  if (!event) return false;
  if (cuda.cuEventRecord(event, clock_) != cuda::CUDA_SUCCESS || cuda.cuEventSynchronize(event) != cuda::CUDA_SUCCESS) {
    free_.push_back(event);
    return false;
  }
  origins_.push_back({.event = event, .ns = before + (ir::profile_clock_ns() - before) / 2});
  return true;
}

CudaTimeline::Mark CudaTimeline::mark(cuda::CUstream stream) {
  if (!gpu_.enter().ok()) return {};
  std::lock_guard lock(mutex_);
  if (!renew_origin_locked()) return {};
  const cuda::CUevent event = take_event_locked();
  if (!event) return {};
  if (gpu_.cuda.cuEventRecord(event, stream) != cuda::CUDA_SUCCESS) {
    free_.push_back(event);
    return {};
  }
  ++origins_.back().marks;
  return {.event = event, .origin = first_origin_ + origins_.size() - 1};
}

void CudaTimeline::add(const ir::ProfileSpan& span, const Mark& begun, const Mark& ended) {
  std::lock_guard lock(mutex_);
  pending_.push_back({.span = span, .begun = begun, .ended = ended});
  if (pending_.size() > kMostPending && gpu_.enter().ok()) settle_locked(kMostPending / 2);
}

void CudaTimeline::drop(const Mark& mark) {
  std::lock_guard lock(mutex_);
  give_back_locked(mark);
}

void CudaTimeline::settle() {
  if (!gpu_.enter().ok()) return;
  std::lock_guard lock(mutex_);
  settle_locked(0);
}

/// Waits for it; false of a device that has failed.
bool CudaTimeline::read_locked(Pending& pending) {
  constexpr double kNsPerMs = 1e6;
  const Cuda& cuda = gpu_.cuda;
  if (cuda.cuEventSynchronize(pending.ended.event) != cuda::CUDA_SUCCESS) return false;
  for (const auto& [mark, ns] :
       {std::pair(&pending.begun, &pending.span.begin_ns), std::pair(&pending.ended, &pending.span.end_ns)}) {
    const Origin& origin = origin_locked(mark->origin);
    float ms = 0;
    if (cuda.cuEventElapsedTime(&ms, origin.event, mark->event) != cuda::CUDA_SUCCESS) return false;
    *ns = origin.ns + static_cast<std::int64_t>(kNsPerMs * double{ms});
  }
  return true;
}

void CudaTimeline::settle_locked(std::size_t most_left) {
  while (pending_.size() > most_left) {
    Pending oldest = pending_.front();
    pending_.pop_front();
    if (read_locked(oldest)) ir::add_span(oldest.span);
    give_back_locked(oldest.begun);
    give_back_locked(oldest.ended);
  }
}

}  // namespace sheaf::runtime
