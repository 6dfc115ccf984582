// The product's loader on drivers that will not do: too old, hollow, without devices, refusing to start; and on one
// that knows a function by its exported name only.
#include <doctest/doctest.h>

#include "tests/emulator/fake_gpu.h"
#include "tests/places.h"

using namespace sheaf;
using namespace sheaf::cuda;
using namespace sheaf::emulator;
using runtime::Cuda;
using tests::Variable;

namespace {

const std::string kHollow = SHEAF_BINARY_DIR "/libsheaf_fake_hollow_cuda.so";

std::string why_not(const std::string& path) { return Cuda::open({path}).status().ToString(); }

/// What the loader says of the fake driver with this option, afterwards gone again.
std::string why_not_with(const std::string& option, const std::string& value) {
  const FakeGpu working;
  const Variable variable("SHEAF_FAKE_CUDA_" + option, value);
  working.reset();
  return why_not(kFakeCuda);
}

}  // namespace

TEST_CASE("a driver that is too old is told both versions") {
  const Variable version("SHEAF_FAKE_CUDA_VERSION", "11080");
  CHECK(why_not(kHollow) ==
        "FAILED_PRECONDITION: the CUDA driver " + kHollow +
            " is for CUDA 11.8, and Sheaf needs one for CUDA 12.0 or newer: update NVIDIA's driver");
}

TEST_CASE("a driver without entry points is told which") {
  CHECK(why_not(kHollow) == "UNAVAILABLE: the CUDA driver " + kHollow +
                                ", for CUDA 12.0, lacks cuInit, cuGetErrorName, cuGetErrorString and others");
}

TEST_CASE("a driver without devices is told, with the variable that may hide them") {
  const std::string begin = "UNAVAILABLE: the CUDA driver " + kFakeCuda + ", for CUDA 13.0, finds no device";
  CHECK(why_not_with("DEVICES", "0") == begin);
  const Variable hidden("CUDA_VISIBLE_DEVICES", "-1");
  CHECK(why_not_with("DEVICES", "0") == begin + "; CUDA_VISIBLE_DEVICES is \"-1\"");
}

TEST_CASE("a driver that does not start is told why, in its own words") {
  CHECK(why_not_with("INIT", "803") ==
        "UNAVAILABLE: the CUDA driver " + kFakeCuda +
            ", for CUDA 13.0, does not start: cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803): system has unsupported "
            "display driver / cuda driver combination");
  CHECK(why_not_with("INIT", "34") == "UNAVAILABLE: the CUDA driver " + kFakeCuda +
                                          ", for CUDA 13.0, does not start: cuInit: CUDA_ERROR_STUB_LIBRARY (34): CUDA "
                                          "driver is a stub library");
}

TEST_CASE("a function that cuGetProcAddress does not know is found by its exported name") {
  CHECK(why_not_with("LACKS", "cuMemAlloc") == "OK");
}

TEST_CASE("what the driver says of a call becomes a status with the call in it") {
  const FakeGpu gpu;
  CHECK(gpu->version() == 13000);
  CHECK(gpu->path() == kFakeCuda);
  CHECK(gpu->status(CUDA_SUCCESS, "cuMemAlloc").ToString() == "OK");
  CHECK(gpu->status(CUDA_ERROR_OUT_OF_MEMORY, "cuMemAlloc of 4096 bytes").ToString() ==
        "RESOURCE_EXHAUSTED: cuMemAlloc of 4096 bytes: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory");
  CHECK(gpu->status(CUDA_ERROR_LAUNCH_FAILED, "sheaf_k0").ToString() ==
        "INTERNAL: sheaf_k0: CUDA_ERROR_LAUNCH_FAILED (719): unspecified launch failure");
  CHECK(gpu->status(static_cast<CUresult>(1234), "cuInit").ToString() ==
        "INTERNAL: cuInit: an error that this driver does not name (1234)");
}

TEST_CASE("the devices are those that the options ask for") {
  const FakeGpu gpu{{"DEVICES", "4"}, {"ARCH", "sm_80"}, {"MEMORY", "1048576"}};
  CHECK(gpu->num_devices() == 4);
  char name[64];
  CHECK(gpu->cuDeviceGetName(name, sizeof name, 3) == CUDA_SUCCESS);
  CHECK(std::string(name) == "Sheaf's fake sm_80");
  std::size_t bytes = 0;
  CHECK(gpu->cuDeviceTotalMem(&bytes, 3) == CUDA_SUCCESS);
  CHECK(bytes == 1048576);
  const auto attribute = [&](CUdevice_attribute a) {
    int value = -1;
    CHECK(gpu->cuDeviceGetAttribute(&value, a, 3) == CUDA_SUCCESS);
    return value;
  };
  CHECK(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) == 8);
  CHECK(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) == 108);
  CHECK(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) == 166912);
  CHECK(attribute(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) == 0);
  int value = 0;
  CHECK(gpu->cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 4) == CUDA_ERROR_INVALID_DEVICE);
  CHECK(gpu.fault() == "cuDeviceGetAttribute: no device 4");
}

TEST_CASE("calls without a context, or from a host function, are refused") {
  const FakeGpu gpu;
  CUdeviceptr p = 0;
  CHECK(gpu->cuCtxSetCurrent(nullptr) == CUDA_SUCCESS);
  CHECK(gpu->cuMemAlloc(&p, 16) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(gpu.fault() == "cuMemAlloc: no context is current");
  gpu.use(0);
  const CUstream s = gpu.stream();
  static const FakeGpu* called = nullptr;
  called = &gpu;
  const CUhostFn calls = [](void* result) {
    CUdeviceptr q = 0;
    *static_cast<CUresult*>(result) = (*called)->cuMemAlloc(&q, 16);
  };
  CUresult result = CUDA_SUCCESS;
  CHECK(gpu->cuLaunchHostFunc(s, calls, &result) == CUDA_SUCCESS);
  CHECK(gpu->cuStreamSynchronize(s) == CUDA_SUCCESS);
  CHECK(result == CUDA_ERROR_NOT_PERMITTED);
  CHECK(gpu.fault() == "cuMemAlloc: called from a host function");
}
