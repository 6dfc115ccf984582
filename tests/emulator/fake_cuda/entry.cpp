// The order of the checks is the real driver's: initialised, context, handle, fault.
#include "tests/emulator/fake_cuda/entry.h"

#include <fmt/format.h>

namespace sheaf::fake_cuda {

using namespace cuda;

CUresult call(const char* name, const std::function<CUresult(Lock&)>& body) {
  if (is_in_host_function()) {
    const Lock lock(mutex());
    return misuse(CUDA_ERROR_NOT_PERMITTED, fmt::format("{}: called from a host function", name));
  }
  Lock lock(mutex());
  if (!driver().is_initialised)
    return misuse(CUDA_ERROR_NOT_INITIALIZED, fmt::format("{}: called before cuInit", name));
  return body(lock);
}

CUresult call_on_device(const char* name, const std::function<CUresult(Lock&, Device&)>& body) {
  return call(name, [&](Lock& lock) {
    Device* device = current_device();
    if (!device) return misuse(CUDA_ERROR_INVALID_CONTEXT, fmt::format("{}: no context is current", name));
    return device->sticky ? device->sticky : body(lock, *device);
  });
}

CUresult call_on_stream(const char* name, CUstream handle,
                        const std::function<CUresult(Lock&, const StreamPtr&)>& body) {
  return call(name, [&](Lock& lock) {
    if (reinterpret_cast<std::uintptr_t>(handle) <= 2)
      return misuse(CUDA_ERROR_INVALID_HANDLE, fmt::format("{}: the default stream", name));
    const StreamPtr stream = driver().streams.find(handle);
    if (!stream) return misuse(CUDA_ERROR_INVALID_HANDLE, fmt::format("{}: no such stream, or one destroyed", name));
    const CUresult result = stream->device->sticky ? stream->device->sticky : body(lock, stream);
    return result;
  });
}

CUresult wait_on_stream(const char* name, CUstream handle,
                        const std::function<CUresult(Lock&, const StreamPtr&)>& body) {
  return call_on_stream(name, handle, [&](Lock& lock, const StreamPtr& stream) {
    if (!stream->capture) return body(lock, stream);
    stream->capture->is_valid = false;
    return misuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, fmt::format("{}: {} is being captured", name, stream->name()));
  });
}

CUresult forbid_in_capture(const char* name) {
  if (driver().captures == 0) return CUDA_SUCCESS;
  return misuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                fmt::format("{}: called while a stream is being captured", name));
}

}  // namespace sheaf::fake_cuda
