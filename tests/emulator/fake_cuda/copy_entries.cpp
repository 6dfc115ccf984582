// Entry points of the fake driver: copies and fills. What a call names is checked when it is called, and again when its
// work is done.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tests/emulator/fake_cuda/bytes.h"
#include "tests/emulator/fake_cuda/entry.h"

using namespace sheaf::cuda;
using namespace sheaf::fake_cuda;

namespace {

/// The device memory that a copy or fill on `stream` names.
CUresult find_range(const char* name, const Device& device, CUdeviceptr pointer, std::size_t bytes, Range* range) {
  const auto found = device.memory.issued(pointer, static_cast<std::int64_t>(bytes));
  if (found) return *range = *found, CUDA_SUCCESS;
  return misuse(CUDA_ERROR_INVALID_VALUE, fmt::format("{}: {} bytes at {} are not within one allocation of device {}",
                                                      name, bytes, hex(pointer), device.ordinal));
}

CUresult check_host(const char* name, const void* pointer) {
  if (pointer && !owner_of(reinterpret_cast<CUdeviceptr>(pointer))) return CUDA_SUCCESS;
  return misuse(CUDA_ERROR_INVALID_VALUE,
                fmt::format("{}: {} is no host memory", name, hex(reinterpret_cast<CUdeviceptr>(pointer))));
}

CUresult fill(const char* name, CUdeviceptr to, const void* value, std::size_t value_bytes, std::size_t count,
              CUstream handle) {
  return call_on_stream(name, handle, [&](Lock&, const StreamPtr& s) {
    Range range;
    if (const CUresult r = find_range(name, *s->device, to, count * value_bytes, &range)) return r;
    if (to % value_bytes != 0)
      return misuse(CUDA_ERROR_INVALID_VALUE,
                    fmt::format("{}: {} is not a multiple of {}", name, hex(to), value_bytes));
    std::vector<std::byte> bytes(count * value_bytes);
    for (std::size_t i = 0; i < count; ++i) std::memcpy(bytes.data() + i * value_bytes, value, value_bytes);
    const auto run = [device = s->device, range, bytes = std::move(bytes)](const Position& at) {
      return write_bytes(*device, range, bytes.data(), at);
    };
    return submit(*s, {.what = name, .run = run}, CU_GRAPH_NODE_TYPE_MEMSET);
  });
}

}  // namespace

// From pinned memory the bytes are read when the copy is done, as late as that is; from other memory at once, as the
// real driver does for small copies.
SHEAF_EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  const char* name = "cuMemcpyHtoDAsync";
  return call_on_stream(name, stream, [&](Lock&, const StreamPtr& s) {
    Range range;
    if (bytes == 0) return CUDA_SUCCESS;
    if (const CUresult r = check_host(name, from)) return r;
    if (const CUresult r = find_range(name, *s->device, to, bytes, &range)) return r;
    std::vector<std::byte> kept;
    const auto* begin = static_cast<const std::byte*>(from);
    if (!s->capture && !is_pinned(from, bytes)) kept.assign(begin, begin + bytes);
    const auto run = [device = s->device, range, from, kept = std::move(kept)](const Position& at) {
      driver().counters.bytes_to_device += range.bytes;
      return write_bytes(*device, range, kept.empty() ? from : kept.data(), at);
    };
    return submit(*s, {.what = name, .run = run}, CU_GRAPH_NODE_TYPE_MEMCPY);
  });
}

// To memory that is not pinned the copy is done when the call returns.
SHEAF_EXPORT CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  const char* name = "cuMemcpyDtoHAsync";
  return call_on_stream(name, stream, [&](Lock& lock, const StreamPtr& s) {
    Range range;
    if (bytes == 0) return CUDA_SUCCESS;
    if (const CUresult r = check_host(name, to)) return r;
    if (const CUresult r = find_range(name, *s->device, from, bytes, &range)) return r;
    const auto run = [device = s->device, range, to](const Position& at) {
      driver().counters.bytes_to_host += range.bytes;
      return read_bytes(*device, to, range, at);
    };
    const CUresult result = submit(*s, {.what = name, .run = run}, CU_GRAPH_NODE_TYPE_MEMCPY);
    if (result || s->capture || is_pinned(to, bytes)) return result;
    finish(lock, s);
    host_knows(s->clock);
    return s->device->sticky;
  });
}

