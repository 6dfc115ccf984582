// Entry points of the fake driver: device and host memory, and the stream-ordered pool.
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

#include "tests/emulator/fake_cuda/bytes.h"
#include "tests/emulator/fake_cuda/entry.h"

using namespace sheaf::cuda;
using namespace sheaf::fake_cuda;

namespace {

CUresult allocate(Device& device, std::size_t bytes, bool is_pooled, int stream, BlockPtr* block) {
  if (bytes == 0) return misuse(CUDA_ERROR_INVALID_VALUE, "an allocation of 0 bytes");
  if (bytes > static_cast<std::size_t>(device.memory.limit_bytes())) return CUDA_ERROR_OUT_OF_MEMORY;
  *block = device.memory.allocate(static_cast<std::int64_t>(bytes), is_pooled, stream);
  driver().counters.allocations += *block != nullptr;
  return *block ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/// The block at `pointer` of a call that frees it.
CUresult block_to_free(const char* name, CUdeviceptr pointer, Device** owner, BlockPtr* block) {
  *owner = owner_of(pointer);
  *block = *owner ? (*owner)->memory.issued_at(pointer) : nullptr;
  if (*block) return CUDA_SUCCESS;
  return misuse(CUDA_ERROR_INVALID_VALUE,
                fmt::format("{}: {} is not the start of an allocation, or it was freed before", name, hex(pointer)));
}

void finish_all(Lock& lock) {
  for (const auto& d : driver().devices) finish(lock, *d);
}

}  // namespace

SHEAF_EXPORT CUresult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return call_on_device("cuMemGetInfo", [&](Lock&, Device& d) {
    *free = static_cast<std::size_t>(d.memory.free_bytes());
    *total = static_cast<std::size_t>(d.memory.limit_bytes());
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* pointer, std::size_t bytes) {
  return call_on_device("cuMemAlloc", [&](Lock&, Device& d) {
    BlockPtr block;
    if (const CUresult r = forbid_in_capture("cuMemAlloc")) return r;
    if (const CUresult r = allocate(d, bytes, false, -1, &block)) return r;
    const Memory::Open open;
    d.memory.begin_life(block);
    *pointer = block->base;
    return CUDA_SUCCESS;
  });
}

// Waits for all work of the device, as the real one does.
SHEAF_EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer) {
  return call_on_device("cuMemFree", [&](Lock& lock, Device&) {
    Device* owner = nullptr;
    BlockPtr block;
    if (pointer == 0) return CUDA_SUCCESS;
    if (const CUresult r = forbid_in_capture("cuMemFree")) return r;
    if (const CUresult r = block_to_free("cuMemFree", pointer, &owner, &block)) return r;
    owner->memory.retire(block, -1);
    finish(lock, *owner);
    owner->memory.end_life(block);
    return owner->sticky;
  });
}

SHEAF_EXPORT CUresult cuMemAllocAsync(CUdeviceptr* pointer, std::size_t bytes, CUstream stream) {
  return call_on_stream("cuMemAllocAsync", stream, [&](Lock&, const StreamPtr& s) {
    BlockPtr block;
    if (s->capture) return misuse(CUDA_ERROR_NOT_SUPPORTED, "cuMemAllocAsync: the fake driver captures no allocations");
    if (const CUresult r = allocate(*s->device, bytes, true, s->id, &block)) return r;
    *pointer = block->base;
    enqueue(*s, {.what = "cuMemAllocAsync", .run = [device = s->device, block](const Position& at) {
                   device->memory.begin_life(block);
                   touch(device->memory, {block, 0, block->bytes}, true, at);
                   return CUDA_SUCCESS;
                 }});
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
  return call_on_stream("cuMemFreeAsync", stream, [&](Lock&, const StreamPtr& s) {
    Device* owner = nullptr;
    BlockPtr block;
    if (s->capture) return misuse(CUDA_ERROR_NOT_SUPPORTED, "cuMemFreeAsync: the fake driver captures no allocations");
    if (const CUresult r = block_to_free("cuMemFreeAsync", pointer, &owner, &block)) return r;
    if (owner != s->device)
      return misuse(CUDA_ERROR_INVALID_VALUE, fmt::format("cuMemFreeAsync: {} on {}", block->name(), s->name()));
    owner->memory.retire(block, s->id);
    enqueue(*s, {.what = "cuMemFreeAsync", .run = [owner, block](const Position& at) {
                   if (const CUresult r = claim(*owner, {block, 0, block->bytes}, true, at)) return r;
                   owner->memory.end_life(block);
                   return CUDA_SUCCESS;
                 }});
    return CUDA_SUCCESS;
  });
}

namespace {

CUresult call_on_pool(const char* name, CUmemoryPool pool, const std::function<CUresult(Device&)>& body) {
  return call(name, [&](Lock&) {
    for (const auto& d : driver().devices)
      if (reinterpret_cast<CUmemoryPool>(&d->memory) == pool) return body(*d);
    return misuse(CUDA_ERROR_INVALID_VALUE, fmt::format("{}: no such pool", name));
  });
}

}  // namespace

SHEAF_EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  return call("cuDeviceGetDefaultMemPool", [&](Lock&) {
    if (device < 0 || device >= static_cast<int>(driver().devices.size())) return CUDA_ERROR_INVALID_DEVICE;
    *pool = reinterpret_cast<CUmemoryPool>(&driver().devices[static_cast<std::size_t>(device)]->memory);
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  return call_on_pool("cuMemPoolSetAttribute", pool, [&](Device& d) {
    if (attribute > CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
      return misuse(CUDA_ERROR_INVALID_VALUE, "cuMemPoolSetAttribute: the fake driver resets no attribute");
    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
      std::memcpy(&d.memory.release_threshold, value, sizeof(std::uint64_t));
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  return call_on_pool("cuMemPoolGetAttribute", pool, [&](Device& d) {
    std::uint64_t number = 0;
    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) number = d.memory.release_threshold;
    else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) number = d.memory.pool_reserved();
    else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) number = d.memory.pool_reserved_high();
    else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT) number = d.memory.pool_used();
    else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) number = d.memory.pool_used_high();
    else return misuse(CUDA_ERROR_INVALID_VALUE, "cuMemPoolGetAttribute: none that the fake driver knows");
    std::memcpy(value, &number, sizeof number);
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* access, std::size_t count) {
  return call_on_pool("cuMemPoolSetAccess", pool, [&](Device& d) {
    for (std::size_t i = 0; i < count; ++i) {
      if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return misuse(CUDA_ERROR_INVALID_VALUE, "cuMemPoolSetAccess: a location that is no device");
      std::erase(d.memory.accessible_from, access[i].location.id);
      if (access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        d.memory.accessible_from.push_back(access[i].location.id);
    }
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, std::size_t bytes_to_keep) {
  return call_on_pool("cuMemPoolTrimTo", pool, [&](Device& d) {
    d.memory.trim(bytes_to_keep);
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuMemAllocHost_v2(void** pointer, std::size_t bytes) {
  return call_on_device("cuMemAllocHost", [&](Lock&, Device&) {
    if (bytes == 0) return misuse(CUDA_ERROR_INVALID_VALUE, "cuMemAllocHost: 0 bytes");
    constexpr std::size_t page = 4096;
    *pointer = std::aligned_alloc(page, (bytes + page - 1) / page * page);
    if (!*pointer) return CUDA_ERROR_OUT_OF_MEMORY;
    std::memset(*pointer, 0xff, bytes);
    driver().host[reinterpret_cast<std::uintptr_t>(*pointer)] = {.bytes = static_cast<std::int64_t>(bytes)};
    return CUDA_SUCCESS;
  });
}

namespace {

// Both wait, so that no copy finds its host memory gone.
CUresult end_host_block(const char* name, void* pointer, bool is_registered, CUresult unknown) {
  return call_on_device(name, [&](Lock& lock, Device& d) {
    auto i = driver().host.find(reinterpret_cast<std::uintptr_t>(pointer));
    if (i == driver().host.end() || i->second.is_registered != is_registered)
      return misuse(unknown, fmt::format("{}: {} is no {} memory, or no longer", name, pointer,
                                         is_registered ? "registered" : "pinned"));
    finish_all(lock);
    driver().host.erase(reinterpret_cast<std::uintptr_t>(pointer));
    if (!is_registered) std::free(pointer);
    return d.sticky;
  });
}

}  // namespace

SHEAF_EXPORT CUresult cuMemFreeHost(void* pointer) {
  return end_host_block("cuMemFreeHost", pointer, false, CUDA_ERROR_INVALID_VALUE);
}

SHEAF_EXPORT CUresult cuMemHostRegister_v2(void* pointer, std::size_t bytes, unsigned) {
  return call_on_device("cuMemHostRegister", [&](Lock&, Device&) {
    const auto at = reinterpret_cast<std::uintptr_t>(pointer);
    if (!pointer || bytes == 0) return misuse(CUDA_ERROR_INVALID_VALUE, "cuMemHostRegister: no memory");
    const auto after = driver().host.lower_bound(at + bytes);
    if (after != driver().host.begin()) {
      const auto& [begin, block] = *std::prev(after);
      if (begin + static_cast<std::uintptr_t>(block.bytes) > at)
        return misuse(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                      fmt::format("cuMemHostRegister: {} bytes at {} are pinned already", bytes, pointer));
    }
    driver().host[at] = {.bytes = static_cast<std::int64_t>(bytes), .is_registered = true};
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuMemHostUnregister(void* pointer) {
  return end_host_block("cuMemHostUnregister", pointer, true, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

SHEAF_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* device_pointer, void* pointer, unsigned) {
  return call_on_device("cuMemHostGetDevicePointer", [&](Lock&, Device&) {
    *device_pointer = reinterpret_cast<CUdeviceptr>(pointer);
    if (is_pinned(pointer, 1)) return CUDA_SUCCESS;
    return misuse(CUDA_ERROR_INVALID_VALUE, fmt::format("cuMemHostGetDevicePointer: {} is not pinned", pointer));
  });
}
