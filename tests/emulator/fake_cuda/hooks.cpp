// A gate is an event that is recorded once, by whom it may be before anyone knows which stream that will be.
#include "tests/emulator/fake_cuda/hooks.h"

#include "tests/emulator/fake_cuda/bytes.h"
#include "tests/emulator/fake_cuda/entry.h"

namespace sheaf::fake_cuda {

using namespace cuda;

namespace {

constexpr const char* kName = "a collective";

CUresult call_on_free_stream(CUstream stream, const std::function<CUresult(Stream&)>& body) {
  return call_on_stream(kName, stream, [&](Lock&, const StreamPtr& s) {
    if (s->capture) return misuse(CUDA_ERROR_NOT_SUPPORTED, "the fake driver captures no collectives");
    return body(*s);
  });
}

/// The device memory that a collective on this stream names.
CUresult range_of(const Stream& s, const std::string& what, const void* pointer, std::size_t bytes, Range* range) {
  const auto found = s.device->memory.issued(reinterpret_cast<CUdeviceptr>(pointer), static_cast<std::int64_t>(bytes));
  if (!found)
    return misuse(CUDA_ERROR_INVALID_VALUE,
                  what + ": its buffer is not within one allocation of device " + std::to_string(s.device->ordinal));
  *range = *found;
  return CUDA_SUCCESS;
}

}  // namespace

int ordinal_of(CUstream stream) {
  const Lock lock(mutex());
  const StreamPtr s = driver().streams.find(stream);
  return s ? s->device->ordinal : -1;
}

int current_ordinal() {
  const Lock lock(mutex());
  return current_device() ? current_device()->ordinal : -1;
}

void use_device(int ordinal) {
  const Lock lock(mutex());
  const bool exists = ordinal >= 0 && ordinal < static_cast<int>(driver().devices.size());
  set_current_device(exists ? driver().devices[static_cast<std::size_t>(ordinal)].get() : nullptr);
}

Gate make_gate() { return std::make_shared<Event>(Event{.recorded = 1, .is_gate = true}); }

void open_now(const Gate& gate) {
  const Lock lock(mutex());
  gate->done = gate->recorded;
  changed().notify_all();
}

CUresult enqueue_read(CUstream stream, const std::string& what, const void* from, Bytes into) {
  return call_on_free_stream(stream, [&](Stream& s) {
    Range range;
    if (into->empty()) return CUDA_SUCCESS;
    if (const CUresult r = range_of(s, what, from, into->size(), &range)) return r;
    enqueue(s, {.what = what, .run = [device = s.device, range, into = std::move(into)](const Position& at) {
                  return read_bytes(*device, into->data(), range, at);
                }});
    return CUDA_SUCCESS;
  });
}

CUresult enqueue_write(CUstream stream, const std::string& what, void* to, std::size_t bytes,
                       std::function<Bytes()> make) {
  return call_on_free_stream(stream, [&](Stream& s) {
    Range range;
    if (bytes == 0) return CUDA_SUCCESS;
    if (const CUresult r = range_of(s, what, to, bytes, &range)) return r;
    enqueue(s, {.what = what, .run = [device = s.device, range, make = std::move(make)](const Position& at) {
                  const Bytes from = make();
                  return from ? write_bytes(*device, range, from->data(), at) : CUDA_SUCCESS;
                }});
    return CUDA_SUCCESS;
  });
}

CUresult enqueue_open(CUstream stream, const std::string& what, const Gate& gate) {
  return call_on_free_stream(stream, [&](Stream& s) {
    gate->device = s.device;
    gate->last = driver().streams.find(&s);
    enqueue(s, {.kind = Work::Kind::record, .what = what, .event = gate, .version = 1});
    return CUDA_SUCCESS;
  });
}

CUresult enqueue_wait(CUstream stream, const std::string& what, const Gate& gate) {
  return call_on_free_stream(stream, [&](Stream& s) {
    enqueue(s, {.kind = Work::Kind::wait, .what = what, .event = gate, .version = 1});
    return CUDA_SUCCESS;
  });
}

std::chrono::milliseconds patience() {
  const Lock lock(mutex());
  return std::chrono::milliseconds(driver().options.patience_ms);
}

void report_misuse(const std::string& text) {
  const Lock lock(mutex());
  report(text);
}

}  // namespace sheaf::fake_cuda
