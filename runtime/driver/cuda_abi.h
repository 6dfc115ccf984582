// NVIDIA's driver as Sheaf calls it: the types, constants and entry points it uses, declared here so that building
// needs no toolkit. Names, values and layouts are those of cuda.h; tests/cuda/abi_test.cpp compares them where that is
// installed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sheaf::cuda {

using CUdevice = int;
using CUdeviceptr = std::uint64_t;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUkernel = struct CUkern_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphNode = struct CUgraphNode_st*;
using CUgraphExec = struct CUgraphExec_st*;
using CUarray = struct CUarray_st*;
using CUmemoryPool = struct CUmemPoolHandle_st*;
using CUhostFn = void (*)(void* user_data);

/// Those that Sheaf tells apart; the driver names and explains all (cuGetErrorName, cuGetErrorString).
enum CUresult : unsigned {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_STUB_LIBRARY = 34,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
  CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = 217,
  CUDA_ERROR_INVALID_SOURCE = 300,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_ILLEGAL_STATE = 401,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
  CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
  CUDA_ERROR_PEER_ACCESS_NOT_ENABLED = 705,
  CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
  CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
  CUDA_ERROR_MISALIGNED_ADDRESS = 716,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_NOT_PERMITTED = 800,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
  CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
  CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
  CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904,
  CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
  CUDA_ERROR_CAPTURED_EVENT = 907,
  CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE = 910,
  CUDA_ERROR_UNKNOWN = 999,
};

enum CUdevice_attribute : unsigned {
  CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
  CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X = 2,
  CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y = 3,
  CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z = 4,
  CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X = 5,
  CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y = 6,
  CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z = 7,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = 8,
  CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10,
  CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK = 12,
  CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13,
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_INTEGRATED = 18,
  CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY = 19,
  CU_DEVICE_ATTRIBUTE_PCI_BUS_ID = 33,
  CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID = 34,
  CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36,
  CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = 37,
  CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
  CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
  CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT = 40,
  CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING = 41,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
  CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR = 82,
  CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH = 95,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
  CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR = 106,
  CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK = 111,
  CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115,
  CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH = 120,
};

enum CUfunction_attribute : unsigned {
  CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
  CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
  CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES = 2,
  CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
  CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
  CU_FUNC_ATTRIBUTE_PTX_VERSION = 5,
  CU_FUNC_ATTRIBUTE_BINARY_VERSION = 6,
  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
  CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT = 9,
  CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14,
};

enum CUstream_flags : unsigned { CU_STREAM_DEFAULT = 0, CU_STREAM_NON_BLOCKING = 1 };
enum CUevent_flags : unsigned { CU_EVENT_DEFAULT = 0, CU_EVENT_BLOCKING_SYNC = 1, CU_EVENT_DISABLE_TIMING = 2 };

enum CUjit_option : unsigned {
  CU_JIT_INFO_LOG_BUFFER = 3,
  CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES = 4,
  CU_JIT_ERROR_LOG_BUFFER = 5,
  CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,
};

enum CUmemPool_attribute : unsigned {
  CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES = 1,
  CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC = 2,
  CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3,
  CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4,  // std::uint64_t
  CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 5,  // std::uint64_t, as those that follow
  CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH = 6,
  CU_MEMPOOL_ATTR_USED_MEM_CURRENT = 7,
  CU_MEMPOOL_ATTR_USED_MEM_HIGH = 8,
};

enum CUmemLocationType : unsigned { CU_MEM_LOCATION_TYPE_INVALID = 0, CU_MEM_LOCATION_TYPE_DEVICE = 1 };
enum CUmemAccess_flags : unsigned {
  CU_MEM_ACCESS_FLAGS_PROT_NONE = 0,
  CU_MEM_ACCESS_FLAGS_PROT_READ = 1,
  CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3,
};
struct CUmemLocation {
  CUmemLocationType type;
  int id;  // of a device
};
struct CUmemAccessDesc {
  CUmemLocation location;
  CUmemAccess_flags flags;
};

/// Flags of cuMemHostRegister: every context sees the memory; kernels may address it.
inline constexpr unsigned kHostRegisterPortable = 1, kHostRegisterDeviceMap = 2;

struct CUuuid {
  char bytes[16];
};

