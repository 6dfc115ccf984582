// Entry points of the fake driver: start, errors, devices, contexts, and the table of all.
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "tests/emulator/fake_cuda/entry.h"

using namespace sheaf::cuda;
using namespace sheaf::fake_cuda;

SHEAF_EXPORT CUresult cuInit(unsigned) {
  const Lock lock(mutex());
  Driver& d = driver();
  if (d.options.init_result != 0) return static_cast<CUresult>(d.options.init_result);
  if (d.options.devices == 0) return CUDA_ERROR_NO_DEVICE;
  for (int i = static_cast<int>(d.devices.size()); i < d.options.devices; ++i)
    d.devices.push_back(std::unique_ptr<Device>(new Device{.ordinal = i, .memory = {i, d.options.memory_bytes}}));
  d.is_initialised = true;
  return CUDA_SUCCESS;
}

SHEAF_EXPORT CUresult cuDriverGetVersion(int* version) {
  const Lock lock(mutex());
  *version = driver().options.version;
  return CUDA_SUCCESS;
}

namespace {

struct ErrorText {
  CUresult error;
  const char *name, *text;
};
#define SHEAF_ERROR(name, text) {name, #name, text}
constexpr ErrorText kErrors[] = {
    SHEAF_ERROR(CUDA_SUCCESS, "no error"),
    SHEAF_ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    SHEAF_ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    SHEAF_ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    SHEAF_ERROR(CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library"),
    SHEAF_ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    SHEAF_ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    SHEAF_ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    SHEAF_ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    SHEAF_ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    SHEAF_ERROR(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices"),
    SHEAF_ERROR(CUDA_ERROR_INVALID_SOURCE, "device kernel image is invalid"),
    SHEAF_ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    SHEAF_ERROR(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
    SHEAF_ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    SHEAF_ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    SHEAF_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    SHEAF_ERROR(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
    SHEAF_ERROR(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
    SHEAF_ERROR(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled"),
    SHEAF_ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                "part or all of the requested memory range is already mapped"),
    SHEAF_ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region"),
    SHEAF_ERROR(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"),
    SHEAF_ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    SHEAF_ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    SHEAF_ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    SHEAF_ERROR(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "system has unsupported display driver / cuda driver combination"),
    SHEAF_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
    SHEAF_ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"),
    SHEAF_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began"),
    SHEAF_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
    SHEAF_ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream"),
    SHEAF_ERROR(CUDA_ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream"),
    SHEAF_ERROR(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
                "the graph update was not performed because it included changes which violated "
                "constraints specific to instantiated graph update"),
    SHEAF_ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
};
#undef SHEAF_ERROR

const ErrorText* text_of(CUresult error) {
  for (const ErrorText& e : kErrors)
    if (e.error == error) return &e;
  return nullptr;
}

int attribute_of(const Device& device, CUdevice_attribute attribute) {
  const Limits l = limits();
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: return 0x7fffffff;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: return l.shared_bytes;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: return l.shared_bytes_opt_in;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: return l.shared_bytes_per_multiprocessor;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK: return 1024;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: return 65536;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: return 1'980'000;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: return 2'619'000;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: return 5120;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: return 50 << 20;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return l.multiprocessors;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: return l.threads_per_multiprocessor;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: return l.blocks_per_multiprocessor;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: return 3;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: return device.ordinal + 1;
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: return 0;
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: return 1;
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH: return driver().options.major >= 9;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return driver().options.major;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return driver().options.minor;
  }
  return -1;
}

Device* device_at(CUdevice device) {
  const bool exists = device >= 0 && device < static_cast<int>(driver().devices.size());
  return exists ? driver().devices[static_cast<std::size_t>(device)].get() : nullptr;
}

CUresult call_for(const char* name, CUdevice ordinal, const std::function<CUresult(Lock&, Device&)>& body) {
  return call(name, [&](Lock& lock) {
    Device* device = device_at(ordinal);
    return device ? body(lock, *device)
                  : misuse(CUDA_ERROR_INVALID_DEVICE, fmt::format("{}: no device {}", name, ordinal));
  });
}

}  // namespace

SHEAF_EXPORT CUresult cuGetErrorName(CUresult error, const char** name) {
  const ErrorText* e = text_of(error);
  *name = e ? e->name : nullptr;
  return e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SHEAF_EXPORT CUresult cuGetErrorString(CUresult error, const char** text) {
  const ErrorText* e = text_of(error);
  *text = e ? e->text : nullptr;
  return e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SHEAF_EXPORT CUresult cuDeviceGetCount(int* count) {
  return call("cuDeviceGetCount", [&](Lock&) {
    *count = static_cast<int>(driver().devices.size());
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return call_for("cuDeviceGet", ordinal, [&](Lock&, Device& d) {
    *device = d.ordinal;
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  return call_for("cuDeviceGetName", device, [&](Lock&, Device&) {
    const auto& o = driver().options;
    fmt::format_to_n(name, length - 1, "Sheaf's fake sm_{}{}", o.major, o.minor).out[0] = '\0';
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return call_for("cuDeviceGetAttribute", device, [&](Lock&, Device& d) {
    *value = attribute_of(d, attribute);
    return *value >= 0 ? CUDA_SUCCESS
                       : misuse(CUDA_ERROR_INVALID_VALUE,
                                fmt::format("cuDeviceGetAttribute: {} is none that the fake driver knows",
                                            static_cast<unsigned>(attribute)));
  });
}

SHEAF_EXPORT CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice device) {
  return call_for("cuDeviceTotalMem", device, [&](Lock&, Device& d) {
    *bytes = static_cast<std::size_t>(d.memory.limit_bytes());
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  return call_for("cuDeviceGetUuid", device, [&](Lock&, Device& d) {
    std::memset(uuid->bytes, 0, sizeof uuid->bytes);
    uuid->bytes[0] = static_cast<char>(d.ordinal + 1);
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return call_for("cuDevicePrimaryCtxRetain", device, [&](Lock&, Device& d) {
    ++d.retained;
    *context = reinterpret_cast<CUcontext>(&d);
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return call_for("cuDevicePrimaryCtxRelease", device, [&](Lock&, Device& d) {
    if (d.retained == 0)
      return misuse(CUDA_ERROR_INVALID_CONTEXT,
                    fmt::format("cuDevicePrimaryCtxRelease: device {} is not retained", device));
    --d.retained;
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
  return call("cuCtxSetCurrent", [&](Lock&) {
    Device* device = device_of(context);
    if (context && (!device || device->retained == 0))
      return misuse(CUDA_ERROR_INVALID_CONTEXT, "cuCtxSetCurrent: no such context, or one not retained");
    set_current_device(device);
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuCtxGetCurrent(CUcontext* context) {
  return call("cuCtxGetCurrent", [&](Lock&) {
    *context = reinterpret_cast<CUcontext>(current_device());
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuCtxSynchronize() {
  return call_on_device("cuCtxSynchronize", [](Lock& lock, Device& d) {
    if (const CUresult r = forbid_in_capture("cuCtxSynchronize")) return r;
    finish(lock, d);
    d.memory.trim(d.memory.release_threshold);
    return d.sticky;
  });
}

SHEAF_EXPORT CUresult cuDeviceCanAccessPeer(int* can_access, CUdevice device, CUdevice peer) {
  return call_for("cuDeviceCanAccessPeer", device, [&](Lock&, Device& d) {
    const Device* other = device_at(peer);
    *can_access = other && other != &d;
    return other ? CUDA_SUCCESS
                 : misuse(CUDA_ERROR_INVALID_DEVICE, fmt::format("cuDeviceCanAccessPeer: no device {}", peer));
  });
}

SHEAF_EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned) {
  return call_on_device("cuCtxEnablePeerAccess", [&](Lock&, Device& d) {
    const Device* other = device_of(peer);
    if (!other || other == &d)
      return misuse(CUDA_ERROR_INVALID_DEVICE, "cuCtxEnablePeerAccess: not a context of another device");
    return d.peers.insert(other->ordinal).second ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  });
}

// Every function under both of its names. The declarations come from the list, so that one of another type than the
// product calls does not compile.
#define SHEAF_DECLARE(name, suffix, version, parameters) SHEAF_EXPORT CUresult name##suffix parameters;
SHEAF_CUDA_ENTRY_POINTS(SHEAF_DECLARE)
SHEAF_CUDA_OPTIONAL_ENTRY_POINTS(SHEAF_DECLARE)
#undef SHEAF_DECLARE

namespace {

struct EntryPoint {
  const char* name;
  int version;
  void* function;
};
#define SHEAF_ROW(name, suffix, version, parameters) {#name, version, reinterpret_cast<void*>(&name##suffix)},
const EntryPoint kEntryPoints[] = {SHEAF_CUDA_ENTRY_POINTS(SHEAF_ROW) SHEAF_CUDA_OPTIONAL_ENTRY_POINTS(SHEAF_ROW)};
#undef SHEAF_ROW

}  // namespace

SHEAF_EXPORT CUresult cuGetProcAddress_v2(const char* name, void** function, int version, std::uint64_t,
                                          CUdriverProcAddressQueryResult* found) {
  const Lock lock(mutex());
  *function = nullptr;
  *found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  for (const EntryPoint& e : kEntryPoints) {
    if (std::strcmp(e.name, name) != 0 || driver().options.lacks == name) continue;
    *found = version < e.version ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SUCCESS;
    if (version >= e.version) *function = e.function;
  }
  return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
