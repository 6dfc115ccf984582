// What work may touch is asked of the memory that owns it; a wrong touch is a fault of the device that does the work.
#include "tests/emulator/fake_cuda/bytes.h"

#include <fmt/format.h>

#include <cstring>

#include "tests/emulator/engine.h"

namespace sheaf::fake_cuda {

using namespace cuda;

std::string hex(CUdeviceptr pointer) { return fmt::format("{:#x}", pointer); }

bool is_pinned(const void* pointer, std::size_t bytes) {
  const auto at = reinterpret_cast<std::uintptr_t>(pointer);
  auto i = driver().host.upper_bound(at);
  if (i == driver().host.begin()) return false;
  --i;
  return at + bytes <= i->first + static_cast<std::uintptr_t>(i->second.bytes);
}

namespace {

std::byte* data(const Range& r) {
  return reinterpret_cast<std::byte*>(r.block->base + static_cast<CUdeviceptr>(r.offset));
}
Memory& memory_of(const Range& r) { return driver().devices[static_cast<std::size_t>(r.block->device)]->memory; }
std::uint8_t* marks(const Range& r) { return memory_of(r).marks(r.block->base + static_cast<CUdeviceptr>(r.offset)); }
std::size_t size(const Range& r) { return static_cast<std::size_t>(r.bytes); }

}  // namespace

CUresult claim(Device& device, const Range& range, bool is_write, const Position& at) {
  const std::string wrong = touch(memory_of(range), range, is_write, at);
  return wrong.empty() ? CUDA_SUCCESS : fault(device, CUDA_ERROR_ILLEGAL_ADDRESS, wrong);
}

CUresult write_bytes(Device& device, const Range& to, const void* from, const Position& at) {
  if (const CUresult r = claim(device, to, true, at)) return r;
  std::memcpy(data(to), from, size(to));
  std::memset(marks(to), emulator::Mark::kInitialised, size(to));
  return CUDA_SUCCESS;
}

CUresult read_bytes(Device& device, void* to, const Range& from, const Position& at) {
  if (const CUresult r = claim(device, from, false, at)) return r;
  std::memcpy(to, data(from), size(from));
  const auto unwritten = first_unwritten(memory_of(from), from);
  if (!unwritten) return CUDA_SUCCESS;
  return fault(device, CUDA_ERROR_LAUNCH_FAILED,
               fmt::format("{} reads {}, of which byte {} was never written", at.what, from.name(), *unwritten));
}

CUresult copy_bytes(Device& device, const Range& to, const Range& from, const Position& at) {
  if (const CUresult r = claim(device, from, false, at)) return r;
  if (const CUresult r = claim(device, to, true, at)) return r;
  std::memmove(data(to), data(from), size(to));
  std::memmove(marks(to), marks(from), size(to));
  return CUDA_SUCCESS;
}

}  // namespace sheaf::fake_cuda