enum CUlaunchAttributeID : unsigned {
  CU_LAUNCH_ATTRIBUTE_IGNORE = 0,
  CU_LAUNCH_ATTRIBUTE_COOPERATIVE = 2,
  CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4,
  CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6,
  CU_LAUNCH_ATTRIBUTE_PRIORITY = 8,
};
union CUlaunchAttributeValue {
  char pad[64];
  int cooperative;
  struct {
    unsigned x, y, z;
  } clusterDim;
  int programmaticStreamSerializationAllowed;
  int priority;
};
struct CUlaunchAttribute {
  CUlaunchAttributeID id;
  char pad[8 - sizeof(CUlaunchAttributeID)];
  CUlaunchAttributeValue value;
};
struct CUlaunchConfig {
  unsigned gridDimX, gridDimY, gridDimZ;
  unsigned blockDimX, blockDimY, blockDimZ;
  unsigned sharedMemBytes;
  CUstream hStream;
  CUlaunchAttribute* attrs;
  unsigned numAttrs;
};

enum CUstreamCaptureMode : unsigned {
  CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
  CU_STREAM_CAPTURE_MODE_RELAXED = 2,
};
enum CUstreamCaptureStatus : unsigned {
  CU_STREAM_CAPTURE_STATUS_NONE = 0,
  CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
  CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2,
};
enum CUgraphNodeType : unsigned {
  CU_GRAPH_NODE_TYPE_KERNEL = 0,
  CU_GRAPH_NODE_TYPE_MEMCPY = 1,
  CU_GRAPH_NODE_TYPE_MEMSET = 2,
  CU_GRAPH_NODE_TYPE_HOST = 3,
  CU_GRAPH_NODE_TYPE_EMPTY = 5,
  CU_GRAPH_NODE_TYPE_MEM_ALLOC = 10,
  CU_GRAPH_NODE_TYPE_MEM_FREE = 11,
};
struct CUDA_KERNEL_NODE_PARAMS {
  CUfunction func;
  unsigned gridDimX, gridDimY, gridDimZ;
  unsigned blockDimX, blockDimY, blockDimZ;
  unsigned sharedMemBytes;
  void** kernelParams;
  void** extra;
  CUkernel kern;
  CUcontext ctx;
};
enum CUmemorytype : unsigned { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE = 2 };
struct CUDA_MEMCPY3D_PEER {
  std::size_t srcXInBytes, srcY, srcZ, srcLOD;
  CUmemorytype srcMemoryType;
  const void* srcHost;
  CUdeviceptr srcDevice;
  CUarray srcArray;
  CUcontext srcContext;
  std::size_t srcPitch, srcHeight;
  std::size_t dstXInBytes, dstY, dstZ, dstLOD;
  CUmemorytype dstMemoryType;
  void* dstHost;
  CUdeviceptr dstDevice;
  CUarray dstArray;
  CUcontext dstContext;
  std::size_t dstPitch, dstHeight;
  std::size_t WidthInBytes, Height, Depth;
};

enum CUgraphExecUpdateResult : unsigned {
  CU_GRAPH_EXEC_UPDATE_SUCCESS = 0,
  CU_GRAPH_EXEC_UPDATE_ERROR = 1,
  CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED = 2,
  CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED = 3,
  CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED = 4,
  CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED = 5,
};
struct CUgraphExecUpdateResultInfo {
  CUgraphExecUpdateResult result;
  CUgraphNode errorNode;
  CUgraphNode errorFromNode;
};

struct alignas(128) CUtensorMap {  // 64 before CUDA 13
  std::uint64_t opaque[16];
};
enum CUtensorMapDataType : unsigned {
  CU_TENSOR_MAP_DATA_TYPE_UINT8 = 0,
  CU_TENSOR_MAP_DATA_TYPE_UINT16 = 1,
  CU_TENSOR_MAP_DATA_TYPE_UINT32 = 2,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT16 = 6,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT32 = 7,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT64 = 8,
  CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9,
};
enum CUtensorMapInterleave : unsigned { CU_TENSOR_MAP_INTERLEAVE_NONE = 0 };
enum CUtensorMapSwizzle : unsigned {
  CU_TENSOR_MAP_SWIZZLE_NONE = 0,
  CU_TENSOR_MAP_SWIZZLE_32B = 1,
  CU_TENSOR_MAP_SWIZZLE_64B = 2,
  CU_TENSOR_MAP_SWIZZLE_128B = 3,
};
enum CUtensorMapL2promotion : unsigned {
  CU_TENSOR_MAP_L2_PROMOTION_NONE = 0,
  CU_TENSOR_MAP_L2_PROMOTION_L2_64B = 1,
  CU_TENSOR_MAP_L2_PROMOTION_L2_128B = 2,
  CU_TENSOR_MAP_L2_PROMOTION_L2_256B = 3,
};
enum CUtensorMapFloatOOBfill : unsigned { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0 };