namespace {

CUresult copy_between(const char* name, CUdeviceptr to, const Device* to_device, CUdeviceptr from,
                      const Device* from_device, std::size_t bytes, Stream& s) {
  Range read, written;
  if (!to_device || !from_device) return misuse(CUDA_ERROR_INVALID_CONTEXT, fmt::format("{}: no such context", name));
  if (bytes == 0) return CUDA_SUCCESS;
  if (const CUresult r = find_range(name, *from_device, from, bytes, &read)) return r;
  if (const CUresult r = find_range(name, *to_device, to, bytes, &written)) return r;
  const auto run = [device = s.device, read, written](const Position& at) {
    driver().counters.bytes_on_device += read.bytes;
    return copy_bytes(*device, written, read, at);
  };
  return submit(s, {.what = name, .run = run}, CU_GRAPH_NODE_TYPE_MEMCPY);
}

}  // namespace

SHEAF_EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return call_on_stream("cuMemcpyDtoDAsync", stream, [&](Lock&, const StreamPtr& s) {
    return copy_between("cuMemcpyDtoDAsync", to, s->device, from, s->device, bytes, *s);
  });
}

SHEAF_EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                                        std::size_t bytes, CUstream stream) {
  return call_on_stream("cuMemcpyPeerAsync", stream, [&](Lock&, const StreamPtr& s) {
    return copy_between("cuMemcpyPeerAsync", to, device_of(to_context), from, device_of(from_context), bytes, *s);
  });
}

SHEAF_EXPORT CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* copy, CUstream stream) {
  const char* name = "cuMemcpy3DPeerAsync";
  return call_on_stream(name, stream, [&](Lock&, const StreamPtr& s) {
    const CUDA_MEMCPY3D_PEER& c = *copy;
    constexpr std::size_t kMostPitch = (std::size_t{1} << 31) - 1;
    if (c.srcMemoryType != CU_MEMORYTYPE_DEVICE || c.dstMemoryType != CU_MEMORYTYPE_DEVICE)
      return misuse(CUDA_ERROR_NOT_SUPPORTED, fmt::format("{}: the fake driver copies device memory only", name));
    const bool overlaps =
        c.srcPitch < c.WidthInBytes || c.dstPitch < c.WidthInBytes || c.srcHeight < c.Height || c.dstHeight < c.Height;
    if (overlaps || std::max(c.srcPitch, c.dstPitch) > kMostPitch)
      return misuse(CUDA_ERROR_INVALID_VALUE, fmt::format("{}: a pitch or height that does not fit", name));
    for (std::size_t z = 0; z < c.Depth; ++z)
      for (std::size_t y = 0; y < c.Height; ++y) {
        const CUdeviceptr to = c.dstDevice + ((c.dstZ + z) * c.dstHeight + c.dstY + y) * c.dstPitch + c.dstXInBytes;
        const CUdeviceptr from = c.srcDevice + ((c.srcZ + z) * c.srcHeight + c.srcY + y) * c.srcPitch + c.srcXInBytes;
        const CUresult r =
            copy_between(name, to, device_of(c.dstContext), from, device_of(c.srcContext), c.WidthInBytes, *s);
        if (r) return r;
      }
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t count, CUstream stream) {
  return fill("cuMemsetD8Async", to, &value, sizeof value, count, stream);
}

SHEAF_EXPORT CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, std::size_t count, CUstream stream) {
  return fill("cuMemsetD32Async", to, &value, sizeof value, count, stream);
}
