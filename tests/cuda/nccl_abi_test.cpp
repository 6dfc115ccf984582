// Our declarations of NCCL against the real ones, where it is installed, as static assertions. Elsewhere this file
// asserts nothing, and says so.
#include "runtime/driver/nccl_abi.h"

#include <doctest/doctest.h>

#include <cstdio>

#include "tests/cuda/alike.h"

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>

// Sheaf passes no configuration, so it declares none.
template <>
struct sheaf::tests::Alike<sheaf::nccl::ncclConfig_t, ::ncclConfig_t> : std::true_type {};

namespace sheaf::nccl {
namespace {

using tests::Alike;

#define SHEAF_SAME_FUNCTION(name, parameters) \
  static_assert(Alike<ncclResult_t parameters, decltype(::name)>::value, #name);
SHEAF_NCCL_ENTRY_POINTS(SHEAF_SAME_FUNCTION)
static_assert(Alike<decltype(EntryPoints::ncclGetErrorString), decltype(&::ncclGetErrorString)>::value);
static_assert(Alike<decltype(EntryPoints::ncclGetLastError), decltype(&::ncclGetLastError)>::value);
static_assert(!Alike<ncclComm_t, cudaStream_t>::value, "handles differ by their names");

#define SHEAF_SAME(name) static_assert(static_cast<unsigned>(name) == static_cast<unsigned>(::name));
SHEAF_SAME(ncclSuccess)
SHEAF_SAME(ncclUnhandledCudaError)
SHEAF_SAME(ncclSystemError)
SHEAF_SAME(ncclInternalError)
SHEAF_SAME(ncclInvalidArgument)
SHEAF_SAME(ncclInvalidUsage)
SHEAF_SAME(ncclRemoteError)
SHEAF_SAME(ncclInProgress)
SHEAF_SAME(ncclSum)
SHEAF_SAME(ncclProd)
SHEAF_SAME(ncclMax)
SHEAF_SAME(ncclMin)
SHEAF_SAME(ncclAvg)
SHEAF_SAME(ncclInt8)
SHEAF_SAME(ncclUint8)
SHEAF_SAME(ncclInt32)
SHEAF_SAME(ncclUint32)
SHEAF_SAME(ncclInt64)
SHEAF_SAME(ncclUint64)
SHEAF_SAME(ncclFloat16)
SHEAF_SAME(ncclFloat32)
SHEAF_SAME(ncclFloat64)
SHEAF_SAME(ncclBfloat16)

}  // namespace
}  // namespace sheaf::nccl

TEST_CASE("NCCL's declarations are those of the installed library") {
  std::printf("nccl: declarations compared with those of NCCL %d.%d.%d\n", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
}
#else
TEST_CASE("NCCL's declarations are those of the installed library") {
  std::printf("nccl: declarations not compared, no <nccl.h>\n");
}
#endif