enum CUdriverProcAddressQueryResult : unsigned {
  CU_GET_PROC_ADDRESS_SUCCESS = 0,
  CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1,
  CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT = 2,
};
/// cuGetProcAddress_v2, the one entry point that is looked up by its exported name only.
using GetProcAddress = CUresult (*)(const char* name, void** function, int version, std::uint64_t flags,
                                    CUdriverProcAddressQueryResult* found);

// X(name, suffix, version, parameters): each returns CUresult. `version` is the CUDA version in which this form of the
// function came (what cuGetProcAddress is asked for), and name ## suffix is the symbol that the library exports for it.
#define SHEAF_CUDA_ENTRY_POINTS(X)                                                                                   \
  X(cuInit, , 2000, (unsigned flags))                                                                                \
  X(cuDriverGetVersion, , 2020, (int* version))                                                                      \
  X(cuGetErrorName, , 6000, (CUresult error, const char** name))                                                     \
  X(cuGetErrorString, , 6000, (CUresult error, const char** text))                                                   \
                                                                                                                     \
  X(cuDeviceGetCount, , 2000, (int* count))                                                                          \
  X(cuDeviceGet, , 2000, (CUdevice * device, int ordinal))                                                           \
  X(cuDeviceGetName, , 2000, (char* name, int length, CUdevice device))                                              \
  X(cuDeviceGetAttribute, , 2000, (int* value, CUdevice_attribute attribute, CUdevice device))                       \
  X(cuDeviceTotalMem, _v2, 3020, (std::size_t * bytes, CUdevice device))                                             \
  X(cuDeviceGetUuid, _v2, 11040, (CUuuid * uuid, CUdevice device))                                                   \
  X(cuDevicePrimaryCtxRetain, , 7000, (CUcontext * context, CUdevice device))                                        \
  X(cuDevicePrimaryCtxRelease, _v2, 11000, (CUdevice device))                                                        \
  X(cuCtxSetCurrent, , 4000, (CUcontext context))                                                                    \
  X(cuCtxGetCurrent, , 4000, (CUcontext * context))                                                                  \
  X(cuCtxSynchronize, , 2000, ())                                                                                    \
  X(cuDeviceCanAccessPeer, , 4000, (int* can_access, CUdevice device, CUdevice peer))                                \
  X(cuCtxEnablePeerAccess, , 4000, (CUcontext peer, unsigned flags))                                                 \
                                                                                                                     \
  X(cuModuleLoadDataEx, , 2010,                                                                                      \
    (CUmodule * module, const void* image, unsigned options, CUjit_option* names, void** values))                    \
  X(cuModuleUnload, , 2000, (CUmodule module))                                                                       \
  X(cuModuleGetFunction, , 2000, (CUfunction * function, CUmodule module, const char* name))                         \
  X(cuFuncSetAttribute, , 9000, (CUfunction function, CUfunction_attribute attribute, int value))                    \
  X(cuFuncGetAttribute, , 2020, (int* value, CUfunction_attribute attribute, CUfunction function))                   \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, , 6050,                                                             \
    (int* blocks, CUfunction function, int block_threads, std::size_t dynamic_shared_bytes))                         \
  X(cuLaunchKernelEx, , 11060, (const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra)) \
  X(cuLaunchHostFunc, , 10000, (CUstream stream, CUhostFn function, void* user_data))                                \
                                                                                                                     \
  X(cuMemGetInfo, _v2, 3020, (std::size_t * free, std::size_t * total))                                              \
  X(cuMemAlloc, _v2, 3020, (CUdeviceptr * pointer, std::size_t bytes))                                               \
  X(cuMemFree, _v2, 3020, (CUdeviceptr pointer))                                                                     \
  X(cuMemAllocAsync, , 11020, (CUdeviceptr * pointer, std::size_t bytes, CUstream stream))                           \
  X(cuMemFreeAsync, , 11020, (CUdeviceptr pointer, CUstream stream))                                                 \
  X(cuDeviceGetDefaultMemPool, , 11020, (CUmemoryPool * pool, CUdevice device))                                      \
  X(cuMemPoolSetAttribute, , 11020, (CUmemoryPool pool, CUmemPool_attribute attribute, void* value))                 \
  X(cuMemPoolGetAttribute, , 11020, (CUmemoryPool pool, CUmemPool_attribute attribute, void* value))                 \
  X(cuMemPoolSetAccess, , 11020, (CUmemoryPool pool, const CUmemAccessDesc* access, std::size_t count))              \
  X(cuMemPoolTrimTo, , 11020, (CUmemoryPool pool, std::size_t min_bytes_to_keep))                                    \
  X(cuMemAllocHost, _v2, 3020, (void** pointer, std::size_t bytes))                                                  \
  X(cuMemFreeHost, , 2000, (void* pointer))                                                                          \
  X(cuMemHostRegister, _v2, 6050, (void* pointer, std::size_t bytes, unsigned flags))                                \
  X(cuMemHostUnregister, , 4000, (void* pointer))                                                                    \
  X(cuMemHostGetDevicePointer, _v2, 3020, (CUdeviceptr * device_pointer, void* pointer, unsigned flags))             \
  X(cuMemcpyHtoDAsync, _v2, 3020, (CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream))            \
  X(cuMemcpyDtoHAsync, _v2, 3020, (void* to, CUdeviceptr from, std::size_t bytes, CUstream stream))                  \
  X(cuMemcpyDtoDAsync, _v2, 3020, (CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream))            \
  X(cuMemcpyPeerAsync, , 4000,                                                                                       \
    (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, std::size_t bytes,              \
     CUstream stream))                                                                                               \
  X(cuMemcpy3DPeerAsync, , 4000, (const CUDA_MEMCPY3D_PEER* copy, CUstream stream))                                  \
  X(cuMemsetD8Async, , 3020, (CUdeviceptr to, unsigned char value, std::size_t count, CUstream stream))              \
  X(cuMemsetD32Async, , 3020, (CUdeviceptr to, unsigned value, std::size_t count, CUstream stream))                  \
                                                                                                                     \
  X(cuStreamCreate, , 2000, (CUstream * stream, unsigned flags))                                                     \
  X(cuStreamDestroy, _v2, 4000, (CUstream stream))                                                                   \
  X(cuStreamSynchronize, , 2000, (CUstream stream))                                                                  \
  X(cuStreamQuery, , 2000, (CUstream stream))                                                                        \
  X(cuStreamWaitEvent, , 3020, (CUstream stream, CUevent event, unsigned flags))                                     \
  X(cuEventCreate, , 2000, (CUevent * event, unsigned flags))                                                        \
  X(cuEventDestroy, _v2, 4000, (CUevent event))                                                                      \
  X(cuEventRecord, , 2000, (CUevent event, CUstream stream))                                                         \
  X(cuEventSynchronize, , 2000, (CUevent event))                                                                     \
  X(cuEventQuery, , 2000, (CUevent event))                                                                           \
  X(cuEventElapsedTime, , 2000, (float* milliseconds, CUevent start, CUevent end))                                   \
                                                                                                                     \
  X(cuStreamBeginCapture, _v2, 10010, (CUstream stream, CUstreamCaptureMode mode))                                   \
  X(cuStreamEndCapture, , 10000, (CUstream stream, CUgraph * graph))                                                 \
  X(cuStreamIsCapturing, , 10000, (CUstream stream, CUstreamCaptureStatus * status))                                 \
  X(cuGraphGetNodes, , 10000, (CUgraph graph, CUgraphNode * nodes, std::size_t * count))                             \
  X(cuGraphNodeGetType, , 10000, (CUgraphNode node, CUgraphNodeType * type))                                         \
  X(cuGraphKernelNodeGetParams, _v2, 12000, (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS * parameters))                \
  X(cuGraphInstantiateWithFlags, , 11040, (CUgraphExec * executable, CUgraph graph, unsigned long long flags))       \
  X(cuGraphLaunch, , 10000, (CUgraphExec executable, CUstream stream))                                               \
  X(cuGraphExecKernelNodeSetParams, _v2, 12000,                                                                      \
    (CUgraphExec executable, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* parameters))                           \
  X(cuGraphExecUpdate, _v2, 12000, (CUgraphExec executable, CUgraph graph, CUgraphExecUpdateResultInfo * result))    \
  X(cuGraphExecDestroy, , 10000, (CUgraphExec executable))                                                           \
  X(cuGraphDestroy, , 10000, (CUgraph graph))

// The same for those that a driver may lack; null where it does.
#define SHEAF_CUDA_OPTIONAL_ENTRY_POINTS(X)                                                                     \
  X(cuTensorMapEncodeTiled, , 12000,                                                                            \
    (CUtensorMap * map, CUtensorMapDataType type, std::uint32_t rank, void* address, const std::uint64_t* dims, \
     const std::uint64_t* strides, const std::uint32_t* box, const std::uint32_t* element_strides,              \
     CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,            \
     CUtensorMapFloatOOBfill fill))

/// One pointer per entry point, under its name.
struct EntryPoints {
#define SHEAF_MEMBER(name, suffix, version, parameters) CUresult(*name) parameters = nullptr;
  SHEAF_CUDA_ENTRY_POINTS(SHEAF_MEMBER)
  SHEAF_CUDA_OPTIONAL_ENTRY_POINTS(SHEAF_MEMBER)
#undef SHEAF_MEMBER
};

}  // namespace sheaf::cuda
