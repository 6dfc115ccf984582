// Entry points of the fake driver: streams, events and host functions.
#include <fmt/format.h>

#include "tests/emulator/fake_cuda/entry.h"

using namespace sheaf::cuda;
using namespace sheaf::fake_cuda;

namespace {

CUresult call_on_event(const char* name, CUevent handle, const std::function<CUresult(Lock&, const EventPtr&)>& body) {
  return call(name, [&](Lock& lock) {
    const EventPtr event = driver().events.find(handle);
    if (!event) return misuse(CUDA_ERROR_INVALID_HANDLE, fmt::format("{}: no such event, or one destroyed", name));
    return body(lock, event);
  });
}

// What is captured has not happened, and cannot be waited for.
CUresult forbid_captured(const char* name, const Event& event) {
  return event.capture
             ? misuse(CUDA_ERROR_CAPTURED_EVENT, fmt::format("{}: an event that was recorded in a capture", name))
             : CUDA_SUCCESS;
}

int new_stream_id() {
  Driver& d = driver();
  if (d.free_stream_ids.empty()) {
    d.stream_numbers.push_back(0);
    return static_cast<int>(d.stream_numbers.size()) - 1;
  }
  const int id = d.free_stream_ids.back();
  d.free_stream_ids.pop_back();
  return id;
}

}  // namespace

SHEAF_EXPORT CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  return call_on_device("cuStreamCreate", [&](Lock&, Device& d) {
    const int id = new_stream_id();
    const std::uint64_t number = driver().stream_numbers[static_cast<std::size_t>(id)];
    *stream = driver().streams.add<CUstream>(
        std::make_shared<Stream>(Stream{.id = id, .device = &d, .flags = flags, .number = number}));
    return CUDA_SUCCESS;
  });
}

// The real driver gives the stream back once its work is done; here it is done now.
SHEAF_EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
  return call("cuStreamDestroy", [&](Lock& lock) {
    const StreamPtr s = driver().streams.find(stream);
    if (!s) return misuse(CUDA_ERROR_INVALID_HANDLE, "cuStreamDestroy: no such stream, or one destroyed");
    if (s->capture)
      return misuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                    fmt::format("cuStreamDestroy: {} is being captured", s->name()));
    finish(lock, s);
    driver().streams.remove(stream);
    driver().stream_numbers[static_cast<std::size_t>(s->id)] = s->number;
    driver().free_stream_ids.push_back(s->id);
    return s->device->sticky;
  });
}

SHEAF_EXPORT CUresult cuStreamSynchronize(CUstream stream) {
  return wait_on_stream("cuStreamSynchronize", stream, [&](Lock& lock, const StreamPtr& s) {
    finish(lock, s);
    host_knows(s->clock);
    s->device->memory.trim(s->device->memory.release_threshold);
    return s->device->sticky;
  });
}

// Each question lets the stream go on by one item, so asking again and again comes to an end.
SHEAF_EXPORT CUresult cuStreamQuery(CUstream stream) {
  return wait_on_stream("cuStreamQuery", stream, [&](Lock& lock, const StreamPtr& s) {
    if (!s->is_idle()) return advance_once(lock, s), s->device->sticky ? s->device->sticky : CUDA_ERROR_NOT_READY;
    host_knows(s->clock);
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent handle, unsigned) {
  return call_on_stream("cuStreamWaitEvent", stream, [&](Lock&, const StreamPtr& s) {
    const EventPtr event = driver().events.find(handle);
    if (!event) return misuse(CUDA_ERROR_INVALID_HANDLE, "cuStreamWaitEvent: no such event, or one destroyed");
    if (event->capture || s->capture) return wait_in_capture(s, *event);
    if (event->recorded > 0)
      enqueue(*s, {.kind = Work::Kind::wait, .what = "an event", .event = event, .version = event->recorded});
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* user_data) {
  return call_on_stream("cuLaunchHostFunc", stream, [&](Lock&, const StreamPtr& s) {
    return submit(*s,
                  {.kind = Work::Kind::host,
                   .what = "a host function",
                   .run =
                       [=](const Position&) {
                         function(user_data);
                         return CUDA_SUCCESS;
                       }},
                  CU_GRAPH_NODE_TYPE_HOST);
  });
}

SHEAF_EXPORT CUresult cuEventCreate(CUevent* event, unsigned flags) {
  return call_on_device("cuEventCreate", [&](Lock&, Device& d) {
    *event = driver().events.add<CUevent>(
        std::make_shared<Event>(Event{.device = &d, .has_timing = !(flags & CU_EVENT_DISABLE_TIMING)}));
    return CUDA_SUCCESS;
  });
}

// Work that waits for it still may.
SHEAF_EXPORT CUresult cuEventDestroy_v2(CUevent event) {
  return call_on_event("cuEventDestroy", event, [&](Lock&, const EventPtr&) {
    driver().events.remove(event);
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuEventRecord(CUevent handle, CUstream stream) {
  return call_on_stream("cuEventRecord", stream, [&](Lock&, const StreamPtr& s) {
    const EventPtr event = driver().events.find(handle);
    if (!event) return misuse(CUDA_ERROR_INVALID_HANDLE, "cuEventRecord: no such event, or one destroyed");
    if (event->device != s->device)
      return misuse(CUDA_ERROR_INVALID_HANDLE,
                    fmt::format("cuEventRecord: an event of device {} on {}", event->device->ordinal, s->name()));
    if (s->capture) return record_in_capture(*s, *event), CUDA_SUCCESS;
    event->capture = nullptr;
    event->last = s;
    enqueue(*s, {.kind = Work::Kind::record, .what = "an event", .event = event, .version = ++event->recorded});
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuEventSynchronize(CUevent handle) {
  return call_on_event("cuEventSynchronize", handle, [&](Lock& lock, const EventPtr& event) {
    if (const CUresult r = forbid_captured("cuEventSynchronize", *event)) return r;
    const std::uint64_t version = event->recorded;
    advance(lock, event->last.lock(), [&] { return event->done >= version || event->device->sticky; });
    host_knows(event->clock);
    return event->device->sticky;
  });
}

SHEAF_EXPORT CUresult cuEventQuery(CUevent handle) {
  return call_on_event("cuEventQuery", handle, [&](Lock& lock, const EventPtr& event) {
    if (const CUresult r = forbid_captured("cuEventQuery", *event)) return r;
    if (event->device->sticky) return event->device->sticky;
    if (event->done < event->recorded) return advance_once(lock, event->last.lock()), CUDA_ERROR_NOT_READY;
    host_knows(event->clock);
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return call_on_event("cuEventElapsedTime", start, [&](Lock&, const EventPtr& a) {
    const EventPtr b = driver().events.find(end);
    if (!b || !a->has_timing || !b->has_timing || a->recorded == 0 || b->recorded == 0)
      return misuse(CUDA_ERROR_INVALID_HANDLE, "cuEventElapsedTime: an event that was not recorded, or keeps no time");
    if (a->done < a->recorded || b->done < b->recorded) return CUDA_ERROR_NOT_READY;
    *milliseconds = std::chrono::duration<float, std::milli>(b->time - a->time).count();
    return CUDA_SUCCESS;
  });
}
