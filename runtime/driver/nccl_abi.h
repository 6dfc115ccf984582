// NCCL as Sheaf calls it: declared here so that building needs neither it nor a toolkit. Names and values are those of
// nccl.h; tests/cuda/nccl_abi_test.cpp compares them where that is installed.
#pragma once

#include <cstddef>

#include "runtime/driver/cuda_abi.h"

namespace sheaf::nccl {

using cuda::CUstream;
using ncclComm_t = struct ncclComm*;

struct ncclConfig_t;

struct ncclUniqueId {
  char internal[128];
};

enum ncclResult_t : unsigned {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
};
enum ncclRedOp_t : unsigned { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4 };
enum ncclDataType_t : unsigned {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
};

// X(name, parameters): those that return ncclResult_t. A null configuration of a split keeps the parent's.
#define SHEAF_NCCL_ENTRY_POINTS(X)                                                                                    \
  X(ncclGetVersion, (int* version))                                                                                   \
  X(ncclGetUniqueId, (ncclUniqueId * id))                                                                             \
  X(ncclCommInitRank, (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank))                                      \
  X(ncclCommInitAll, (ncclComm_t * comms, int devices, const int* device_list))                                       \
  X(ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t* new_comm, ncclConfig_t* configuration))          \
  X(ncclCommDestroy, (ncclComm_t comm))                                                                               \
  X(ncclCommAbort, (ncclComm_t comm))                                                                                 \
  X(ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t * error))                                                   \
  X(ncclGroupStart, ())                                                                                               \
  X(ncclGroupEnd, ())                                                                                                 \
  X(ncclAllReduce, (const void* send, void* receive, std::size_t count, ncclDataType_t type, ncclRedOp_t op,          \
                    ncclComm_t comm, CUstream stream))                                                                \
  X(ncclAllGather,                                                                                                    \
    (const void* send, void* receive, std::size_t send_count, ncclDataType_t type, ncclComm_t comm, CUstream stream)) \
  X(ncclReduceScatter, (const void* send, void* receive, std::size_t receive_count, ncclDataType_t type,              \
                        ncclRedOp_t op, ncclComm_t comm, CUstream stream))                                            \
  X(ncclBroadcast, (const void* send, void* receive, std::size_t count, ncclDataType_t type, int root,                \
                    ncclComm_t comm, CUstream stream))                                                                \
  X(ncclSend, (const void* send, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm, CUstream stream)) \
  X(ncclRecv, (void* receive, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm, CUstream stream))

/// One pointer per entry point, under its name.
struct EntryPoints {
#define SHEAF_MEMBER(name, parameters) ncclResult_t(*name) parameters = nullptr;
  SHEAF_NCCL_ENTRY_POINTS(SHEAF_MEMBER)
#undef SHEAF_MEMBER
  const char* (*ncclGetErrorString)(ncclResult_t error) = nullptr;
  const char* (*ncclGetLastError)(ncclComm_t comm) = nullptr;
};

}  // namespace sheaf::nccl
