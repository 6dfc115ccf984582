// A CPU's span is known when it ends; a GPU's when its device says so.
#include "runtime/device_span.h"

#include "runtime/cuda_context.h"
#include "runtime/device.h"
#include "runtime/fork.h"

namespace sheaf::runtime {
namespace {

ir::ProfileSpan span_of(const std::string& device, const SpanOf& of) {
  return {.activity = of.activity,
          .row = ir::device_row(device, of.activity),
          .name = ir::profile_name(of.name),
          .loc = of.loc,
          .begin_ns = ir::profile_clock_ns(),
          .end_ns = 0,
          .work = of.work,
          .call = of.call};
}

}  // namespace

void DeviceSpan::begin(Backend& backend, const SpanOf& of, Stream stream) {
  if (CudaContext* gpu = backend.cuda_context())
    return begin(*gpu, stream == Stream::work ? gpu->work : gpu->copies, of);
  open_.emplace(Open{.span = span_of(backend.name(), of), .begun = {}});
}

void DeviceSpan::begin(CudaContext& gpu, cuda::CUstream stream, const SpanOf& of) {
  const CudaTimeline::Mark begun = gpu.timeline.mark(stream);
  if (!begun.event) return;
  open_.emplace(Open{.span = span_of(gpu.name, of), .gpu = &gpu, .stream = stream, .begun = begun});
}

void DeviceSpan::end() {
  if (!open_->gpu) {
    open_->span.end_ns = ir::profile_clock_ns();
    return ir::add_span(open_->span);
  }
  CudaTimeline& timeline = open_->gpu->timeline;
  const CudaTimeline::Mark ended = timeline.mark(open_->stream);
  if (ended.event) timeline.add(open_->span, open_->begun, ended);
  else timeline.drop(open_->begun);
}

void DeviceSpan::drop() {
  if (open_ && open_->gpu) open_->gpu->timeline.drop(open_->begun);
  open_.reset();
}

void settle_device_spans() {
  if (!check_not_forked().ok()) return;
  for (const Device* device : devices())
    if (CudaContext* gpu = device->backend().cuda_context()) gpu->timeline.settle();
}

}  // namespace sheaf::runtime
